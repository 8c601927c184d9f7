"""From coefficients of a basis to maps, vec(W) = Bᵀu, differentiably.

By one matrix product with the dense basis; where that is large and its maps have disjoint supports
(a group that permutes), by one gather instead: every entry of W is one coefficient times a number.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from groupella.bases import Basis
from groupella.nn._constant import Constant

LARGEST_PRODUCT = 2**22
ROUND_OFF = 1e-14


class Expansion:
    """The linear map u ↦ W of a basis, in the precision of u; the basis stays in float64."""

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.shape = (basis.dim, *basis.shape)
        self._labels: Tensor | None = None
        gather = basis.gather if basis.dim * basis.size > LARGEST_PRODUCT else None
        if gather is None:
            numbers = basis.tensor.reshape(basis.dim, -1)
            # Round-off, of which float32 would make subnormal numbers: products ten times slower.
            self._numbers = Constant(np.where(np.abs(numbers) < ROUND_OFF, 0.0, numbers))
        else:
            self._labels = torch.from_numpy(np.array(gather[0], dtype=np.int64).ravel())
            self._numbers = Constant(gather[1].ravel())

    def __call__(self, u: Tensor) -> Tensor:
        """(k, dim) to (k, entries of a map)."""
        numbers = self._numbers.like(u)
        if self._labels is None:
            return u @ numbers
        columns = u.mT.index_select(0, self._labels.to(u.device)) * numbers.unsqueeze(1)
        return columns.mT

    def tensor(self, like: Tensor) -> Tensor:
        """The basis maps (dim, *shape), dense."""
        if self._labels is None:
            return self._numbers.like(like).view(self.shape)
        return Constant(self.basis.tensor).like(like)
