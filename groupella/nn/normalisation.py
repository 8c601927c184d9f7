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
from groupella.nn._simple import is_as_written
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
    shared
        One factor for all channels, from the mean of their variances. It changes no choice of a
        phase, so it also folds into layers with a stride.
    """

    mean: Tensor
    variance: Tensor

    def __init__(
        self,
        space: FeatureSpace,
        momentum: float = 0.1,
        eps: float = 1e-5,
        *,
        shared: bool = False,
    ) -> None:
        super().__init__()
        if not permutes_entries(space):
            raise ValueError(
                f"ChannelNorm needs entries that the group permutes, such as those of a regular "
                f"fibre; got {space}"
            )
        self.space_in = self.space_out = space
        self.momentum, self.eps = momentum, eps
        self.shared, factors = shared, 1 if shared else space.channels
        self.weight = nn.Parameter(torch.ones(factors))
        self.bias = nn.Parameter(torch.zeros(space.channels))
        self.register_buffer("mean", torch.zeros(space.channels))
        self.register_buffer("variance", torch.ones(factors))

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
        # Statistics are those of full precision under autocast, too.
        device = x.device.type
        mixed = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        full = x.to(self.weight) if mixed else x
        if self.shared:
            found = _with_one_factor(full, self.weight, self.bias, fibre, self.eps)
        elif torch.compiler.is_compiling():  # which cannot trace the derivatives of `_Normalise`
            found = _plainly_normalised(full, self.weight, self.bias, fibre, self.eps)
        else:
            found = _Normalise.apply(full, self.weight, self.bias, fibre, self.eps)  # type: ignore[no-untyped-call]
        y, mean, variance = found
        with torch.no_grad():
            self.mean += self.momentum * (mean - self.mean)
            self.variance += self.momentum * (variance * (count / (count - 1)) - self.variance)
        normalised: Tensor = y.to(x.dtype)
        return normalised

    def affine(self) -> tuple[Tensor, Tensor]:
        """Factor and shift of each channel in evaluation."""
        factor = self.weight / (self.variance + self.eps).sqrt()
        return factor.expand_as(self.mean), self.bias - factor * self.mean

    def extra_repr(self) -> str:
        return f"{self.space_in.shape}"


def _with_one_factor(
    x: Tensor, weight: Tensor, bias: Tensor, fibre: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise x with the means of the channels and one factor for all of them."""
    if fibre > 1 or x.is_meta or not is_as_written():
        return _plainly_normalised(x, weight, bias, fibre, eps)
    found: tuple[Tensor, Tensor, Tensor] = _OneFactor.apply(x, weight, bias, eps)  # type: ignore[no-untyped-call]
    return found


class _OneFactor(torch.autograd.Function):
    """y_c = k (x_c − μ_c) + b_c with k = w / σ and σ² the mean of the channels' variances, + ε.

    With g the gradient of y and m the number of values of x,

        ∂x = k (g − ḡ_c) − w σ⁻³ (Σ g (x − μ)) (x − μ) / m.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        image = _image(x)
        mean, variances = _statistics(image)
        variance = variances.mean(0, keepdim=True)
        scale = (variance + eps).rsqrt()
        ctx.mark_non_differentiable(mean, variance)
        ctx.save_for_backward(x, weight, mean, scale)
        y = _affine(image, (weight * scale).expand_as(mean), bias, 1, mean)
        return _as_features(y, x), mean, variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        g, image, scales = _image(gradients[0]), _image(x), scale.repeat(len(mean))
        _, inner, total = torch.ops.aten.native_batch_norm_backward(
            g,
            image,
            torch.ones_like(mean),
            None,
            None,
            mean,
            scales,
            True,
            0.0,
            [False, True, True],
        )
        along = inner.sum(0, keepdim=True)  # Σ g (x − μ) / σ
        factor = weight * scale
        slope = (-factor * scale * along / x.numel()).repeat(len(mean))
        level = -factor * total / (x.numel() // len(mean))
        gx = _affine(image, slope, level, 1, mean)
        gx.addcmul_(g, factor.view(1, 1, 1, 1))
        return _as_features(gx, x), along, total, None


def _statistics(image: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel, in one pass."""
    if image.is_meta:  # shapes without values, for which torch has no such pass
        variance, mean = torch.var_mean(image, (0, *range(2, image.ndim)), correction=0)
        return mean, variance
    mean, variance = torch.ops.aten.batch_norm_update_stats(image, None, None, 0.0)
    return mean, variance


class _Normalise(torch.autograd.Function):
    """Normalise x (N, C·F, *sites) with the statistics of C channels.

    By torch's own kernels for channels-last rows, of which each passes over the memory once or
    twice: they give the statistics of the C·F entries, which are then those of C channels. Entries
    are not normalised as (N·sites, C, F), which takes a third of a training step for small F.
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
        y, mean, variance = _Normalise.apply(*many, fibre, eps)  # type: ignore[no-untyped-call]
        found = (y, 1), (mean, 0), (variance, 0)
        return tuple(t.unflatten(axis, (size, -1)) for t, axis in found), (1, 0, 0)

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor, fibre: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        image = _image(x)
        means, variances = (v.view(-1, fibre) for v in _statistics(image))
        mean = means.mean(1)
        variance = (variances + (means - mean.unsqueeze(1)).square()).mean(1)
        scale = weight * (variance + eps).rsqrt()
        return _as_features(_affine(image, scale, bias, fibre, mean), x), mean, variance

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, weight, _, ctx.fibre, ctx.eps = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, *output[1:])
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if gradients[0] is None:
            return None, None, None, None, None
        x, weight, mean, variance = ctx.saved_tensors
        fibre = ctx.fibre
        if torch.is_grad_enabled():
            return *_differentiable_backward(gradients[0], x, weight, fibre, ctx.eps), None, None
        g, image = _image(gradients[0]), _image(x)
        scale = (variance + ctx.eps).rsqrt()
        entries, means, scales = _spread(fibre, weight, mean, scale)
        gx, inner, total = torch.ops.aten.native_batch_norm_backward(
            g, image, entries, None, None, means, scales, True, ctx.eps, [fibre == 1, True, True]
        )
        if fibre > 1:
            inner, total = (v.view(-1, fibre).sum(1) for v in (inner, total))
            count = image.numel() // len(weight)
            slope, level = (-weight * scale / count * v for v in (scale * inner, total))
            gx = _affine(image, slope, level, fibre, mean)
            gx.addcmul_(g, (weight * scale).repeat_interleave(fibre).view(-1, 1, 1))
        return _as_features(gx, x), inner, total, None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dw: Tensor | None, db: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors[:2]
        centred, scale = _centred(_rows(x), ctx.fibre, ctx.eps)
        unit = centred * scale.repeat_interleave(ctx.fibre)
        dy = torch.zeros_like(unit)
        if dx is not None:
            moved = _centred(_rows(dx), ctx.fibre, ctx.eps)[0]
            along = _sums(unit * moved, ctx.fibre) / (len(unit) * ctx.fibre)
            moved = moved - unit * along.repeat_interleave(ctx.fibre)
            dy = dy + moved * (weight * scale).repeat_interleave(ctx.fibre)
        if dw is not None:
            dy = dy + unit * dw.repeat_interleave(ctx.fibre)
        if db is not None:
            dy = dy + db.repeat_interleave(ctx.fibre)
        return _as_features(dy, x), None, None


def _plainly_normalised(
    x: Tensor, weight: Tensor, bias: Tensor, fibre: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """What `_Normalise` returns, by operations that torch differentiates."""
    entries = x.reshape(len(x), -1, fibre, x.shape[2:].numel())
    variance, mean = torch.var_mean(entries, (0, 2, 3), correction=0)
    if len(weight) < len(mean):
        variance = variance.mean(0, keepdim=True)
    scale = weight * (variance + eps).rsqrt()
    shift = bias - scale * mean
    y = entries * scale.view(-1, 1, 1) + shift.view(-1, 1, 1)
    return y.reshape(x.shape), mean.detach(), variance.detach()


def _differentiable_backward(
    g: Tensor, x: Tensor, weight: Tensor, fibre: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, weight and bias by operations that are functions of x."""
    centred, scale = _centred(_rows(x), fibre, eps)
    rows, count = _rows(g), x.numel() // len(weight)
    total, inner = _sums(rows, fibre), _sums(rows * centred, fibre) * scale
    slope, level, factor = (
        v.repeat_interleave(fibre)
        for v in (
            -weight * scale.square() * inner / count,
            -weight * scale * total / count,
            weight * scale,
        )
    )
    return _as_features(level + rows * factor + centred * slope, x), inner, total


def _image(x: Tensor) -> Tensor:
    """x as one image with a site for each sample and site, (1, C·F, N·sites, 1), channels last."""
    return _rows(x).t()[None, :, :, None]


def _affine(image: Tensor, slope: Tensor, level: Tensor, fibre: int, mean: Tensor) -> Tensor:
    """slope · (image − mean) + level, for each channel."""
    factor, shift, centre = _spread(fibre, slope, level, mean)
    ones = torch.ones_like(centre)
    y: Tensor = torch.native_batch_norm(image, factor, shift, centre, ones, False, 0.0, 0.0)[0]
    return y


def _spread(fibre: int, *values: Tensor) -> tuple[Tensor, ...]:
    """Numbers of channels (C,) on all entries, (C·F,)."""
    return values if fibre == 1 else tuple(v.repeat_interleave(fibre) for v in values)


def _rows(x: Tensor) -> Tensor:
    """x as rows (N·sites, C·F), contiguous: torch's kernels are wrong if layouts are mixed."""
    return x.movedim(1, -1).reshape(-1, x.shape[1]).contiguous()


def _centred(rows: Tensor, fibre: int, eps: float) -> tuple[Tensor, Tensor]:
    """Rows (n, C·F) without the mean of each channel, and 1/√(variance + eps) of each."""
    count = len(rows) * fibre
    # Centred, so that a large mean does not cost the variance its digits.
    centred = rows - (_sums(rows, fibre) / count).repeat_interleave(fibre)
    return centred, (_sums(centred.square(), fibre) / count + eps).rsqrt()


def _sums(rows: Tensor, fibre: int) -> Tensor:
    """The sum of each channel, (C,)."""
    return (rows.new_ones(1, len(rows)) @ rows).view(-1, fibre).sum(1)


def _as_features(y: Tensor, x: Tensor) -> Tensor:
    """An image or rows (N·sites, C·F) in the shape of x."""
    rows = y[0, :, :, 0].t() if y.dim() == 4 else y
    return rows.reshape(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1)
