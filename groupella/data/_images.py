"""Images with labels: as read (``Images``), and as given to a network (``ImageData``)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ._augment import Augmentation

CHUNK = 2048  # images at a time, where an intermediate result is larger than the images


@dataclass(frozen=True, eq=False)
class Images:
    """A data set as it was read, before any transformation.

    ``train_x``, ``test_x``: (n, channels, height, width), ``uint8`` (0…255) or ``float32``; black
    is 0. ``train_y``, ``test_y``: (n,), ``int64``, an index into ``classes``. How the paper treats
    a public data set: whether it augments training batches, and the side it resizes images to.
    """

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    augment: bool = False
    paper_size: int | None = None


@dataclass(frozen=True, eq=False)
class ImageData:
    """A classification problem on images, ready for a network.

    Images are ``float32`` (n, channels, height, width), normalised per channel to zero mean and
    unit variance over the *training* images; labels are ``int64`` indices into ``classes``.
    ``augmentation`` is for training batches only, and ``None`` where the paper uses none.
    ``obeys`` names the symmetry of the labels where it is known by construction. ``remarks`` say
    what the construction cannot promise. ``shown`` are the values before the normalisation that
    are shown as black and as white.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    name: str
    seed: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: Augmentation | None = None
    obeys: str | None = None
    remarks: tuple[str, ...] = ()
    shown: tuple[float, float] = (0.0, 1.0)

    @property
    def channels(self) -> int:
        return int(self.train_x.shape[1])

    @property
    def lattice(self) -> tuple[int, int]:
        """(height, width)"""
        return int(self.train_x.shape[2]), int(self.train_x.shape[3])

    def pixels(self, x: Tensor) -> Tensor:
        """Undoes the normalisation, for showing images: black is 0, white 1.

        Values that lie in [0, 1] come back as they were; others are scaled by ``shown``.
        """
        mean = torch.tensor(self.mean, dtype=x.dtype, device=x.device).view(-1, 1, 1)
        std = torch.tensor(self.std, dtype=x.dtype, device=x.device).view(-1, 1, 1)
        black, white = self.shown
        return (x * std + mean - black) / (white - black)

    def __repr__(self) -> str:
        n, m = len(self.train_y), len(self.test_y)
        size = "×".join(map(str, self.train_x.shape[1:]))
        return f"ImageData({self.name!r}: {n} + {m} images of {size}, {len(self.classes)} classes)"


def shown_range(x: Tensor) -> tuple[float, float]:
    """What to show as black and as white: 0 and 1 where that suits the values, else their range.

    It suits values in [0, 1] unless all are so small that every image would be nearly black, as
    those of masks stored as the bytes 0 and 1.
    """
    low, high = float(x.min()), float(x.max())
    slack = 1e-4  # interpolation rounds
    if (low >= -slack and 0.25 <= high <= 1 + slack) or low == high:
        return 0.0, 1.0
    return low, high


def moments(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of (n, channels, height, width), in float64."""
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    squares = torch.zeros_like(total)
    for start in range(0, len(x), CHUNK):
        values = x[start : start + CHUNK].double()
        total += values.sum((0, 2, 3))
        squares += values.square().sum((0, 2, 3))
    count = x.numel() / x.shape[1]
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0)
    std = variance.sqrt()
    # A channel without variation carries nothing: leave its scale alone.
    std = torch.where(std > 1e-8, std, torch.ones_like(std))
    return tuple(mean.tolist()), tuple(std.tolist())


def standardise_(x: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(x − mean) / std per channel, in place."""
    centre = torch.tensor(mean, dtype=x.dtype).view(-1, 1, 1)
    scale = torch.tensor(std, dtype=x.dtype).view(-1, 1, 1)
    return x.sub_(centre).div_(scale)
