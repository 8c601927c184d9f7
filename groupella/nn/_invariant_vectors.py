"""Vectors of one channel that the ambient symmetry leaves alone: what a bias may add.

For groups that permute the sites they are constant on the lattice and lie in the fibre's invariant
subspace (all ones on a regular fibre, nothing on a non-trivial irrep). For generators that do
anything else to the sites they are invariant vectors of fibre ⊗ sites.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from groupella.bases import equivariant_basis
from groupella.groups import FeatureSpace, Lattice


def permutes_sites(space: FeatureSpace) -> bool:
    """Whether every ambient element permutes the sites, without signs."""
    return all(space.action(g).sites is not None for g in space.generators(space.ambient))


def invariant_vectors(space: FeatureSpace) -> npt.NDArray[np.float64]:
    """(n, fibre, *lattice) or, where constant on sites, (n, fibre, 1, …, 1); largest entry 1."""
    scalar = FeatureSpace(Lattice(()), 1, space.ambient, "trivial")  # type: ignore[arg-type]
    if permutes_sites(space):
        sites: tuple[int, ...] = (1,) * space.lattice.dim
        target = space.with_lattice(Lattice(()))
    else:
        sites = space.lattice.shape
        target = space
    found = equivariant_basis(scalar, target, space.ambient).tensor
    vectors = found.reshape(len(found), space.fibre_size, *sites)
    peaks = np.abs(vectors).max(axis=tuple(range(1, vectors.ndim)), initial=0.0, keepdims=True)
    scaled: npt.NDArray[np.float64] = vectors / peaks
    return scaled
