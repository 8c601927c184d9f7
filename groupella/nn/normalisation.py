"""Batch normalisation that commutes with the group, and can be folded away after training.

One mean and one variance per channel, shared by its fibre and by all sites:

    y = w (x − μ) / √(σ² + ε) + b,

so the map commutes with every group that permutes fibre and sites. In evaluation it is one factor
and one shift per channel, which `groupella.networks.fold` moves into the layer before it: the
network that is handed over has no normalisation, and its evidence is well posed.

Reference: Ioffe & Szegedy 2015.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from groupella.groups import FeatureSpace
from groupella.nn.nonlinearity import permutes_entries


class ChannelNorm(nn.Module):
    """Normalise each channel over the batch, its fibre and all sites.

    Parameters
    ----------
    space
        The features, whose entries the ambient group must permute.
    momentum, eps
        As in `torch.nn.BatchNorm2d`.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, space: FeatureSpace, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        if not permutes_entries(space):
            raise ValueError(
                f"ChannelNorm needs entries that the group permutes, such as those of a regular "
                f"fibre; got {space}"
            )
        self.space_in = self.space_out = space
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(space.channels))
        self.bias = nn.Parameter(torch.zeros(space.channels))
        self.register_buffer("mean", torch.zeros(space.channels))
        self.register_buffer("variance", torch.ones(space.channels))

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        fibre = self.space_in.fibre_size
        if not self.training:
            factor, shift = (v.repeat_interleave(fibre) for v in self.affine())
            sites = [1] * (x.dim() - 2)
            return x * factor.view(-1, *sites) + shift.view(-1, *sites)
        count = x.numel() // self.space_in.channels
        if count < 2:
            raise ValueError("ChannelNorm needs more than one value per channel in training")
        y, mean, variance = _Normalise.apply(x, self.weight, self.bias, fibre, self.eps)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * count / (count - 1), self.momentum)
        normalised: Tensor = y
        return normalised

    def affine(self) -> tuple[Tensor, Tensor]:
        """Factor and shift of each channel in evaluation."""
        factor = self.weight / (self.variance + self.eps).sqrt()
        return factor, self.bias - factor * self.mean

    def extra_repr(self) -> str:
        return f"{self.space_in.shape}"


class _Normalise(torch.autograd.Function):
    """Normalise x (N, C·F, *sites) with the statistics of C channels, as rows with channels last.

    torch's own batch normalisation of (N·sites, C, F) takes a third of a training step for small F.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, fibre: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows = x.movedim(1, -1).reshape(-1, x.shape[1])
        count = len(rows) * fibre
        ones = rows.new_ones(1, len(rows))
        mean = (ones @ rows).view(-1, fibre).sum(1) / count
        # Centred, so that a large mean does not cost the variance its digits.
        centred = rows - mean.repeat_interleave(fibre)
        variance = (ones @ centred.square()).view(-1, fibre).sum(1) / count
        scale = (variance + eps).rsqrt()
        y = torch.addcmul(
            bias.repeat_interleave(fibre), centred, (weight * scale).repeat_interleave(fibre)
        )
        ctx.save_for_backward(centred, weight, scale)
        ctx.fibre, ctx.shape = fibre, x.shape
        ctx.mark_non_differentiable(mean, variance)
        return y.view(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        centred, weight, scale = ctx.saved_tensors
        g = gradients[0].movedim(1, -1).reshape(centred.shape)
        count = len(centred) * ctx.fibre
        ones = centred.new_ones(1, len(centred))
        total = (ones @ g).view(-1, ctx.fibre).sum(1)
        inner = (ones @ (g * centred)).view(-1, ctx.fibre).sum(1) * scale
        slope = (-weight * scale.square() * inner / count).repeat_interleave(ctx.fibre)
        level = (-weight * scale * total / count).repeat_interleave(ctx.fibre)
        gx = torch.addcmul(level, centred, slope)
        gx.addcmul_(g, (weight * scale).repeat_interleave(ctx.fibre))
        n, c, *sites = ctx.shape
        return gx.view(n, *sites, c).movedim(-1, 1), inner, total, None, None
