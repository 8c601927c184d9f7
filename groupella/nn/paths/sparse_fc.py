"""S-FC: a factored fully connected path whose factors are sums of anchor functions.

    θ₁(c', c, p') = Σ_j u₁(c', c, j) exp(−ω₁² |p' − z_j|²),    θ₂ likewise over input sites p,
    y(c', p') = Σ_c θ₁(c', c, p') Σ_p θ₂(c', c, p) x(c, p)

Inputs are projected onto the anchor functions before u₂ multiplies them and outputs spread by them
after u₁, so the shared linear maps are those of F-FC with anchors in the place of sites. Channels ×
fibre count as channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, trivial
from groupella.nn._layout import block_major, block_product
from groupella.nn.shared_maps import BiasMap, BlockMap, SharedLinearMap, Sharing, record, recording

from ._common import GAIN, add_bias, check_input, check_spaces, draw, new_bias
from .sparse_conv import Anchors, new_omega


class SparseFC(nn.Module):
    """Anchor values `theta1` (C', C, M'), `theta2` (C', C, M) and lengthscales `omega1`, `omega2`.

    M = ⌈P / 2⌉ anchors on the input sites, M' = ⌈P' / 2⌉ on the output sites.

    Parameters
    ----------
    space_in, space_out
        Features of one group set, on any two lattices.
    omega
        The initial value of both lengthscales.
    learn_positions
        Make `positions1` (M', d) and `positions2` (M, d) parameters. They have no curvature of
        their own: hyperparameters, learned through the factors of the evidence.
    sharing
        How the blocks of a factor share curvature, see `groupella.nn.shared_maps.BlockMap`.
    paper_biases
        Add one bias per channel (and fibre component), as the published code does.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        *,
        omega: float = 1.0,
        learn_positions: bool = False,
        sharing: Sharing = "auto",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("SparseFC", space_in, space_out)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry: Symmetry = trivial()
        self.sharing: Sharing = sharing
        self.anchors1 = Anchors(space_out.lattice.shape)
        self.anchors2 = Anchors(space_in.lattice.shape)
        c, c_out = space_in.shape[0], space_out.shape[0]
        self.theta1 = nn.Parameter(torch.empty(c_out, c, self.anchors1.count))
        self.theta2 = nn.Parameter(torch.empty(c_out, c, self.anchors2.count))
        self.omega1, self.omega2 = new_omega(omega), new_omega(omega)
        self.positions1 = self.anchors1.positions(learn_positions)
        self.positions2 = self.anchors2.positions(learn_positions)
        self.hyperparameters = {
            "omega1": "lengthscale",
            "omega2": "lengthscale",
            "positions1": "position",
            "positions2": "position",
        }
        self.bias = new_bias(c_out, paper_biases)
        self.reset_parameters()

    def functions(self) -> tuple[Tensor, Tensor]:
        """φ₁ (P', M') and φ₂ (P, M)."""
        return (
            self.anchors1.functions(self.omega1, self.positions1),
            self.anchors2.functions(self.omega2, self.positions2),
        )

    def reset_parameters(self, gain: float = GAIN) -> None:
        """Draw new weights; θ₂ keeps the variance, so that a small gain affects y and not z."""
        if self.theta1.is_meta:
            return
        with torch.no_grad():
            spread, projection = self.functions()
            spread_power = float(spread.square().sum(1).mean())
            projection_power = float(projection.square().sum())
        draw(self.theta2, projection_power**-0.5)
        draw(self.theta1, gain * (self.theta1.shape[1] * spread_power) ** -0.5, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        spread, projection = self.functions()
        sites = x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)
        a = sites @ projection
        z = block_product(a, self.theta2.permute(1, 2, 0))
        record(self, "theta2", a, z)
        if recording():
            tangents = sites @ self.anchors2.tangents(self.omega2, self.positions2)
            slope = block_product(tangents, self.theta2.permute(1, 2, 0))
            record(self, "omega2", sites, z, BiasMap.of_tangents("omega2", slope.unsqueeze(1)))
        z = block_major(z).transpose(1, 2)
        v = block_product(z, self.theta1)
        record(self, "theta1", z, v)
        y = block_major(v) @ spread.mT
        if recording():
            slope = v @ self.anchors1.tangents(self.omega1, self.positions1).mT
            record(self, "omega1", z, y, BiasMap.of_tangents("omega1", slope.unsqueeze(1)))
        return add_bias(self, z, y).reshape(x.shape[0], *self.space_out.shape)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, m = self.theta2.shape
        m_out = self.theta1.shape[2]
        maps: dict[str, SharedLinearMap] = {
            "theta1": BlockMap("theta1", c_out, c, m_out, axes="bio", sharing=self.sharing),
            "theta2": BlockMap("theta2", c, m, c_out, axes="obi", sharing=self.sharing),
        }
        if self.bias is not None:
            maps["bias"] = BiasMap.of_channels("bias", c_out)
        return maps

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, "
            f"anchors=({self.anchors1.count}, {self.anchors2.count})"
        )
