"""The shared linear map of a convolution in basis form that keeps channels apart.

y(c, f', p) = Σ_b u(c, b) Σ_{f,δ} B_b(f', f, δ) x(c, f, p + δ): a block n_b → 1 for every channel,
at F'·P positions. As for `BasisConvMap` the inputs are never formed, A_c = Σ_f' B_f' M_c B_f'ᵀ
with M_c the patch covariance of the channel.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from groupella.nn.shared_maps import ConvMap


@dataclass(frozen=True, eq=False)
class DepthwiseBasisMap:
    """x (N, C·F, *sites) → y (N, C·F', *sites); basis (n_b, F', F, *kernel), parameter (C, n_b)."""

    weight: str
    basis: Tensor
    channels: int
    sites: tuple[int, ...]
    patches: ConvMap = field(init=False)

    def __post_init__(self) -> None:
        _, f_out, f, *kernel = self.basis.shape
        c = self.channels
        patches = ConvMap.circular(self.weight, c * f, c * f_out, self.sites, kernel, groups=c)
        object.__setattr__(self, "patches", patches)

    @property
    def positions(self) -> int:
        return self.basis.shape[1] * prod(self.sites)

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(self.channels, 1, self.basis.shape[0])

    def inputs(self, x: Tensor) -> Tensor:
        z = torch.einsum("ncpi,bfi->ncfpb", self.patches.inputs(x), self.basis.flatten(2))
        return z.flatten(2, 3)

    def outputs(self, g: Tensor) -> Tensor:
        return g.reshape(g.shape[0], self.channels, self.positions, 1)

    def input_gram(self, x: Tensor) -> Tensor:
        basis = self.basis.flatten(2).transpose(0, 1)
        moments = self.patches.input_gram(x).unsqueeze(1)
        return (basis @ moments @ basis.mT).sum(1)

    def output_gram(self, g: Tensor) -> Tensor:
        return self.outputs(g).square().sum((0, 2)).unsqueeze(2)
