"""`y = x Uᵀ` along the last axis; all axes between batch and features are positions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._grams import row_gram


@dataclass(frozen=True)
class LinearMap:
    """A dense matrix: x (N, *S, D_in) → y (N, *S, D_out). `positions` is the product of S.

    With S = 1 everything but the batch is one feature vector, which is the FC path:
    x (N, C, *sites) → y (N, C′, *sites′).
    """

    weight: str
    d_in: int
    d_out: int
    positions: int = 1

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, self.d_out, self.d_in)

    def inputs(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], 1, self.positions, self.d_in)

    def outputs(self, g: Tensor) -> Tensor:
        return g.reshape(g.shape[0], 1, self.positions, self.d_out)

    def input_rows(self, x: Tensor) -> Tensor | None:
        """(1, N, D_in): the inputs themselves, where a sample has one."""
        return x.reshape(1, x.shape[0], self.d_in) if self.positions == 1 else None

    def input_gram(self, x: Tensor) -> Tensor:
        return row_gram(self.inputs(x)).unsqueeze(0)

    def output_gram(self, g: Tensor) -> Tensor:
        return row_gram(self.outputs(g)).unsqueeze(0)
