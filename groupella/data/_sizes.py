"""A size that a search can afford, and how images are brought to it.

Cell i of m along an axis covers [a + i·s, a + (i + 1)·s) of it, where a window from a of length m·s
is seen. Its value is the mean over what it covers, outside of the image 0:

    y = R x Cᵀ,    R[i, p] = |cell i ∩ [p, p + 1)| / s

The window has the centre of the image, so this commutes with rotations and reflections of a square.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from groupella._machine import in_gibibytes, memory_of_machine
from groupella.groups import Symmetry

from ._errors import DataError
from ._pixels import chunks, unit

Fit = Literal["crop", "pad", "stretch"]
FITS: tuple[Fit, ...] = get_args(Fit)

SECONDS = 300.0  # that a search may take where nobody says
# Of an image, for each second of the search: four trainings on 18,000 images each, on one core.
SITES_PER_SECOND = 3.5
FEWEST, MOST = 32 * 32, 128 * 128  # sites that are chosen
KEPT = 64 * 64  # no larger images are left as they are
# Sites after the last halving. A dense map follows, of 128 features each.
REST, REST_KEPT = 64, 256
HALVED = 8  # the smallest side that networks halve
STEP = 4  # sides are multiples of it
DISTORTION = 10.0  # how much a change of the aspect ratio weighs against sites


@dataclass(frozen=True)
class Size:
    """From images of one size to those of another.

    Parameters
    ----------
    images
        Height and width of the images.
    window
        Height and width of the part that is seen, about the centre. What is outside is cut off;
        where the window is larger, black enters.
    lattice
        Height and width of the result.
    """

    images: tuple[int, int]
    window: tuple[int, int]
    lattice: tuple[int, int]

    @classmethod
    def fitting(cls, images: tuple[int, int], lattice: tuple[int, int], fit: Fit) -> Size:
        """Crop or pad the images to the aspect ratio of the lattice, or stretch them."""
        _check_fit(fit)
        if fit == "stretch":
            return cls(images, images, lattice)
        ratios = [n / m for n, m in zip(images, lattice, strict=True)]
        scale = min(ratios) if fit == "crop" else max(ratios)
        height, width = (max(round(scale * m), 1) for m in lattice)
        return cls(images, (height, width), lattice)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """R (height, height of the images) and C (width, width of the images), in float64."""
        rows, columns = map(_averages, self.images, self.window, self.lattice)
        return rows, columns

    def __call__(self, x: Tensor) -> Tensor:
        """(n, channels, *images) to (n, channels, *lattice), as floats; 8-bit values over 255."""
        dtype = unit(x[:0]).dtype
        rows, columns = (matrix.to(dtype) for matrix in self.matrices())
        out = torch.empty(*x.shape[:2], *self.lattice, dtype=dtype)
        for part in chunks(len(x)):
            out[part] = rows @ unit(x[part]) @ columns.mT
        return out

    def __str__(self) -> str:
        """What was done, in a sentence."""
        sizes = (self.images, self.window, self.lattice)
        before, seen, after = ("×".join(map(str, sides)) for sides in sizes)
        steps = []
        if seen != before:
            smaller = math.prod(self.window) < math.prod(self.images)
            steps.append(f"{'cut to the central' if smaller else 'put on a black'} {seen}")
        if after != seen:
            steps.append(f"averaged to {after}")
        return f"images of {before} were {' and '.join(steps)}"

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Size:
        """The inverse of `as_dict`, from JSON."""
        return cls(**{name: tuple(map(int, value)) for name, value in content.items()})  # type: ignore[arg-type]


def most_sites(seconds: float | None = None) -> int:
    """The pixels of an image with which a search fits into a budget; one of five minutes if None.

    At least 32×32 and at most 128×128.
    """
    return min(max(int(SITES_PER_SECOND * (seconds or SECONDS)), FEWEST), MOST)


def chosen_size(
    images: tuple[int, ...], most: int, square: bool = False, fit: Fit | None = None
) -> Size | None:
    """The size that a search needs; None where the images can stay as they are.

    They stay up to 64×64, unless their sides cannot be halved often enough. The chosen sides are
    multiples of 4 that can, the largest with at most `most` pixels and nearly the same aspect
    ratio.

    Parameters
    ----------
    images
        The lattice of the data. Only images are resized: None for other lattices.
    most
        See `most_sites`.
    square
        Whether a group exchanges the axes, so that sides must be equal.
    fit
        How oblong images become square: "crop" (the default) cuts off the ends, "pad" adds black,
        "stretch" distorts them. Without it, small images stay oblong, and the group refuses them.
    """
    _check_fit(fit)
    if len(images) != 2:
        return None
    height, width = seen = images
    how: Fit = "stretch"
    if square and height != width and (fit is not None or height * width > KEPT):
        how = fit or "crop"
        side = max(images) if how == "pad" else min(images)
        seen = (side, side)
    small = seen[0] * seen[1] <= KEPT
    if small and _rest(*seen) <= REST_KEPT:
        return None if seen == images else Size.fitting((height, width), seen, how)
    limit = max(most, KEPT) if small else most
    lattice = max(_lattices(seen, limit), key=lambda sides: _worth(sides, seen))
    return Size.fitting((height, width), lattice, how)


def needs_square(groups: Iterable[Symmetry]) -> bool:
    """Whether one of the groups exchanges the axes of images."""
    return any(m[0][0] == 0 for g in groups if g.dim == 2 for m in g.point)


def _check_fit(fit: str | None) -> None:
    """Raise `DataError` for an unknown way to make oblong images square; None is the default."""
    if fit is not None and fit not in FITS:
        raise DataError(f"no fit {fit!r}; expected one of {', '.join(FITS)}")


def check_resized(numbers: int, size: int, bytes_each: int = 4) -> None:
    """Raise `DataError` if images of this side do not fit into memory.

    Parameters
    ----------
    numbers
        Images × channels.
    size
        Their side.
    bytes_each
        Bytes per pixel and channel.
    """
    there = memory_of_machine()
    needed = numbers * size**2 * bytes_each
    if there is not None and needed > there:
        raise DataError(
            f"images of {size}×{size} need at least {in_gibibytes(needed)}, and this machine has "
            f"{in_gibibytes(there)}. Use a smaller --size, or fewer images"
        )


def _lattices(seen: tuple[int, int], limit: int) -> Iterator[tuple[int, int]]:
    """The sizes that halve well, square if the window is."""
    height, width = seen
    for h in range(STEP, height + 1, STEP):
        for w in (h,) if height == width else range(STEP, width + 1, STEP):
            if h * w <= limit and _rest(h, w) <= REST:
                yield h, w


def _worth(sides: tuple[int, int], seen: tuple[int, int]) -> float:
    aspects = (math.log(h / w) for h, w in (sides, seen))
    return math.prod(sides) * math.exp(-DISTORTION * abs(next(aspects) - next(aspects)))


def _rest(height: int, width: int) -> int:
    """The sites that are left when both sides are halved as often as networks do."""
    while height % 2 == width % 2 == 0 and min(height, width) >= HALVED:
        height, width = height // 2, width // 2
    return height * width


@lru_cache(maxsize=32)
def _averages(n: int, window: int, m: int) -> Tensor:
    """The matrix (m, n) of one axis."""
    step = window / m
    edges = (n - window) / 2 + step * torch.arange(m + 1, dtype=torch.float64)
    pixels = torch.arange(n, dtype=torch.float64)
    low = torch.maximum(edges[:-1, None], pixels)
    high = torch.minimum(edges[1:, None], pixels + 1)
    return (high - low).clamp(min=0) / step
