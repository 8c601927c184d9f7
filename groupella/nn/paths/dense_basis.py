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
from groupella.nn.shared_maps import BasisMap, SharedLinearMap, record

from ._common import GAIN, add_bias, check_input, check_spaces, draw, maps, new_bias

LARGEST_MATRIX = 2**26


class DenseBasis(nn.Module):
    """Coefficients `weight` (C', C, n_b) of a basis of equivariant maps (Finzi et al. 2021).

    Parameters
    ----------
    space_in, space_out
        Features of one group set, on any two lattices.
    symmetry
        Any group contained in the ambient symmetry of the spaces.
    basis
        Maps to use instead of the whole equivariant space, such as an increment.
    paper_biases
        Add one bias per channel, equal on fibre and sites.

    Raises
    ------
    ValueError
        If the matrix would have more than 2²⁶ entries, or if only zero is equivariant.
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
        if space_in.size * space_out.size > LARGEST_MATRIX:
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
        self.bias = new_bias(space_out.channels, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        _, c, n_b = self.weight.shape
        power = c * n_b * self.space_out.channels / self.space_out.size
        draw(self.weight, gain * power**-0.5, self.bias)

    def matrix(self) -> Tensor:
        """The expanded matrix (space_out.size, space_in.size)."""
        c_out, c, n_b = self.weight.shape
        flat = self.basis(self.weight.view(-1, n_b))
        blocks = flat.reshape(c_out, c, self.space_out.size // c_out, self.space_in.size // c)
        return blocks.transpose(1, 2).reshape(self.space_out.size, self.space_in.size)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = F.linear(x.flatten(1), self.matrix()).view(-1, *self.space_out.shape)
        record(self, "weight", x, y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, _ = self.weight.shape
        return maps(BasisMap("weight", self.basis.tensor(self.weight), c, c_out), self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}, "
            f"basis={self.weight.shape[2]}"
        )
