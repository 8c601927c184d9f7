"""F-FC: a fully connected path factored between input and output points.

    y(c', p') = Σ_c θ₁(c', c, p') z(c', c),      z(c', c) = Σ_p θ₂(c', c, p) x(c, p)

Over the lattice, p runs over sites and channels × fibre count as channels (the paper's F-FC); over
the group, p runs over fibre × sites. Each factor is one batched matrix product and one shared
linear map: θ₂ with a block P → C' for every c, θ₁ with a block C → P' for every c'.

Where nobody wants to see z, biases are added as one constant (C', P'), and both products and their
gradients are laid out so that batched products find whole matrices (`_Factored`).

With few points z is far larger than x and y. Both factors are then multiplied first:
y(c', p') = Σ_{c,p} [θ₁(c', c, p') θ₂(c', c, p)] x(c, p).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, trivial
from groupella.nn._layout import block_major, block_product, leading
from groupella.nn._simple import is_simple, is_unrecorded
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
        if not recording():
            y = factored(a, self.theta1, self.theta2, self._constant())
            return y.reshape(x.shape[0], *self.space_out.shape)
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
        constant = self._constant()
        y = y.view(len(x), self.theta1.shape[0], -1)
        y = y if constant is None else y + constant
        return y.reshape(x.shape[0], *self.space_out.shape)

    def _constant(self) -> Tensor | None:
        """What the biases add to y, (C', P')."""
        if self.channel_bias is None:
            points = self.point_bias
            return points if points is None else points.expand(len(self.theta1), -1)
        sums, channels = self.theta1.sum(1), self.channel_bias.unsqueeze(1)
        if self.point_bias is None:
            return sums * channels
        return torch.addcmul(self.point_bias, sums, channels)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        maps = factor_maps(self.theta1, self.theta2, self.sharing)
        if self.channel_bias is not None:
            maps["channel_bias"] = BiasMap.of_features("channel_bias", len(self.channel_bias))
        if self.point_bias is not None:
            maps["point_bias"] = BiasMap.of_features("point_bias", len(self.point_bias))
        return maps

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, over={self.over!r}"


def factored(x: Tensor, theta1: Tensor, theta2: Tensor, constant: Tensor | None) -> Tensor:
    """θ₁θ₂x + constant: x (N, C, P), constant (C', P') or None, to (N, C', P')."""
    if is_simple(x, theta1):
        y: Tensor = _Factored.apply(x, theta1, theta2, constant)  # type: ignore[no-untyped-call]
        return y
    if is_unrecorded():
        return _products(x, theta1, theta2, constant)[0]
    return _plainly(x, theta1, theta2, constant)


def _plainly(x: Tensor, theta1: Tensor, theta2: Tensor, constant: Tensor | None) -> Tensor:
    """The same by operations that torch differentiates."""
    z = block_product(x, theta2.permute(1, 2, 0))
    y = block_product(block_major(z).transpose(1, 2), theta1)
    return block_major(y) if constant is None else block_major(y) + constant


def _products(
    x: Tensor, theta1: Tensor, theta2: Tensor, constant: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y (N, C', P'); and as whole matrices x (C, N, P), z (C', N, C) and θ₂ (C, C', P)."""
    a, inner = leading(x.transpose(0, 1)), theta2.transpose(0, 1).contiguous()
    z = torch.bmm(a, inner.transpose(1, 2)).permute(2, 1, 0).contiguous()
    if constant is None:
        y = torch.bmm(z, theta1)
    else:
        y = torch.baddbmm(constant.unsqueeze(1), z, theta1)
    return y.transpose(0, 1), a, z, inner


class _Factored(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, theta1: Tensor, theta2: Tensor, constant: Tensor | None
    ) -> Tensor:
        y, a, z, inner = _products(x, theta1, theta2, constant)
        ctx.save_for_backward(x, a, z, theta1, theta2, inner, constant)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, a, z, theta1, theta2, inner, constant = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():
            return _differentiable_backward(g, (x, theta1, theta2, constant), wanted)
        g = leading(g.transpose(0, 1))  # (C', N, P')
        gx = g1 = g2 = None
        if wanted[1]:
            g1 = torch.bmm(z.transpose(1, 2), g)
        if wanted[0] or wanted[2]:
            back = torch.bmm(g, theta1.transpose(1, 2)).permute(2, 0, 1).contiguous()  # (C, C', N)
        if wanted[2]:
            g2 = torch.bmm(back, a).transpose(0, 1)
        if wanted[0]:
            gx = torch.bmm(back.transpose(1, 2), inner).transpose(0, 1)
        return gx, g1, g2, g.sum(1) if wanted[3] else None


def _differentiable_backward(
    g: Tensor, values: tuple[Tensor, Tensor, Tensor, Tensor | None], wanted: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """The gradients with a graph, in the order of `values`."""
    y = _plainly(*values)
    inputs: list[Any] = [v for v, want in zip(values, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
    return tuple(next(found) if want else None for want in wanted)


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
