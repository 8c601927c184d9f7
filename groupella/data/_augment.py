"""Augmentation of training batches: shifts by whole pixels and flips, drawn for each sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def shifted(x: Tensor, down: Tensor, right: Tensor, reach: int, fill: Tensor) -> Tensor:
    """Image n moved by `down[n]` rows and `right[n]` columns, each in [−reach, reach].

    x: (n, channels, height, width). Pixels leaving the frame are lost; `fill` (channels,) enters.
    """
    height, width = x.shape[-2:]
    inner = slice(reach, -reach) if reach else slice(None)
    framed = fill.to(x).view(1, -1, 1, 1).expand(len(x), -1, -1, -1)
    framed = framed.expand(-1, -1, height + 2 * reach, width + 2 * reach).clone()
    framed[..., inner, inner] = x
    windows = framed.unfold(2, height, 1).unfold(3, width, 1)
    samples = torch.arange(len(x), device=x.device)
    return windows[samples, :, reach - down, reach - right]


@dataclass(frozen=True)
class Augmentation:
    """Random shifts and left–right flips of a batch of training images, drawn for each sample.

    Parameters
    ----------
    shift : largest shift along each axis, in pixels
    flip : whether to flip half of the images
    fill : the value that enters the frame, one per channel: black, as the network sees it
    """

    shift: int = 4
    flip: bool = True
    fill: tuple[float, ...] = (0.0,)

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"shift must be 0 or more pixels, got {self.shift}")

    def __call__(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        if x.ndim != 4 or len(self.fill) not in (1, x.shape[1]):
            raise ValueError(
                f"expected images (n, {len(self.fill)}, height, width), got {tuple(x.shape)}"
            )
        n = len(x)
        # Drawn on the CPU, so that a seed means the same on every device.
        moves = torch.randint(-self.shift, self.shift + 1, (2, n), generator=generator)
        down, right = moves.to(x.device)
        fill = torch.tensor(self.fill).expand(x.shape[1])
        y = shifted(x, down, right, self.shift, fill) if self.shift else x
        if self.flip:
            heads = (torch.rand(n, generator=generator) < 0.5).to(x.device)
            y = torch.where(heads.view(-1, 1, 1, 1), y.flip(-1), y)
        return y
