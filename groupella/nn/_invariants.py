"""What the ambient symmetry of a space permutes, and what it leaves unchanged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from groupella.bases import equivariant_basis
from groupella.groups import FeatureSpace, Lattice, Symmetry


def permutes_sites(space: FeatureSpace, signs: bool = False) -> bool:
    """Whether every ambient element permutes the sites, without signs or up to them."""
    actions = [space.action(g) for g in space.generators(space.ambient)]
    return all((a.permutation if signs else a.sites) is not None for a in actions)


def permutes_fibre_up_to_signs(space: FeatureSpace) -> bool:
    """Whether every ambient element permutes the basis of the fibre up to signs."""
    matrices = [np.abs(space.fibre_matrix(g)) for g in space.generators(space.ambient)]
    return all(np.array_equal(m, np.rint(m)) for m in matrices)


def invariant_vectors(
    space: FeatureSpace, symmetry: Symmetry | None = None
) -> npt.NDArray[np.float64]:
    """The vectors of one channel that a symmetry leaves unchanged, by default the ambient one.

    For an ambient group that permutes the sites, and for catalogue groups with translations, they
    are constant on the lattice and lie in the fibre's invariant subspace (all ones on a regular
    fibre, nothing on a non-trivial irrep). For others they are invariant vectors of fibre ⊗ sites.

    Returns
    -------
    array
        (n, fibre, *lattice), or (n, fibre, 1, …, 1) where constant on sites; largest entry 1.
    """
    scalar = FeatureSpace(Lattice(()), 1, space.ambient, "trivial")  # type: ignore[arg-type]
    target, sites = space.with_channels(1), space.lattice.shape
    if symmetry is None:
        constant = permutes_sites(space)
    else:
        constant = symmetry.is_catalogue and symmetry.translations
    if constant:
        target, sites = target.with_lattice(Lattice(())), (1,) * space.lattice.dim
    found = equivariant_basis(scalar, target, symmetry or space.ambient).tensor
    vectors = found.reshape(len(found), space.fibre_size, *sites)
    peaks = np.abs(vectors).max(axis=tuple(range(1, vectors.ndim)), initial=0.0, keepdims=True)
    return np.asarray(vectors / peaks)
