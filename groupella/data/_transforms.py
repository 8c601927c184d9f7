"""Transformations of a whole data set, each image by its own random motion.

A transformation is called with the images and labels of one split, the size that the network
wants, and a source of randomness; it resizes where that belongs. ``Translated`` and ``Rotated``
are the paper's and act before resizing; exact motions by a group are in ``_moved``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ._augment import shifted
from ._images import CHUNK
from ._resize import on_canvas, resize, unit


@dataclass(frozen=True)
class Task:
    """What the labels mean after a transformation.

    ``obeys`` names the symmetry that they obey, where the construction fixes it; ``remarks`` say
    what the construction cannot promise.
    """

    classes: tuple[str, ...]
    obeys: str | None = None
    remarks: tuple[str, ...] = ()


class Transform(Protocol):
    """What ``load`` asks of a transformation."""

    @property
    def name(self) -> str:
        """What it is called after the colon, as in ``mnist:rotated``; empty for no motion."""

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """New images (``float32``) and labels of one split, from images (n, channels, h, w)."""

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        """What the new labels mean, on images of the size that came out."""


@dataclass(frozen=True)
class Resized:
    """No motion at all: the images in the size that the network wants."""

    @property
    def name(self) -> str:
        return ""

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        return resize(x, size), y

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        return Task(classes)


@dataclass(frozen=True)
class Translated:
    """Moved by whole pixels, uniform in [−pixels, pixels] along each axis; black enters.

    With ``canvas``, the images are first put in the middle of a black square of that size.
    """

    pixels: int = 8
    canvas: int | None = None

    @property
    def name(self) -> str:
        return "translated"

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        x = on_canvas(x, self.canvas) if self.canvas else x
        moves = torch.from_numpy(rng.integers(-self.pixels, self.pixels + 1, size=(2, len(x))))
        moved = torch.empty_like(x)
        black = torch.zeros(x.shape[1])
        for start in range(0, len(x), CHUNK):
            part = slice(start, start + CHUNK)
            moved[part] = shifted(x[part], moves[0, part], moves[1, part], self.pixels, black)
        return resize(moved, size), y

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        return Task(classes)


@dataclass(frozen=True)
class Rotated:
    """Turned about the centre by an angle uniform on the circle; black fills the corners.

    Bilinear interpolation. With ``canvas``, the images are first put in the middle of a black
    square of that size, so that corners are not cut off.
    """

    canvas: int | None = None

    @property
    def name(self) -> str:
        return "rotated"

    def __call__(
        self, x: Tensor, y: Tensor, size: int | None, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        x = on_canvas(x, self.canvas) if self.canvas else x
        angles = torch.from_numpy(rng.uniform(0, 2 * math.pi, len(x)))
        return resize(rotated(x, angles), size), y

    def task(self, classes: tuple[str, ...], lattice: tuple[int, int]) -> Task:
        return Task(classes)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Image n turned counter-clockwise by ``angles[n]`` (radians), as ``float32``.

    A quarter turn is ``np.rot90``. What lies outside the frame is black.
    """
    height, width = x.shape[-2:]
    cos, sin = angles.cos(), angles.sin()
    # grid_sample asks, for each new pixel, where it comes from, in units of half the frame.
    inverse = torch.zeros(len(x), 2, 3, dtype=torch.float64)
    inverse[:, 0, 0], inverse[:, 0, 1] = cos, -sin * height / width
    inverse[:, 1, 0], inverse[:, 1, 1] = sin * width / height, cos
    out = torch.empty(x.shape)
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        chunk = unit(x[part])
        grid = F.affine_grid(inverse[part], list(chunk.shape), align_corners=False)
        out[part] = F.grid_sample(chunk, grid.to(chunk.dtype), mode="bilinear", align_corners=False)
    return out
