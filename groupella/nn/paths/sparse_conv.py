"""S-CONV: a circular convolution whose filters are sums of anchor functions.

    y(c', p) = Σ_c Σ_δ s(c', c, δ) x(c, p + δ)
    s(c', c, δ) = Σ_j u(c', c, j) φ_j(δ),     φ_j(δ) = exp(−ω² |δ − z_j|²)

with values u, positions z and a lengthscale ω (in units of one site). Channels × fibre count as
channels. The shared linear map multiplies u with the input filtered by each anchor function; ω is a
parameter with a tangent filter ∂s/∂ω of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace
from groupella.nn.shared_maps import BasisMap, BiasMap, SharedLinearMap, record, recording

from ._anchors import grid_anchors, new_omega
from ._common import GAIN, add_bias, check_convolution, check_input, draw, maps, new_bias
from ._stationary import fixes_constants
from .conv import all_translations, torus_conv


class SparseConv(nn.Module):
    """Anchor values `weight` (C'·F', C·F, M), M = ⌈k^d / 2⌉, and a lengthscale `omega`.

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice, which has at least one axis.
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    omega
        The initial lengthscale.
    learn_positions
        Make the anchor `positions` (M, d) a parameter. They have no curvature of their own: a
        hyperparameter, learned through the factors of the evidence.
    paper_biases
        Add one bias per channel (and fibre component), as the published code does.
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
        self.kernel = check_convolution("SparseConv", space_in, space_out, kernel_size)
        if not self.kernel:
            raise ValueError("SparseConv needs a lattice with at least one axis, got ()")
        self.space_in, self.space_out = space_in, space_out
        self.symmetry = all_translations(space_in)
        self.stationary_symmetry = fixes_constants(space_in, space_out, self.kernel)
        self.anchors = grid_anchors(self.kernel)
        self.weight = nn.Parameter(
            torch.empty(space_out.shape[0], space_in.shape[0], self.anchors.count)
        )
        self.omega = new_omega(omega)
        self.positions = self.anchors.positions(learn_positions)
        self.hyperparameters = {"omega": "lengthscale", "positions": "position"}
        self.bias = new_bias(space_out.shape[0], paper_biases)
        self.reset_parameters()

    def functions(self) -> Tensor:
        """φ, (window points, M)."""
        return self.anchors.functions(self.omega, self.positions)

    def reset_parameters(self, gain: float = GAIN) -> None:
        if self.weight.is_meta:
            return
        with torch.no_grad():
            power = float(self.functions().square().sum())
        draw(self.weight, gain * (self.weight.shape[1] * power) ** -0.5, self.bias)

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
            tangents = self.anchors.tangents(self.omega, self.positions)
            slope = torus_conv(x, self._filter(tangents))
            record(self, "omega", x, y, BiasMap.of_tangents("omega", slope.unsqueeze(1)))
        return add_bias(self, x, y)

    def _filter(self, functions: Tensor) -> Tensor:
        return (self.weight @ functions.mT).view(*self.weight.shape[:2], *self.kernel)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c = self.weight.shape[:2]
        basis = self.functions().mT.reshape(-1, 1, 1, *self.kernel)
        return maps(BasisMap("weight", basis, c, c_out, self.space_in.lattice.shape), self.bias)

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, kernel_size={self.kernel}, "
            f"anchors={self.anchors.count}"
        )
