"""What is left of a sparse path whose lengthscales are zero: its stationary part.

At ω = 0 every anchor function exp(−ω² d²) is the constant 1. The path does not vanish; its weights
no longer depend on the point, so it obeys every element that leaves constants as they are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from groupella.groups import FeatureSpace, IntMatrix, LatticeElement, Symmetry

from .conv import all_translations


@runtime_checkable
class Sparse(Protocol):
    """A path whose weights are sums of anchor functions with lengthscales.

    `stationary_symmetry` is what the path obeys once its lengthscales are zero; `hyperparameters`
    names them, as in `Path`.
    """

    stationary_symmetry: Symmetry
    hyperparameters: Mapping[str, str]


IntArray = NDArray[np.intp]
Module = TypeVar("Module", bound=nn.Module)


def is_stationary(path: nn.Module) -> bool:
    """Whether the path is sparse and all its lengthscales are zero."""
    found = list(_lengthscales(path))
    return bool(found) and not any(omega.is_meta or bool(omega.any()) for omega in found)


def stationary_part(path: Module) -> Module:
    """A copy of a sparse path with lengthscales of zero; its other parameters are shared."""
    part = copy.copy(path)
    part._parameters = dict(path._parameters)
    for name, role in part.hyperparameters.items():  # type: ignore[union-attr, operator]
        omega = part._parameters[name] if role == "lengthscale" else None
        if omega is not None:
            part._parameters[name] = nn.Parameter(torch.zeros_like(omega), omega.requires_grad)
    return part


def fixes_constants(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    window: Sequence[int] = (),
    *,
    orbits: tuple[IntArray, IntArray] | None = None,
    least: Symmetry | None = None,
) -> Symmetry:
    """The translations with all point elements that leave constants as they are.

    They commute with every map whose weights do not depend on the site, whatever it does to
    channels and fibre.

    Parameters
    ----------
    window
        The window of a convolution, which must be kept too.
    orbits
        Parts of the fibres on which the map is constant as well; by default every fibre element is
        a part of its own.
    least
        What is obeyed at least; by default the translations.
    """
    ambient, shifts = space_in.ambient, least or all_translations(space_in)
    parts = [
        np.eye(space.fibre_size) if orbits is None else orbits[i][:, None] == np.unique(orbits[i])
        for i, space in enumerate((space_in, space_out))
    ]
    if not ambient.is_catalogue:
        # A generator may be any permutation of sites, and need not keep a window.
        fixed = not window and _all_fix_constants((space_in, space_out), ambient)
        return ambient if fixed else shifts
    if ambient.dim is None or shifts.dim is None:
        return shifts
    sides = np.array(window or (1,) * ambient.dim)
    point = tuple(
        matrix
        for matrix in ambient.point_in(ambient.dim)
        if np.array_equal(np.abs(np.array(matrix)) @ sides, sides)
        and all(map(_is_fixed, (space_in, space_out), parts, (matrix, matrix)))
    )
    if len(point) <= max(1, len(shifts.point)):
        return shifts
    name = ambient.name if ambient.translations and point == ambient.point else f"in {ambient}"
    return Symmetry(name, ambient.dim, True, point)


def _is_fixed(space: FeatureSpace, parts: NDArray[Any], matrix: IntMatrix) -> bool:
    """Whether a point element leaves the constants on parts (F, parts) of the fibre as they are."""
    g = LatticeElement(matrix, (0,) * space.lattice.dim, space.lattice.shape)
    return np.allclose(space.fibre_matrix(g) @ parts, parts, rtol=0, atol=1e-12)


def _all_fix_constants(spaces: Sequence[FeatureSpace], symmetry: Symmetry) -> bool:
    for space in spaces:
        size = space.fibre_size
        constants = np.repeat(np.eye(size), space.lattice.size).reshape(
            size, size, *space.lattice.shape
        )
        one = space.with_channels(1)
        for g in one.generators(symmetry):
            if not np.allclose(one.act(g, constants), constants, rtol=0, atol=1e-12):
                return False
    return True


def _lengthscales(path: nn.Module) -> Iterator[nn.Parameter]:
    if isinstance(path, Sparse):
        for name, role in path.hyperparameters.items():
            if role == "lengthscale":
                yield getattr(path, name)
