"""GCONV: a convolution that also obeys the point group K of a symmetry, on any fibre.

    W(c', c) = Σ_b u(c', c, b) B_b,     B a basis of the K-equivariant kernels (F', F, *window)
    y(c', f', p) = Σ_c Σ_f Σ_δ W(c', c)(f', f, δ) x(c, f, p + δ)

The filter is expanded by one matrix product u B and applied by one circular convolution. The
shared linear map multiplies u with the input filtered by every basis kernel, at every site and
output fibre element; curvature never forms those inputs.

Pointwise in the fibre (the paper's proposal): only kernels that are diagonal in the fibre, f' = f,
so that a filter is moved by the group but never mixes fibre elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from groupella.bases import KernelBasis, Padding, kernel_basis
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._expansion import Expansion
from groupella.nn.shared_maps import BasisMap, SharedLinearMap, record

from ._common import (
    GAIN,
    add_bias,
    check_convolution,
    check_input,
    check_padding,
    draw,
    maps,
    new_bias,
)
from .conv import padded_conv


class GroupConv(nn.Module):
    """Coefficients `weight` (C', C, n_b) of a basis of equivariant kernels.

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    symmetry
        Translations ⋊ a point group, contained in the ambient symmetry of the spaces.
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    pointwise
        Use only kernels that are diagonal in the fibre. The fibres must be equal, and permuted (up
        to signs) by the point group.
    basis
        A kernel basis to use instead of the whole equivariant space, such as an increment.
    paper_biases
        Add one bias per channel, equal on the fibre, as the published code does.
    padding
        "circular" or "zeros". With zeros around the image the path commutes with the point group as
        before, and with shifts only as far as nothing meets the border.

    Raises
    ------
    ValueError
        If the symmetry lacks the translations, or if only zero is equivariant.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int] = 3,
        *,
        pointwise: bool = False,
        basis: KernelBasis | None = None,
        padding: Padding = "circular",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        window = check_convolution("GroupConv", space_in, space_out, kernel_size, symmetry)
        self.padding = check_padding("GroupConv", padding)
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        if basis is None:
            basis = kernel_basis(space_in, space_out, symmetry, window)
        if pointwise:
            basis = diagonal_kernels(space_in, space_out, symmetry, basis)
        if not basis.dim:
            raise ValueError(
                f"GroupConv: only zero is {symmetry}-equivariant from {space_in.fibre} to "
                f"{space_out.fibre} with kernels of size {window}; take another fibre"
            )
        self.basis = Expansion(basis)
        self.weight = nn.Parameter(torch.empty(space_out.channels, space_in.channels, basis.dim))
        self.bias = new_bias(space_out.channels, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        _, c, n_b = self.weight.shape
        power = c * n_b / self.space_out.fibre_size
        draw(self.weight, gain * power**-0.5, self.bias)

    def filter(self) -> Tensor:
        """The expanded filter (C'·F', C·F, *window)."""
        c_out, c, n_b = self.weight.shape
        _, f_out, f, *window = self.basis.shape
        flat = self.basis(self.weight.view(-1, n_b))
        blocks = flat.reshape(c_out, c, f_out, f, *window).transpose(1, 2)
        return blocks.reshape(c_out * f_out, c * f, *window)

    def filter_bias(self) -> Tensor | None:
        """The bias of every channel on its fibre, (C'·F',)."""
        if self.bias is None:
            return None
        return self.bias.repeat_interleave(self.space_out.fibre_size)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = padded_conv(x, self.filter(), self.padding)
        record(self, "weight", x, y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, _ = self.weight.shape
        basis = self.basis.tensor(self.weight)
        sites = self.space_in.lattice.shape
        return maps(BasisMap("weight", basis, c, c_out, sites, padding=self.padding), self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}, "
            f"kernel_size={self.basis.shape[3:]}, basis={self.basis.shape[0]}"
            + (f", padding={self.padding!r}" if self.padding != "circular" else "")
        )


def diagonal_kernels(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    basis: KernelBasis,
) -> KernelBasis:
    """The basis kernels that are zero off the fibre's diagonal.

    Where the group permutes the fibre up to signs, a pair (f, f) moves to a pair of that kind, so
    every orbit of entries lies on the diagonal or off it and nothing is lost by the selection.
    """
    if space_in.fibre != space_out.fibre:
        raise ValueError(
            "a filter that is pointwise in the fibre needs equal fibres, got "
            f"{space_in.fibre} and {space_out.fibre}; Lift the input first, or use the full one"
        )
    for g in space_in.generators(symmetry):
        entries = np.abs(space_in.fibre_matrix(g))
        if not np.allclose(entries, np.rint(entries)):
            raise ValueError(
                f"a filter that is pointwise in the fibre needs one that {symmetry} permutes (up "
                f"to signs), and {space_in.fibre} is not; use the full group convolution"
            )
    off = ~np.eye(space_in.fibre_size, dtype=bool).ravel()
    entries = np.repeat(off, basis.size // len(off)).astype(np.float64)
    kept = np.asarray(abs(basis.matrix) @ entries) < 1e-12
    return KernelBasis(basis.shape, basis.matrix[kept], "diagonal", basis.strictness)
