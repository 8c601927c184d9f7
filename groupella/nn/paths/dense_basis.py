"""A dense map that obeys any finite group, on small spaces.

    y(c', v') = Σ_c Σ_v W(c', c)(v', v) x(c, v),     W(c', c) = Σ_b u(c', c, b) B_b

with v over fibre × sites and B a basis of Hom_G(V_in, V_out). The shared linear map multiplies u
with the images of the input under the basis maps, at every output index v'.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.bases import Basis, equivariant_basis
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._expansion import Expansion
from groupella.nn.shared_maps import BiasMap, DenseBasisMap, SharedLinearMap, record

from ._checks import GAIN, check_input, check_spaces
from .group_conv import add_channel_bias

LARGEST_MATRIX = 2**26


class DenseBasis(nn.Module):
    """Coefficients `weight` (C', C, n_b) of a basis of equivariant maps.

    symmetry: any group contained in the ambient symmetry of the spaces
    basis: maps to take instead of the whole space, such as an increment
    paper_biases: one bias per channel, equal on fibre and sites
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        *,
        basis: Basis | None = None,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("DenseBasis", space_in, space_out)
        entries = space_in.size * space_out.size
        if entries > LARGEST_MATRIX:
            raise ValueError(
                f"DenseBasis forms the whole matrix, {space_out.size} × {space_in.size} here, more "
                f"than {LARGEST_MATRIX} entries; use GroupConv (translations) or a smaller lattice"
            )
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        if basis is None:
            basis = equivariant_basis(space_in, space_out, symmetry)
        if not basis.dim:
            raise ValueError(
                f"DenseBasis: only zero is {symmetry}-equivariant from {space_in} to {space_out}"
            )
        self.basis = Expansion(basis)
        self.weight = nn.Parameter(torch.empty(space_out.channels, space_in.channels, basis.dim))
        self.bias = nn.Parameter(torch.zeros(space_out.channels)) if paper_biases else None
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        _, c, n_b = self.weight.shape
        power = c * n_b * self.space_out.channels / self.space_out.size
        nn.init.normal_(self.weight, std=gain * power**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def matrix(self) -> Tensor:
        """The expanded matrix (space_out.size, space_in.size)."""
        c_out, c, n_b = self.weight.shape
        v_out, v = self._sizes()
        flat = self.basis(self.weight.view(-1, n_b))
        return flat.reshape(c_out, c, v_out, v).transpose(1, 2).reshape(c_out * v_out, c * v)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = F.linear(x.flatten(1), self.matrix()).view(-1, *self.space_out.shape)
        record(self, "weight", x, y)
        if self.bias is not None:
            y = add_channel_bias(y, self.bias)
            record(self, "bias", x, y)
        return y

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, _ = self.weight.shape
        basis = self.basis.tensor(self.weight)
        maps: dict[str, SharedLinearMap] = {"weight": DenseBasisMap("weight", basis, c, c_out)}
        if self.bias is not None:
            maps["bias"] = BiasMap.of_channels("bias", c_out)
        return maps

    def _sizes(self) -> tuple[int, int]:
        """V' and V, fibre × sites of one channel."""
        return (
            self.space_out.size // self.space_out.channels,
            self.space_in.size // self.space_in.channels,
        )

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}, "
            f"basis={self.weight.shape[2]}"
        )
