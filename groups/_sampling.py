"""Random elements of a group."""

from __future__ import annotations

import numpy as np

from ._elements import Element, LatticeElement, SiteElement
from ._lattice import Lattice
from ._symmetry import Symmetry

__all__ = ["sample_elements"]


def sample_elements(
    symmetry: Symmetry, lattice: Lattice, n: int, seed: int
) -> tuple[Element, ...]:
    """n elements: uniform for catalogue symmetries, product replacement for generated ones."""
    lattice = symmetry.check_lattice(lattice)
    rng = np.random.default_rng(seed)
    if not symmetry.is_catalogue:
        return tuple(_product_replacement(symmetry.site_generators, n, rng))
    points = symmetry.point_in(lattice.dim)
    chosen = rng.integers(len(points), size=n)
    high = lattice.shape if symmetry.translations else (1,) * lattice.dim
    shifts = rng.integers(0, high, size=(n, lattice.dim))
    return tuple(
        LatticeElement(points[k], tuple(int(t) for t in shift), lattice.shape)
        for k, shift in zip(chosen, shifts, strict=True)
    )


def _product_replacement(
    generators: tuple[SiteElement, ...], n: int, rng: np.random.Generator
) -> list[SiteElement]:
    """The product replacement algorithm (Celler et al. 1995) with an accumulator ("rattle")."""
    slots = [generators[k % len(generators)] for k in range(max(8, len(generators)))]
    accumulator = generators[0].identity_like()
    drawn = []
    for step in range(60 + n):
        i, j = rng.choice(len(slots), size=2, replace=False)
        factor = slots[j] if rng.random() < 0.5 else slots[j].inverse()
        slots[i] = slots[i] * factor if rng.random() < 0.5 else factor * slots[i]
        accumulator = accumulator * slots[i]
        if step >= 60:
            drawn.append(accumulator)
    return drawn
