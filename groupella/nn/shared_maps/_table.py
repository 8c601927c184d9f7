"""Rows of a table, as in `nn.Embedding`: y[n, s] = U[index[n, s]].

The gradient of row v for one sample is the sum of the output gradients where the index is v. Only
the rows that a sample uses are formed, so a large table costs no more than its use. The curvature
is exact for each row (or its diagonal, where rows are too many); that between rows is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class TableMap:
    """A table `weight` (rows, width), looked up by `index` (N, *S) in one forward pass.

    `is_diagonal` keeps only the diagonal of the curvature. Positions with the index `padding` get
    no gradient. The input x is any tensor of floats with N samples, such as the output.
    """

    weight: str
    index: Tensor
    rows: int
    width: int
    is_diagonal: bool = False
    padding: int | None = None
    positions: int = 1

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(-1, 1 if self.is_diagonal else self.width, 1)

    def inputs(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[0], 1, 1, 1)

    def outputs(self, g: Tensor) -> Tensor:
        n = len(g)
        owners, sums = self._sums(g)
        dense = g.new_zeros(n * self.rows, self.width).index_copy(0, owners, sums)
        return dense.reshape(n, -1, 1, 1 if self.is_diagonal else self.width)

    def input_gram(self, x: Tensor) -> Tensor:
        return x.new_full((1, 1, 1), float(x.shape[0]))

    def output_gram(self, g: Tensor) -> Tensor:
        owners, sums = self._sums(g)
        row = owners % self.rows
        if self.is_diagonal:
            squares = g.new_zeros(self.rows, self.width).index_add(0, row, sums.square())
            return squares.reshape(-1, 1, 1)
        total = g.new_zeros(self.rows, self.width, self.width)
        step = max(1, _AT_ONCE // self.width**2)
        for start in range(0, len(row), step):
            z = sums[start : start + step]
            total = total.index_add(0, row[start : start + step], z[:, :, None] * z[:, None, :])
        return total

    def _sums(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of g over equal indices of a sample: sample·rows + index (U,), sums (U, width)."""
        n = len(g)
        flat = self.index.reshape(n, -1)
        owner = torch.arange(n, device=flat.device)[:, None] * self.rows + flat
        owners, which = torch.unique(owner, return_inverse=True)
        values = g.reshape(-1, self.width)
        if self.padding is not None:
            values = values * (flat.flatten() != self.padding)[:, None]
        return owners, g.new_zeros(len(owners), self.width).index_add(0, which.flatten(), values)
