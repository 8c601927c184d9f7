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

from groupella.groups import FeatureSpace
from groupella.nn.circular import stacked
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
        found = _Normalise.apply(x, self.weight, self.bias, fibre, self.eps)  # type: ignore[no-untyped-call]
        y, mean, variance = found[:3]
        with torch.no_grad():
            self.mean += self.momentum * (mean - self.mean)
            self.variance += self.momentum * (variance * count / (count - 1) - self.variance)
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
    The first derivative uses what the forward pass computed; higher ones start from x again.
    """

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        fibre: int,
        eps: float,
    ) -> Any:
        size = info.batch_size
        axes = zip((x, weight, bias), in_dims, (1, 0, 0), strict=False)
        many = (stacked(t, axis, size, channels) for t, axis, channels in axes)
        y, mean, variance, centred, scale = _Normalise.apply(*many, fibre, eps)  # type: ignore[no-untyped-call]
        found = (y, 1), (mean, 0), (variance, 0), (centred, 1), (scale, 0)
        return tuple(t.unflatten(axis, (size, -1)) for t, axis in found), (1, 0, 0, 1, 0)

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, fibre: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        rows = x.movedim(1, -1).reshape(-1, x.shape[1])
        centred, mean, variance = _centred(rows, fibre)
        scale = (variance + eps).rsqrt()
        y = torch.addcmul(
            bias.repeat_interleave(fibre), centred, (weight * scale).repeat_interleave(fibre)
        )
        return _as_features(y, x), mean, variance, centred, scale

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.fibre, ctx.eps = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, *output[3:])
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if gradients[0] is None:
            return None, None, None, None, None
        x, weight, centred, scale = ctx.saved_tensors
        if torch.is_grad_enabled():
            centred, scale = _again(ctx, x)
        g = gradients[0].movedim(1, -1).reshape(centred.shape)
        count = len(centred) * ctx.fibre
        total, inner = _sums(g, ctx.fibre), _sums(g * centred, ctx.fibre) * scale
        slope = (-weight * scale.square() * inner / count).repeat_interleave(ctx.fibre)
        level = (-weight * scale * total / count).repeat_interleave(ctx.fibre)
        gx = torch.addcmul(level, g, (weight * scale).repeat_interleave(ctx.fibre))
        gx = torch.addcmul(gx, centred, slope)
        return _as_features(gx, x), inner, total, None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dw: Tensor | None, db: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors[:2]
        centred, scale = _again(ctx, x)
        unit = centred * scale.repeat_interleave(ctx.fibre)
        dy = torch.zeros_like(unit)
        if dx is not None:
            moved = _centred(dx.movedim(1, -1).reshape(centred.shape), ctx.fibre)[0]
            along = _sums(unit * moved, ctx.fibre) / (len(unit) * ctx.fibre)
            moved = moved - unit * along.repeat_interleave(ctx.fibre)
            dy = dy + moved * (weight * scale).repeat_interleave(ctx.fibre)
        if dw is not None:
            dy = dy + unit * dw.repeat_interleave(ctx.fibre)
        if db is not None:
            dy = dy + db.repeat_interleave(ctx.fibre)
        return _as_features(dy, x), None, None, None, None


def _again(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the forward pass computed from x, as functions of x: centred rows and scales."""
    centred, _, variance = _centred(x.movedim(1, -1).reshape(-1, x.shape[1]), ctx.fibre)
    return centred, (variance + ctx.eps).rsqrt()


def _centred(rows: Tensor, fibre: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows (n, C·F) without the mean of each channel, that mean and the variance, (C,)."""
    count = len(rows) * fibre
    mean = _sums(rows, fibre) / count
    # Centred, so that a large mean does not cost the variance its digits.
    centred = rows - mean.repeat_interleave(fibre)
    return centred, mean, _sums(centred.square(), fibre) / count


def _sums(rows: Tensor, fibre: int) -> Tensor:
    """The sum of each channel, (C,)."""
    return (rows.new_ones(1, len(rows)) @ rows).view(-1, fibre).sum(1)


def _as_features(rows: Tensor, x: Tensor) -> Tensor:
    """Rows (N·sites, C·F) in the shape of x."""
    return rows.view(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1)
