"""The shared linear map of a bias that is invariant under every member of a group set.

y(c', f', p) += Σ_i b(c', i) v_i(f', p) with v the invariant vectors of the output. One position,
input 1, and the output gradient contracted with v: an exact block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class InvariantBiasMap:
    """`vectors` (n, F', *lattice), sides of 1 where constant; parameter (channels, n)."""

    weight: str
    vectors: Tensor
    channels: int
    positions: int = 1

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, weight.numel(), 1)

    def inputs(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[0], 1, 1, 1)

    def outputs(self, g: Tensor) -> Tensor:
        fibre = self.vectors.shape[1]
        sites = self.vectors[0, 0].numel()
        z = g.reshape(g.shape[0], self.channels, fibre, -1)
        if sites == 1:
            z = z.sum(3, keepdim=True)
        z = torch.einsum("ncfp,vfp->ncv", z, self.vectors.reshape(-1, fibre, sites))
        return z.reshape(g.shape[0], 1, 1, -1)

    def input_gram(self, x: Tensor) -> Tensor:
        return x.new_full((1, 1, 1), float(x.shape[0]))

    def output_gram(self, g: Tensor) -> Tensor:
        z = self.outputs(g).flatten(1)
        return (z.mT @ z).unsqueeze(0)
