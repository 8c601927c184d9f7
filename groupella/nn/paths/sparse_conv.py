"""S-CONV: a circular convolution whose filters are sums of anchor functions.

    y(c', p) = Σ_c Σ_δ s(c', c, δ) x(c, p + δ)
    s(c', c, δ) = Σ_j u(c', c, j) exp(−ω² |δ − z_j|²)

Channels × fibre count as channels. The shared linear map multiplies u with the input filtered by
each anchor function; ω is a parameter with a tangent filter ∂s/∂ω of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace
from groupella.nn.shared_maps import (
    BasisConvMap,
    BiasMap,
    SharedLinearMap,
    TangentMap,
    record,
    recording,
)

from ._anchors import Grid, new_omega
from ._checks import GAIN, check_input, check_same_lattice, check_spaces, kernel_shape
from .conv import all_translations, torus_conv


class SparseConv(nn.Module):
    """Anchor values `weight` (C'·F', C·F, M), M = ⌈k^d / 2⌉, and a lengthscale `omega`.

    learn_positions: make the anchor `positions` (M, d) a parameter. They have no curvature of their
        own: a hyperparameter, learned through the evidence's factors.
    paper_biases: one bias per channel (and fibre component), as in the published code.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        kernel_size: int | Sequence[int] = 3,
        *,
        omega: float = 1.0,
        learn_positions: bool = False,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("SparseConv", space_in, space_out)
        check_same_lattice("SparseConv", space_in, space_out)
        if not space_in.lattice.dim:
            raise ValueError("SparseConv needs a lattice with at least one axis, got ()")
        self.space_in, self.space_out = space_in, space_out
        self.symmetry = all_translations(space_in)
        self.kernel = kernel_shape("SparseConv", kernel_size, space_in.lattice.dim)
        self.grid = Grid(self.kernel)
        self.weight = nn.Parameter(
            torch.empty(space_out.shape[0], space_in.shape[0], self.grid.count)
        )
        self.omega = new_omega(omega)
        self.positions = self.grid.positions(learn_positions)
        self.hyperparameters = {"omega": "lengthscale", "positions": "position"}
        self.bias = nn.Parameter(torch.zeros(space_out.shape[0])) if paper_biases else None
        self.reset_parameters()

    def functions(self) -> Tensor:
        """φ, (window points, M)."""
        return self.grid.functions(self.omega, self.positions)

    def reset_parameters(self, gain: float = GAIN) -> None:
        if self.weight.is_meta:
            return
        with torch.no_grad():
            power = float(self.functions().square().sum())
        nn.init.normal_(self.weight, std=gain * (self.weight.shape[1] * power) ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filter(self) -> Tensor:
        """The expanded filter (C'·F', C·F, *window)."""
        return self._filter(self.functions())

    def filter_bias(self) -> Tensor | None:
        return self.bias

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = torus_conv(x, self.filter())
        record(self, "weight", x, y)
        if recording():
            tangents = self.grid.tangents(self.omega, self.positions)
            slope = torus_conv(x, self._filter(tangents))
            record(self, "omega", x, y, TangentMap("omega", slope.unsqueeze(1)))
        if self.bias is not None:
            y = y + self.bias.view(-1, *[1] * (x.dim() - 2))
            record(self, "bias", x, y)
        return y

    def _filter(self, functions: Tensor) -> Tensor:
        return (self.weight @ functions.mT).view(*self.weight.shape[:2], *self.kernel)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c = self.weight.shape[:2]
        basis = self.functions().mT.reshape(-1, 1, 1, *self.kernel)
        maps: dict[str, SharedLinearMap] = {
            "weight": BasisConvMap("weight", basis, c, c_out, self.space_in.lattice.shape)
        }
        if self.bias is not None:
            maps["bias"] = BiasMap.of_channels("bias", c_out)
        return maps

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, kernel_size={self.kernel}, "
            f"anchors={self.grid.count}"
        )
