"""Characters: traces of the action on one channel, and the dimensions that they count.

χ(g) = (signed number of fixed sites) × tr ρ(g). By orthogonality the equivariant maps V → W of a
finite group have dimension ⟨χ_V, χ_W⟩ = mean_g χ_V(g) χ_W(g): a check of bases that knows nothing
of how they were made. For catalogue symmetries the fixed sites of all translations t after one
point matrix M are counted at once: M(s − c) + c + t = s for exactly one t per site s.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ._elements import LatticeElement
from ._lattice import Lattice
from ._matrices import identity
from ._space import FeatureSpace
from ._symmetry import Symmetry

__all__ = ["character", "hom_dimension"]

FloatArray = NDArray[np.float64]


def character(space: FeatureSpace, symmetry: Symmetry, torus: Lattice | None = None) -> FloatArray:
    """χ(g) of one channel for every element, in the order of ``symmetry.elements(torus)``.

    ``torus``: the lattice of the group, when it is larger than that of the space.
    """
    if not symmetry.is_catalogue or not space.ambient.is_catalogue or symmetry.is_trivial:
        return np.array([space.action(g).trace() for g in space.elements(symmetry)])
    space.generators(symmetry)
    torus = space.lattice if torus is None else torus
    one = identity(len(symmetry.point[0]))
    traces = []
    for point in (one, *(m for m in symmetry.point if m != one)):
        on_fibre = float(np.trace(space.fibre_matrix(_at_rest(point, space.lattice))))
        fixed = _fixed_sites(point, symmetry.translations, space.lattice, torus)
        traces.append(on_fibre * fixed)
    return np.concatenate(traces)


def hom_dimension(space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry) -> int:
    """The dimension of the equivariant maps between one channel of each space."""
    a, b = space_in.lattice.shape, space_out.lattice.shape
    torus = Lattice(tuple(map(math.lcm, a, b)) if a and b else a or b)
    mean = float(
        np.mean(character(space_in, symmetry, torus) * character(space_out, symmetry, torus))
    )
    dimension = round(mean)
    if abs(mean - dimension) > 1e-6:
        raise ValueError(f"the characters of {symmetry} give no whole dimension but {mean}")
    return dimension


def _at_rest(point: tuple[tuple[int, ...], ...], lattice: Lattice) -> LatticeElement:
    return LatticeElement(point, (0,) * lattice.dim, lattice.shape)


def _fixed_sites(
    point: tuple[tuple[int, ...], ...], translations: bool, lattice: Lattice, torus: Lattice
) -> FloatArray:
    """The number of fixed sites of (M, t) for every t of the torus, or for t = 0 alone."""
    moved = _at_rest(point, lattice).sites(lattice.shape)
    if not translations:
        return np.array([float((moved == np.arange(lattice.size)).sum())])
    if lattice.dim == 0:
        return np.ones(torus.size)
    start = np.indices(lattice.shape).reshape(lattice.dim, -1)
    end = np.array(np.unravel_index(moved, lattice.shape))
    gap = (start - end) % np.array(lattice.shape)[:, None]
    numbers = np.ravel_multi_index(tuple(gap), lattice.shape)
    counts = np.bincount(numbers, minlength=lattice.size).reshape(lattice.shape).astype(float)
    repeats = tuple(n // m for n, m in zip(torus.shape, lattice.shape, strict=True))
    return np.tile(counts, repeats).ravel()
