"""Random elements of a group."""

from __future__ import annotations

import numpy as np

from ._elements import Element, LatticeElement
from ._generators import random_products
from ._lattice import Lattice
from ._symmetry import Symmetry

__all__ = ["sample_elements"]


def sample_elements(symmetry: Symmetry, lattice: Lattice, n: int, seed: int) -> tuple[Element, ...]:
    """n elements: uniform for catalogue symmetries, long random products for generated ones."""
    lattice = symmetry.check_lattice(lattice)
    rng = np.random.default_rng(seed)
    if not symmetry.is_catalogue:
        return tuple(random_products(symmetry.site_generators, n, rng))
    points = symmetry.point_in(lattice.dim)
    chosen = rng.integers(len(points), size=n)
    high = lattice.shape if symmetry.translations else (1,) * lattice.dim
    shifts = rng.integers(0, high, size=(n, lattice.dim))
    return tuple(
        LatticeElement(points[k], tuple(int(t) for t in shift), lattice.shape)
        for k, shift in zip(chosen, shifts, strict=True)
    )
