"""Turning images by any angle, and layers whose outputs turn with them.

A grid has no rotation by 30°. Images are turned by bicubic interpolation, R_α x, and the regular
fibre of n turns is shifted by α n/360° elements, as a band-limited function of the angle where that
is no whole number. Down-sampling keeps turns only if it blurs first and keeps the array centre, and
corners, which a turn moves out of the image, have to be taken away.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.groups import FeatureSpace

BLUR = (1.0, 3.0, 3.0, 1.0)  # even, so that the centre stays between pixels
EDGE = 1.0  # pixels over which the disc fades out


def turned(x: Tensor, angle: float, outside: str = "zeros") -> Tensor:
    """x (batch, channels, height, width) turned about its centre by `angle` degrees.

    Counter-clockwise, as `torch.rot90`, by bicubic interpolation. What comes in from outside is
    zero, or with outside="border" what is nearest on the border.
    """
    h, w = x.shape[2:]
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    # Coordinates run from -1 to 1 along sides of different lengths.
    matrix = torch.tensor([[c, -s * h / w, 0.0], [s * w / h, c, 0.0]]).to(x)
    grid = F.affine_grid(matrix.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    return F.grid_sample(x, grid, mode="bicubic", padding_mode=outside, align_corners=False)


def act_turn(space: FeatureSpace, angle: float, x: Tensor) -> Tensor:
    """x (batch, *space.shape) turned by `angle` degrees, the pixels and the fibre.

    Raises
    ------
    ValueError
        If the fibre is neither trivial nor the regular one of some turns.
    """
    space.check(x)
    n = space.fibre.turns
    if n is None:
        raise ValueError(
            f"features are turned by any angle if their fibre is 'trivial' or 'regular' of turns, "
            f"got {space.fibre}"
        )
    moved = turned(x, angle) if space.lattice.dim else x
    if n == 1:
        return moved
    steps = angle * n / 360
    fibres = moved.reshape(len(x), space.channels, n, -1)
    if math.isclose(steps, round(steps), abs_tol=1e-9):
        shifted = fibres.roll(round(steps), 2)
    else:
        m = torch.arange(n // 2 + 1, dtype=x.dtype, device=x.device)
        phase = torch.polar(torch.ones_like(m), -2 * math.pi / n * steps * m)
        shifted = torch.fft.irfft(torch.fft.rfft(fibres, dim=2) * phase[:, None], n=n, dim=2)
    return shifted.reshape(x.shape)


def radius(height: int, width: int) -> Tensor:
    """The distance of pixels from the array centre, in pixels: (height, width), float64."""
    y = torch.arange(height, dtype=torch.float64) - (height - 1) / 2
    x = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    return (y[:, None].square() + x.square()).sqrt()


class Disc(nn.Module):
    """Fade an image out towards its corners: what a turn would move out of the image."""

    mask: Tensor

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        inside = (min(height, width) / 2 - radius(height, width)) / EDGE
        self.register_buffer("mask", inside.clamp(0, 1).float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask.to(x)


class BlurPool(nn.Module):
    """Halve the sides of images after a small blur, about the same array centre.

    Sides must be even. Every channel is treated alike, so that fibres stay what they are.
    """

    kernel: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels
        row = torch.tensor(BLUR)
        kernel = torch.outer(row, row) / row.sum() ** 2
        self.register_buffer("kernel", kernel.repeat(channels, 1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(x, self.kernel.to(x), stride=2, padding=1, groups=self.channels)
