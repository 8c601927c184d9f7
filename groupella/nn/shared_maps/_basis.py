"""Maps in basis form, W = Σ_b u(c′, c, b) B_b: positions are the outputs of one channel.

For a group convolution with basis B (n_b, F′, F, *k), the input of u at site p and fibre element f′
is the vector over (c, b) of Σ_{f,δ} B[b, f′, f, δ] x[(c, f), p+δ]; the output is the channel vector
there. The inputs are never formed: A = Σ_f′ B_f′ M B_f′ᵀ with M the covariance of plain patches.
A dense basis (n_b, V′, V) is the same without sites: one patch, the whole input, and F′ = V′.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from ._conv import ConvMap

LARGEST_INPUT = 4096
_BUDGET = 1 << 24


class FactorTooLargeError(ValueError):
    """A Kronecker factor of the curvature would have too many rows."""


@dataclass(frozen=True, eq=False)
class BasisMap:
    """Coefficients u (C′, C / groups, n_b) of a basis of kernels, or of matrices.

    Parameters
    ----------
    weight
        The name of the parameter.
    basis
        (n_b, F′, F, *kernel) for circular convolutions x (N, C·F, *sites) → y (N, C′·F′, *sites),
        or (n_b, V′, V) for matrices x (N, C·V, …) → y (N, C′·V′, …), V counting fibre × sites in
        memory order. It may depend on hyperparameters, as in S-CONV (F = F′ = 1); then make the map
        in every forward pass.
    in_channels, out_channels
        C and C′.
    sites
        The shape of the torus; `()` for matrices.
    groups
        Divide the channels into that many blocks that do not mix: C for a depthwise convolution.
    padding
        "circular", or "zeros" around the sites instead of a torus.

    Raises
    ------
    FactorTooLargeError
        If the input factor would have more than 4096 rows.
    """

    weight: str
    basis: Tensor
    in_channels: int
    out_channels: int
    sites: tuple[int, ...] = ()
    groups: int = 1
    padding: str = "circular"

    def __post_init__(self) -> None:
        rows = self.in_channels // self.groups * self.basis.shape[0]
        if rows > LARGEST_INPUT:
            advice = (
                "Build the layer with increments=False, which turns the free convolution into a "
                "plain one with smaller factors"
                if self.sites
                else "Give fewer channels, or the path TIED, whose filters have a small support"
            )
            raise FactorTooLargeError(
                f"the curvature of {self.weight!r} would have a factor of {rows:,} rows (channels "
                f"× basis elements), more than {LARGEST_INPUT:,}. {advice}"
            )

    @cached_property
    def _patches(self) -> ConvMap:
        _, fibre_out, fibre, *kernel = self.basis.shape
        c, c_out = self.in_channels * fibre, self.out_channels * fibre_out
        return ConvMap.same(self.weight, c, c_out, self.sites, kernel, self.padding, self.groups)

    @property
    def positions(self) -> int:
        return self.basis.shape[1] * prod(self.sites)

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(self.groups, self.out_channels // self.groups, -1)

    def inputs(self, x: Tensor) -> Tensor:
        flat = self.basis.flatten(2)
        n_b, fibre, i = flat.shape
        n, c = x.shape[0], self.in_channels // self.groups
        patches = self._patches.inputs(x).reshape(n, self.groups, -1, c, i)
        z = (patches @ flat.reshape(n_b * fibre, i).mT).reshape(n, self.groups, -1, c, n_b, fibre)
        return z.permute(0, 1, 5, 2, 3, 4).reshape(n, self.groups, self.positions, c * n_b)

    def outputs(self, g: Tensor) -> Tensor:
        return g.reshape(g.shape[0], self.groups, -1, self.positions).mT

    def input_gram(self, x: Tensor) -> Tensor:
        """A[(c,b),(d,e)] = Σ_f Σ_ij B[b,f,i] M[c,i,d,j] B[e,f,j] in every group.

        The sum over f runs in chunks that keep the intermediate within a fixed budget.
        """
        basis = self.basis.flatten(2)
        n_b, fibre, i = basis.shape
        groups, c = self.groups, self.in_channels // self.groups
        moments = self._patches.input_gram(x).reshape(groups * c * i * c, i)
        chunk = max(1, min(fibre, _BUDGET // max(1, len(moments) * n_b)))
        total: Tensor | None = None
        for b in torch.split(basis, chunk, 1):
            f = b.shape[1]
            right = (moments @ b.reshape(n_b * f, i).mT).reshape(groups, c, i, c, n_b, f)
            right = right.permute(2, 5, 0, 1, 3, 4).reshape(i * f, -1)
            part = b.permute(0, 2, 1).reshape(n_b, i * f) @ right
            total = part if total is None else total + part
        assert total is not None
        gram = total.reshape(n_b, groups, c, c, n_b).permute(1, 2, 0, 3, 4)
        return gram.reshape(groups, c * n_b, c * n_b)

    def output_gram(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], self.groups, -1, self.positions)
        return (z @ z.mT).sum(0)
