"""What the axes of an array are: samples, channels, and the sites of a lattice.

The groups decide: those of sequences act on one axis, of images on two, of voxels on three, and a
group of points on the points that it names. Without groups, arrays are vectors, images or voxels by
their number of axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groupella.groups import Symmetry

from ._errors import DataError

Array = npt.NDArray[Any]
# The number of axes of the lattice, its sides, one axis of points, or unknown.
Axes = int | tuple[int, ...] | Literal["points"] | None
_WORDS = {1: "length", 2: "h, w", 3: "d, h, w"}


def axes_of(groups: Iterable[Symmetry]) -> Axes:
    """The axes that groups act on; None for the trivial group alone.

    Raises
    ------
    ValueError
        If they act on different numbers of axes.
    """
    members = list(groups)
    for member in members:
        if member.lattice is not None:
            return member.lattice.shape
    dims = {member.dim for member in members if member.dim is not None}
    if len(dims) > 1:
        named = ", ".join(f"{m.name} on {m.dim}" for m in members if m.dim is not None)
        raise ValueError(f"the groups act on different numbers of axes: {named}")
    return dims.pop() if dims else None


def channels_first(x: Array, axes: Axes = None, what: str = "x") -> Array:
    """x as (n, channels, *lattice), a view of it.

    Parameters
    ----------
    x
        (n, *lattice), (n, channels, *lattice) or (n, *lattice, channels). Where both could be, the
        axis of the channels is the shorter one; of points with features, it is the last.
    axes
        What the lattice is; None guesses by the number of axes: 2 vectors, 3 or 4 images, 5 voxels.
        Of 4 axes without one short enough for channels, (n, d, h, w), voxels too.

    Raises
    ------
    DataError
        If the axes cannot be told.
    """
    if x.ndim < 2 or not x.size:
        raise DataError(f"{what} of shape {x.shape}; expected samples along the first of its axes")
    if axes == "points":
        axes = (x.shape[1],)
    if isinstance(axes, tuple):
        return _on_lattice(x, axes, what)
    dim = axes or _guessed(x.shape)
    if x.ndim == dim + 1:
        return x[:, None]
    if x.ndim == dim + 2 and x.shape[-1] < min(x.shape[1:-1]):
        return np.moveaxis(x, -1, 1)
    if x.ndim == dim + 2 and x.shape[1] < min(x.shape[2:]):
        return x
    sites = _WORDS[dim]
    other = " (groups of vectors are permutations and cyclic, of sequences z1)" * (x.ndim == 2)
    raise DataError(
        f"{what} of shape {x.shape}; expected (n, {sites}), (n, {sites}, channels) or "
        f"(n, channels, {sites}) with fewer channels than sites along a side{other}"
    )


def _guessed(shape: tuple[int, ...]) -> int:
    if len(shape) == 4 and not (shape[-1] < min(shape[1:-1]) or shape[1] < min(shape[2:])):
        return 3
    return {2: 1, 3: 2, 4: 2}.get(len(shape), 3)


def _on_lattice(x: Array, lattice: tuple[int, ...], what: str) -> Array:
    if x.shape[1:] == lattice:
        return x[:, None]
    if x.shape[1:-1] == lattice:
        return np.moveaxis(x, -1, 1)
    if x.shape[2:] == lattice:
        return x
    sites, more = ", ".join(map(str, lattice)), "features" if len(lattice) == 1 else "channels"
    raise DataError(
        f"{what} of shape {x.shape} is not made of samples with {'×'.join(map(str, lattice))} "
        f"sites: expected (n, {sites}), (n, {sites}, {more}) or (n, {more}, {sites})"
    )
