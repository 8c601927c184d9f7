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
from groupella.nn.shared_maps import (
    BiasMap,
    BlockMap,
    SharedLinearMap,
    Sharing,
    TangentMap,
    record,
    recording,
)

from ._anchors import Grid, new_omega
from ._block_product import block_major, block_product
from ._checks import GAIN, check_input, check_spaces


class SparseFC(nn.Module):
    """Anchor values `theta1` (C', C, M'), `theta2` (C', C, M) and lengthscales `omega1`, `omega2`.

    M = ⌈P / 2⌉ anchors on the input sites, M' = ⌈P' / 2⌉ on the output sites.

    learn_positions: make `positions1` (M', d) and `positions2` (M, d) parameters. They have no
        curvature of their own: hyperparameters, learned through the evidence's factors.
    sharing: how the blocks of a factor share curvature, see `groupella.nn.shared_maps.BlockMap`
    paper_biases: one bias per channel (and fibre component), as in the published code.
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
        self.grid1, self.grid2 = Grid(space_out.lattice.shape), Grid(space_in.lattice.shape)
        c, c_out = space_in.shape[0], space_out.shape[0]
        self.theta1 = nn.Parameter(torch.empty(c_out, c, self.grid1.count))
        self.theta2 = nn.Parameter(torch.empty(c_out, c, self.grid2.count))
        self.omega1, self.omega2 = new_omega(omega), new_omega(omega)
        self.positions1 = self.grid1.positions(learn_positions)
        self.positions2 = self.grid2.positions(learn_positions)
        self.hyperparameters = {
            "omega1": "lengthscale",
            "omega2": "lengthscale",
            "positions1": "position",
            "positions2": "position",
        }
        self.bias = nn.Parameter(torch.zeros(c_out)) if paper_biases else None
        self.reset_parameters()

    def functions(self) -> tuple[Tensor, Tensor]:
        """φ₁ (P', M') and φ₂ (P, M)."""
        return (
            self.grid1.functions(self.omega1, self.positions1),
            self.grid2.functions(self.omega2, self.positions2),
        )

    def reset_parameters(self, gain: float = GAIN) -> None:
        """θ₂ keeps the variance, so that a small gain makes the output small and not z."""
        if self.theta1.is_meta:
            return
        if self.theta1.is_meta:
            return
        with torch.no_grad():
            spread, projection = self.functions()
            spread_power = float(spread.square().sum(1).mean())
            projection_power = float(projection.square().sum())
        nn.init.normal_(self.theta2, std=projection_power**-0.5)
        nn.init.normal_(self.theta1, std=gain * (self.theta1.shape[1] * spread_power) ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        spread, projection = self.functions()
        sites = x.flatten(2) if x.dim() > 2 else x.unsqueeze(2)
        a = sites @ projection
        z = block_product(a, self.theta2.permute(1, 2, 0))
        record(self, "theta2", a, z)
        if recording():
            tangents = sites @ self.grid2.tangents(self.omega2, self.positions2)
            slope = block_product(tangents, self.theta2.permute(1, 2, 0))
            record(self, "omega2", sites, z, TangentMap("omega2", slope.unsqueeze(1)))
        z = block_major(z).transpose(1, 2)
        v = block_product(z, self.theta1)
        record(self, "theta1", z, v)
        y = block_major(v) @ spread.mT
        if recording():
            slope = v @ self.grid1.tangents(self.omega1, self.positions1).mT
            record(self, "omega1", z, y, TangentMap("omega1", slope.unsqueeze(1)))
        if self.bias is not None:
            y = y + self.bias.unsqueeze(1)
            record(self, "bias", z, y)
        return y.reshape(x.shape[0], *self.space_out.shape)

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
            f"anchors=({self.grid1.count}, {self.grid2.count})"
        )
