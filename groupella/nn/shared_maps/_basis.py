"""Maps in basis form, W = Σ_b u(c′, c, b) B_b: positions are the outputs of one channel.

For a group convolution with basis B (n_b, F′, F, *k), the input of u at site p and fibre element f′
is the vector over (c, b) of Σ_{f,δ} B[b, f′, f, δ] x[(c, f), p+δ]; the output is the channel vector
there. The inputs are never formed: A = Σ_f′ B_f′ M B_f′ᵀ with M the covariance of plain patches.
A dense basis (n_b, V′, V) is the same with one patch, the whole input, and F′ = V′.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from torch import Tensor

from ._conv import ConvMap
from ._grams import row_gram

LARGEST_INPUT = 4096
_BUDGET = 1 << 24


def _check_size(name: str, d_in: int) -> None:
    if d_in > LARGEST_INPUT:
        raise ValueError(
            f"{name}: the input factor would have {d_in} rows (channels × basis elements), more "
            f"than {LARGEST_INPUT}. Build the layer with increments=False, which turns the free "
            "convolution into a plain one with smaller factors."
        )


def contract_basis(moments: Tensor, basis: Tensor) -> Tensor:
    """A[(c,b),(d,e)] = Σ_f Σ_ij B[b,f,i] M[c,i,d,j] B[e,f,j].

    moments (C, I, C, I) and basis (n_b, F, I) give (C·n_b, C·n_b). The sum over f runs in chunks
    that keep the intermediate within a fixed budget.
    """
    c, i = moments.shape[:2]
    n_b, fibre, _ = basis.shape
    chunk = max(1, min(fibre, _BUDGET // max(1, c * c * i * n_b)))
    flat = moments.reshape(c * i * c, i)
    total: Tensor | None = None
    for start in range(0, fibre, chunk):
        b = basis[:, start : start + chunk]
        f = b.shape[1]
        right = (flat @ b.reshape(n_b * f, i).mT).reshape(c, i, c, n_b, f)
        right = right.permute(1, 4, 0, 2, 3).reshape(i * f, c * c * n_b)
        left = b.permute(0, 2, 1).reshape(n_b, i * f)
        part = left @ right
        total = part if total is None else total + part
    assert total is not None
    return total.reshape(n_b, c, c, n_b).permute(1, 0, 2, 3).reshape(c * n_b, c * n_b)


@dataclass(frozen=True, eq=False)
class BasisConvMap:
    """Group convolution in basis form on a torus: x (N, C·F, *sites) → y (N, C′·F′, *sites).

    basis (n_b, F′, F, *kernel), parameter (C′, C, n_b). The basis may depend on hyperparameters,
    as in S-CONV (F = F′ = 1); then make the map anew in each forward pass.
    """

    weight: str
    basis: Tensor
    in_channels: int
    out_channels: int
    sites: tuple[int, ...]
    patches: ConvMap = field(init=False)

    def __post_init__(self) -> None:
        n_b, fibre_out, fibre_in, *kernel = self.basis.shape
        _check_size("BasisConvMap", self.in_channels * n_b)
        object.__setattr__(
            self,
            "patches",
            ConvMap.circular(
                self.weight,
                self.in_channels * fibre_in,
                self.out_channels * fibre_out,
                self.sites,
                kernel,
            ),
        )

    @property
    def positions(self) -> int:
        return self.basis.shape[1] * prod(self.sites)

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, self.out_channels, self.in_channels * self.basis.shape[0])

    def inputs(self, x: Tensor) -> Tensor:
        flat = self.basis.flatten(2)
        n_b, fibre, i = flat.shape
        patches = self.patches.inputs(x).reshape(x.shape[0], -1, self.in_channels, i)
        z = patches @ flat.reshape(n_b * fibre, i).mT
        z = z.reshape(x.shape[0], -1, self.in_channels, n_b, fibre)
        return z.permute(0, 4, 1, 2, 3).reshape(x.shape[0], 1, self.positions, -1)

    def outputs(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], 1, self.out_channels, self.positions)
        return z.mT

    def input_gram(self, x: Tensor) -> Tensor:
        flat = self.basis.flatten(2)
        c, i = self.in_channels, flat.shape[2]
        moments = self.patches.input_gram(x).reshape(c, i, c, i)
        return contract_basis(moments, flat).unsqueeze(0)

    def output_gram(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], self.out_channels, self.positions)
        return (z @ z.mT).sum(0, keepdim=True)


@dataclass(frozen=True, eq=False)
class DenseBasisMap:
    """A dense equivariant map in basis form: x (N, C·V, …) → y (N, C′·V′, …), S = V′.

    basis (n_b, V′, V), parameter (C′, C, n_b); V counts fibre × sites in memory order.
    """

    weight: str
    basis: Tensor
    in_channels: int
    out_channels: int

    def __post_init__(self) -> None:
        _check_size("DenseBasisMap", self.in_channels * self.basis.shape[0])

    @property
    def positions(self) -> int:
        return self.basis.shape[1]

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, self.out_channels, self.in_channels * self.basis.shape[0])

    def inputs(self, x: Tensor) -> Tensor:
        n_b, v_out, v_in = self.basis.shape
        z = x.reshape(-1, v_in) @ self.basis.reshape(n_b * v_out, v_in).mT
        z = z.reshape(x.shape[0], self.in_channels, n_b, v_out)
        return z.permute(0, 3, 1, 2).reshape(x.shape[0], 1, v_out, -1)

    def outputs(self, g: Tensor) -> Tensor:
        return g.reshape(g.shape[0], 1, self.out_channels, self.positions).mT

    def input_gram(self, x: Tensor) -> Tensor:
        c, i = self.in_channels, self.basis.shape[2]
        moments = row_gram(x.reshape(x.shape[0], -1)).reshape(c, i, c, i)
        return contract_basis(moments, self.basis).unsqueeze(0)

    def output_gram(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], self.out_channels, self.positions)
        return (z @ z.mT).sum(0, keepdim=True)
