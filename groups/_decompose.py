"""A representation taken apart: ρ(g) = Q (⊕ ψ_i(g)) Qᵀ, irreps ψ_i and Q orthogonal.

Averaging ρ(g) A ψ(g)ᵀ over the group turns any A into an intertwiner T from ψ to ρ. TᵀT is
symmetric and commutes with ψ, hence a multiple of the identity: T over its scale is a block of
columns of Q. The next block starts from an A that is orthogonal to the images found so far.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["decompose"]

FloatArray = NDArray[np.float64]


def decompose(matrices: FloatArray, irreps: Sequence[FloatArray]) -> tuple[list[int], FloatArray]:
    """(which irreps, Q) for ρ(g_k) = ``matrices[k]`` and ψ_i(g_k) = ``irreps[i][k]``."""
    size = matrices.shape[1]
    rng = np.random.default_rng(0)
    chosen: list[int] = []
    columns = np.zeros((size, 0))
    for i, irrep in enumerate(irreps):
        traces = np.trace(irrep, axis1=1, axis2=2)
        overlap = float(np.mean(traces * np.trace(matrices, axis1=1, axis2=2)))
        multiplicity = round(overlap / float(np.mean(traces**2)))
        for _ in range(multiplicity):
            start = rng.standard_normal((size, irrep.shape[1]))
            start -= columns @ (columns.T @ start)
            block = np.einsum("gij,jk,glk->il", matrices, start, irrep, optimize=True)
            block -= columns @ (columns.T @ block)
            scale = np.sqrt(np.sum(block**2) / irrep.shape[1])
            columns = np.concatenate([columns, block / scale], axis=1)
            chosen.append(i)
    return chosen, columns
