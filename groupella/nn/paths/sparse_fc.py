"""S-FC: a factored fully connected path whose factors are sums of anchor functions.

    θ₁(c', c, p') = Σ_j u₁(c', c, j) exp(−ω₁² |p' − z_j|²),    θ₂ likewise over input sites p,
    y(c', p') = Σ_c θ₁(c', c, p') Σ_p θ₂(c', c, p) x(c, p)

Inputs are projected onto the anchor functions before u₂ multiplies them and outputs spread by them
after u₁, so the shared linear maps are those of F-FC with anchors in the place of sites. Channels ×
fibre count as channels. Over the group, p runs over fibre × sites, and |p − z| is a left-invariant
distance on the torus, along chords, and the point group (see `_anchors.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, trivial
from groupella.nn._layout import block_major, block_product
from groupella.nn.shared_maps import BiasMap, SharedLinearMap, Sharing, record, recording

from ._anchors import fibre_orbits, grid_anchors, group_anchors, new_omega
from ._common import GAIN, add_bias, check_input, check_spaces, draw, new_bias
from ._stationary import fixes_constants
from .factored_fc import Points, channels_and_points, factor_maps


class SparseFC(nn.Module):
    """Anchor values `theta1` (C', C, M'), `theta2` (C', C, M) and lengthscales `omega1`, `omega2`.

    M = ⌈P / 2⌉ anchors on the input points, M' = ⌈P' / 2⌉ on the output points.

    Parameters
    ----------
    space_in, space_out
        Features of one group set, on any two lattices.
    over
        The points p: "lattice" (sites, with channels × fibre as channels) or "group" (fibre ×
        sites, for a fibre that the ambient symmetry permutes).
    omega
        The initial value of both lengthscales.
    learn_positions
        Make `positions1` (M', D) and `positions2` (M, D) parameters, D = d, or d + d² over the
        group. They have no curvature of their own: hyperparameters, learned through the factors of
        the evidence.
    sharing
        How the blocks of a factor share curvature, see `groupella.nn.shared_maps.BlockMap`.
    paper_biases
        Add one bias per channel (and, over the lattice, fibre component), as the published code
        does.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        *,
        over: Points = "lattice",
        omega: float = 1.0,
        learn_positions: bool = False,
        sharing: Sharing = "auto",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("SparseFC", space_in, space_out)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry: Symmetry = trivial()
        self.over, self.sharing = over, sharing
        c, _ = channels_and_points(space_in, over)
        c_out, _ = channels_and_points(space_out, over)
        orbits = None
        if over == "lattice":
            self.anchors1 = grid_anchors(space_out.lattice.shape)
            self.anchors2 = grid_anchors(space_in.lattice.shape)
        else:
            self.anchors1 = group_anchors("SparseFC", space_out)
            self.anchors2 = group_anchors("SparseFC", space_in)
            orbits = fibre_orbits("SparseFC", space_in, space_out)
        self.stationary_symmetry = fixes_constants(space_in, space_out, orbits=orbits)
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
        draw(
            self.theta1,
            gain * (self.theta1.shape[1] * spread_power) ** -0.5,
            self.bias,
        )

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        spread, projection = self.functions()
        points = x.reshape(x.shape[0], self.theta2.shape[1], len(projection))
        a = points @ projection
        z = block_product(a, self.theta2.permute(1, 2, 0))
        record(self, "theta2", a, z)
        if recording():
            tangents = points @ self.anchors2.tangents(self.omega2, self.positions2)
            slope = block_product(tangents, self.theta2.permute(1, 2, 0))
            record(self, "omega2", points, z, BiasMap.of_tangents("omega2", slope.unsqueeze(1)))
        z = block_major(z).transpose(1, 2)
        v = block_product(z, self.theta1)
        record(self, "theta1", z, v)
        y = block_major(v) @ spread.mT
        if recording():
            slope = v @ self.anchors1.tangents(self.omega1, self.positions1).mT
            record(self, "omega1", z, y, BiasMap.of_tangents("omega1", slope.unsqueeze(1)))
        return add_bias(self, z, y).reshape(x.shape[0], *self.space_out.shape)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        maps = factor_maps(self.theta1, self.theta2, self.sharing)
        if self.bias is not None:
            maps["bias"] = BiasMap.of_channels("bias", len(self.bias))
        return maps

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, over={self.over!r}, "
            f"anchors=({self.anchors1.count}, {self.anchors2.count})"
        )
