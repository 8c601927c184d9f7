"""Transformations of a whole data set: each image is moved by its own random motion.

A transformation gets the images and labels of one split, the size that the network wants and a
source of randomness; it resizes at the right moment. `Translated` and `Rotated` are the paper's and
act before resizing; exact motions by a group are in `_moved`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ._augment import shifted
from ._pixels import chunks, unit


@dataclass(frozen=True)
class Task:
    """The meaning of the labels after a transformation.

    `obeys` names the symmetry of the labels, where the construction fixes it; `remarks` say what
    the construction cannot guarantee.
    """

    classes: tuple[str, ...]
    obeys: str | None = None
    remarks: tuple[str, ...] = ()


class Transform(Protocol):
    """The interface that `load` expects of a transformation."""

    @property
    def name(self) -> str:
        """The name after the colon, as in ``mnist:rotated``; empty for no motion."""

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """New images (``float32``) and labels of one split, from images (n, channels, h, w)."""

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        """The meaning of the new labels, for output images of size `lattice`."""
        return Task(classes)


@dataclass(frozen=True)
class Resized(Transform):
    """No motion: only resizes the images to the size that the network wants."""

    name: ClassVar[str] = ""

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        return resize(x, size), y


@dataclass(frozen=True)
class Translated(Transform):
    """Moves each image by whole pixels, uniform in [−pixels, pixels] along each axis; black enters.

    With `canvas`, images are first put in the middle of a black square of that size.
    """

    name: ClassVar[str] = "translated"
    pixels: int = 8
    canvas: int | None = None

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        x = on_canvas(x, self.canvas) if self.canvas else x
        moves = torch.from_numpy(rng.integers(-self.pixels, self.pixels + 1, size=(2, len(x))))
        moved, black = torch.empty_like(x), torch.zeros(x.shape[1])
        for part in chunks(len(x)):
            moved[part] = shifted(x[part], moves[0, part], moves[1, part], self.pixels, black)
        return resize(moved, size), y


@dataclass(frozen=True)
class Rotated(Transform):
    """Rotates each image about its centre by an angle uniform on the circle; black fills corners.

    Bilinear interpolation. With `canvas`, images are first put in the middle of a black square of
    that size, so that their corners are not cut off.
    """

    name: ClassVar[str] = "rotated"
    canvas: int | None = None

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        x = on_canvas(x, self.canvas) if self.canvas else x
        angles = torch.from_numpy(rng.uniform(0, 2 * math.pi, len(x)))
        return resize(rotated(x, angles), size), y


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Image n rotated counter-clockwise by `angles[n]` (radians), as ``float32``.

    A quarter turn is ``np.rot90``. Everything outside the frame is black.
    """
    height, width = x.shape[-2:]
    cos, sin = angles.cos(), angles.sin()
    # grid_sample asks, for each new pixel, where it comes from, in units of half the frame.
    inverse = torch.zeros(len(x), 2, 3, dtype=torch.float64)
    inverse[:, 0, 0], inverse[:, 0, 1] = cos, -sin * height / width
    inverse[:, 1, 0], inverse[:, 1, 1] = sin * width / height, cos
    out = torch.empty(x.shape, dtype=unit(x[:0]).dtype)
    for part in chunks(len(x)):
        image = unit(x[part])
        grid = F.affine_grid(inverse[part], list(image.shape), align_corners=False)
        out[part] = F.grid_sample(image, grid.to(image.dtype), align_corners=False)
    return out


def resize(x: Tensor, size: int | None) -> Tensor:
    """(n, channels, size, size) by bilinear interpolation, as `unit`; ``None`` keeps the size.

    Pixel i of m samples the input at (i + ½)·n/m − ½, so the image keeps its centre, and resizing
    commutes with the symmetries of the square. Images are smoothed first only if they shrink by
    more than a factor of two, where neighbouring samples would skip pixels.
    """
    if size is None or x.shape[-2:] == (size, size):
        return unit(x)
    smooth = max(x.shape[-2:]) > 2 * size
    out = torch.empty(len(x), x.shape[1], size, size, dtype=unit(x[:0]).dtype)
    for part in chunks(len(x)):
        out[part] = F.interpolate(unit(x[part]), (size, size), mode="bilinear", antialias=smooth)
    return out


def on_canvas(x: Tensor, size: int, corner: bool = False) -> Tensor:
    """The images on a black square of that size, in its middle or in its top left corner."""
    height, width = x.shape[-2:]
    if size < max(height, width):
        raise ValueError(f"images of {height}×{width} do not fit on a canvas of {size}×{size}")
    top, left = (0, 0) if corner else ((size - height) // 2, (size - width) // 2)
    out = x.new_zeros(len(x), x.shape[1], size, size)
    out[..., top : top + height, left : left + width] = x
    return out
