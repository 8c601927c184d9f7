"""What one group element does to one channel: an orthogonal map of fibre ⊗ sites.

Index order is (fibre, *lattice), flattened: component f at site s is number f·P + s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ._elements import signed_permutation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Action:
    """fibre ⊗ sites.

    ``permutation``: site s moves to ``permutation[s]``, and is multiplied by ``site_signs[s]``
    (``None``: all +1). ``matrix_on_sites``: a site map that is no signed permutation.
    """

    fibre: FloatArray
    permutation: IntArray | None
    site_signs: FloatArray | None
    matrix_on_sites: FloatArray | None

    @property
    def sites(self) -> IntArray | None:
        """Site s moves to ``sites[s]``; ``None`` where the site map is no plain permutation."""
        return None if self.site_signs is not None else self.permutation

    @property
    def n_sites(self) -> int:
        if self.permutation is not None:
            return len(self.permutation)
        assert self.matrix_on_sites is not None
        return len(self.matrix_on_sites)

    @property
    def size(self) -> int:
        return self.n_sites * len(self.fibre)

    @property
    def site_matrix(self) -> FloatArray:
        """The P × P orthogonal matrix on the sites."""
        if self.matrix_on_sites is not None:
            return self.matrix_on_sites
        assert self.permutation is not None
        dense = np.zeros((self.n_sites,) * 2)
        dense[self.permutation, np.arange(self.n_sites)] = (
            1.0 if self.site_signs is None else self.site_signs
        )
        return dense

    def signed(self) -> tuple[IntArray, FloatArray] | None:
        """(p, ε) with e_i ↦ ε_i e_p[i]; ``None`` when the action is no signed permutation."""
        fibre = signed_permutation(self.fibre)
        if fibre is None or self.permutation is None:
            return None
        images, signs = fibre
        n = self.n_sites
        on_sites = np.ones(n) if self.site_signs is None else self.site_signs
        moved = (images[:, None] * n + self.permutation[None, :]).ravel()
        return moved, (signs[:, None] * on_sites[None, :]).ravel()

    def matrix(self) -> scipy.sparse.csr_array:
        """The sparse (F·P) × (F·P) orthogonal matrix."""
        if self.permutation is not None:
            n = self.n_sites
            values = np.ones(n) if self.site_signs is None else self.site_signs
            entries = (values, (self.permutation, np.arange(n)))
            on_sites = scipy.sparse.csr_array(entries, shape=(n, n))
        else:
            on_sites = scipy.sparse.csr_array(self.site_matrix)
        return scipy.sparse.csr_array(scipy.sparse.kron(self.fibre, on_sites))

    def trace(self) -> float:
        """The character: (signed) fixed sites × trace of the fibre map."""
        if self.permutation is not None:
            fixed = self.permutation == np.arange(self.n_sites)
            signs = fixed if self.site_signs is None else self.site_signs[fixed]
            on_sites = float(signs.sum())
        else:
            on_sites = float(np.trace(self.site_matrix))
        return on_sites * float(np.trace(self.fibre))
