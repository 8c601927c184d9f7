"""F-FC: a fully connected path factored between input and output points.

    y(c', p') = Σ_c θ₁(c', c, p') z(c', c),      z(c', c) = Σ_p θ₂(c', c, p) x(c, p)

Over the lattice, p runs over sites and channels × fibre count as channels (the paper's F-FC); over
the group, p runs over fibre × sites. Each factor is one batched matrix product and one shared
linear map: θ₂ with a block P → C' for every c, θ₁ with a block C → P' for every c'.

With few points z is far larger than x and y. Both factors are then multiplied first, where nobody
wants to see z: y(c', p') = Σ_{c,p} [θ₁(c', c, p') θ₂(c', c, p)] x(c, p).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, trivial
from groupella.nn._layout import block_major, block_product
from groupella.nn.shared_maps import (
    BiasMap,
    BlockMap,
    SharedLinearMap,
    Sharing,
    record,
    recording,
)

from ._common import GAIN, check_input, check_spaces, draw, new_bias

Points = Literal["lattice", "group"]
FEW = 64  # P·P' up to which the product of the factors is faster than z


class FactoredFC(nn.Module):
    """Factors `theta1` (C', C, P') and `theta2` (C', C, P).

    Parameters
    ----------
    space_in, space_out
        Features of one group set, on any two lattices.
    over
        The points p: "lattice" (sites) or "group" (fibre × sites).
    sharing
        How the blocks of a factor share curvature, see `groupella.nn.shared_maps.BlockMap`.
    paper_biases
        Add the biases of the published code: one per output channel c' on every z(c', c), and one
        per output point p'.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        *,
        over: Points = "lattice",
        sharing: Sharing = "auto",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("FactoredFC", space_in, space_out)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry: Symmetry = trivial()
        self.over, self.sharing = over, sharing
        c, p = channels_and_points(space_in, over)
        c_out, p_out = channels_and_points(space_out, over)
        self.theta1 = nn.Parameter(torch.empty(c_out, c, p_out))
        self.theta2 = nn.Parameter(torch.empty(c_out, c, p))
        self.channel_bias = new_bias(c_out, paper_biases)
        self.point_bias = new_bias(p_out, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        """Draw new weights; θ₂ keeps the variance, so that a small gain affects y and not z."""
        _, c, p = self.theta2.shape
        draw(self.theta2, p**-0.5, self.channel_bias)
        draw(self.theta1, gain * c**-0.5, self.point_bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        _, c, p = self.theta2.shape
        if p * self.theta1.shape[2] <= FEW and not recording():
            return self._multiplied(x)
        a = x.reshape(x.shape[0], c, p)
        z = block_product(a, self.theta2.permute(1, 2, 0))
        record(self, "theta2", a, z)
        z = block_major(z)
        if self.channel_bias is not None:
            z = z + self.channel_bias
            record(self, "channel_bias", a, z)
        z = z.transpose(1, 2)
        y = block_product(z, self.theta1)
        record(self, "theta1", z, y)
        y = block_major(y)
        if self.point_bias is not None:
            y = y + self.point_bias
            record(self, "point_bias", z, y)
        return y.reshape(x.shape[0], *self.space_out.shape)

    def _multiplied(self, x: Tensor) -> Tensor:
        """The same map by the product of the factors, (C'P', CP)."""
        product = self.theta1.transpose(1, 2).unsqueeze(3) * self.theta2.unsqueeze(1)
        y = x.flatten(1) @ product.flatten(0, 1).flatten(1).t()
        constant = None
        if self.channel_bias is not None:
            constant = self.theta1.sum(1) * self.channel_bias.unsqueeze(1)
        if self.point_bias is not None:
            constant = self.point_bias if constant is None else constant + self.point_bias
        y = y.view(len(x), self.theta1.shape[0], -1)
        y = y if constant is None else y + constant
        return y.reshape(x.shape[0], *self.space_out.shape)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        maps = factor_maps(self.theta1, self.theta2, self.sharing)
        if self.channel_bias is not None:
            maps["channel_bias"] = BiasMap.of_features("channel_bias", len(self.channel_bias))
        if self.point_bias is not None:
            maps["point_bias"] = BiasMap.of_features("point_bias", len(self.point_bias))
        return maps

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, over={self.over!r}"


def factor_maps(theta1: Tensor, theta2: Tensor, sharing: Sharing) -> dict[str, SharedLinearMap]:
    """The maps of the factors `theta1` (C', C, P') and `theta2` (C', C, P)."""
    c_out, c, p = theta2.shape
    p_out = theta1.shape[2]
    return {
        "theta1": BlockMap("theta1", c_out, c, p_out, axes="bio", sharing=sharing),
        "theta2": BlockMap("theta2", c, p, c_out, axes="obi", sharing=sharing),
    }


def channels_and_points(space: FeatureSpace, over: Points) -> tuple[int, int]:
    """(C, P): channels × fibre and sites, or channels and fibre × sites."""
    if over == "lattice":
        return space.channels * space.fibre_size, space.lattice.size
    if over == "group":
        return space.channels, space.fibre_size * space.lattice.size
    raise ValueError(f'over must be "lattice" or "group", got {over!r}')
