"""Circular ("same", stride 1) convolution on a torus of one, two or three dimensions.

    y(n, c', p) = Σ_c Σ_δ w(c', c, δ) x(n, c, p + δ mod lattice),   δ ∈ [-(k-1)/2, (k-1)/2]^d

The convention is that of `torch.nn.functional.conv2d` (cross-correlation), k is odd in every
direction. `F.pad(mode="circular")` followed by `F.conv2d` computes the same, slowly: its backward
pass builds the gradient of the padded tensor and folds the margins through autograd. On a torus
the adjoint of a convolution is a convolution, so here

    ∂x = circular_conv(∂y, w flipped, channels exchanged),
    ∂w = plain correlation of pad(x) with ∂y,
    ∂b = Σ_{n,p} ∂y,

which are differentiable again and work under `torch.func` (vmap, jvp, jacrev). Where no higher
derivative is asked for, all come from one backward convolution of the padded input, the margins
of ∂x folded in place. On the CPU the padded copy is laid out channels-last, as oneDNN prefers, and
in training many channels on a small torus are convolved by their Fourier transform (`_fourier.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from . import _fourier
from ._simple import is_unrecorded

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def circular_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """Circular convolution of stride 1 on a torus of one, two or three dimensions.

    Parameters
    ----------
    x
        (batch, C, *lattice).
    weight
        (C', C / groups, *kernel), odd along every axis.
    bias
        (C',), or None.
    groups
        The number of blocks of channels, as in `torch.nn.functional.conv2d`.

    Returns
    -------
    Tensor
        (batch, C', *lattice), channels-last in memory on the CPU.

    Raises
    ------
    ValueError
        If the shapes do not fit, or if a kernel side is even.
    """
    _check(x, weight, groups)
    device = x.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if all(k == 1 for k in weight.shape[2:]):
        return _CONV[x.dim() - 2](x, weight, bias, groups=groups)
    if torch.compiler.is_compiling():
        return _CONV[x.dim() - 2](_pad_by_index(x, _margin(weight)), weight, bias, groups=groups)
    return _apply(x, weight, groups, bias)


def circular_pad(x: Tensor, margin: tuple[int, ...]) -> Tensor:
    """Continue `x` (batch, C, *lattice) periodically by `margin[i]` sites on both sides of axis i.

    The margin may exceed the lattice.
    """
    sizes = x.shape[2:]
    if any(m > s for m, s in zip(margin, sizes, strict=True)):
        return _pad_by_index(x, margin)
    padded = [s + 2 * m for m, s in zip(margin, sizes, strict=True)]
    if x.device.type == "cpu":
        out = x.new_empty(x.shape[0], *padded, x.shape[1]).movedim(-1, 1)
    else:
        out = x.new_empty(x.shape[0], x.shape[1], *padded)
    core = out
    for axis, (m, size) in reversed(list(enumerate(zip(margin, sizes, strict=True), start=2))):
        core = core.narrow(axis, m, size)
    core.copy_(x)
    for axis, (m, size) in enumerate(zip(margin, sizes, strict=True), start=2):
        # Axes before this one are complete; of those after it only the centre is.
        region = out
        for later in range(axis + 1, x.dim()):
            region = region.narrow(later, margin[later - 2], sizes[later - 2])
        if m:
            region.narrow(axis, 0, m).copy_(region.narrow(axis, size, m))
            region.narrow(axis, size + m, m).copy_(region.narrow(axis, m, m))
    return out


def add_kernels(kernels: Sequence[Tensor]) -> Tensor:
    """The sum of kernels (C', C, *odd window) on the smallest window that holds all, centred."""
    sizes = [max(sides) for sides in zip(*(w.shape[2:] for w in kernels), strict=True)]
    total: Tensor | None = None
    for w in kernels:
        margins = [(n - k) // 2 for n, k in zip(sizes, w.shape[2:], strict=True)]
        if any(margins):
            w = F.pad(w, [m for margin in reversed(margins) for m in (margin, margin)])
        total = w if total is None else total + w
    assert total is not None
    return total


def stacked(x: Tensor, axis: int | None, size: int, channels: int) -> Tensor:
    """x with the `axis` that vmap added, of that `size`, merged into its axis of channels.

    Maps that treat groups of channels alike need no other rule for vmap. Without an axis, x is
    repeated.
    """
    if axis is None:
        shape = list(x.shape)
        shape.insert(channels, size)
        return x.unsqueeze(channels).expand(shape).flatten(channels, channels + 1)
    return x.movedim(axis, channels).flatten(channels, channels + 1)


@dataclass(frozen=True)
class _Kernel:
    """The shape of a weight; a plain tuple would be taken apart by `torch.func`."""

    shape: tuple[int, ...]


class _CircularConv(torch.autograd.Function):
    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        groups: int,
        _: bool,
    ) -> Any:
        size = info.batch_size
        many = stacked(x, in_dims[0], size, 1), stacked(weight, in_dims[1], size, 0)
        biases = None if bias is None else stacked(bias, in_dims[2], size, 0)
        found = _CircularConv.apply(*many, biases, size * groups, False)  # type: ignore[no-untyped-call]
        return tuple(t.unflatten(1, (size, -1)) for t in found), (1, 1)

    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, by_fourier: bool
    ) -> tuple[Tensor, Tensor]:
        if by_fourier:
            return _fourier.forward(x, weight, bias)
        padded = circular_pad(x, _margin(weight))
        return _CONV[x.dim() - 2](padded, weight, bias, groups=groups), padded

    @staticmethod
    def setup_context(
        ctx: Any,
        inputs: tuple[Tensor, Tensor, Tensor | None, int, bool],
        output: tuple[Tensor, Tensor],
    ) -> None:
        x, weight, _, ctx.groups, ctx.by_fourier = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, output[1])
        ctx.save_for_forward(x, weight)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None, None, None
        x, weight, padded = ctx.saved_tensors
        margin, wanted = _margin(weight), ctx.needs_input_grad[:3]
        if ctx.by_fourier and not torch.is_grad_enabled():
            return *_fourier.backward(g, padded, weight, wanted), None, None
        if not torch.is_grad_enabled() and all(
            m <= s for m, s in zip(margin, x.shape[2:], strict=True)
        ):
            gx, gw, gb = _plain_backward(g, padded, weight, ctx.groups, wanted)
            return None if gx is None else _fold(gx, margin), gw, gb, None, None
        gx = gw = gb = None
        if _wanted(ctx, 0):
            gx = _apply(g, _adjoint(weight, ctx.groups), ctx.groups)
        if _wanted(ctx, 1):
            gw = _apply_gradient(x, g, _Kernel(weight.shape), ctx.groups)
        if _wanted(ctx, 2):
            gb = g.sum([0, *range(2, g.dim())])
        return gx, gw, gb, None, None

    @staticmethod
    def jvp(
        ctx: Any, dx: Tensor | None, dw: Tensor | None, db: Tensor | None, *_: None
    ) -> tuple[Tensor, None]:
        x, weight = ctx.saved_tensors[:2]
        terms = []
        if dx is not None:
            terms.append(_apply(dx, weight, ctx.groups))
        if dw is not None:
            terms.append(_apply(x, dw, ctx.groups))
        if db is not None:
            constant = db.view(-1, *[1] * (x.dim() - 2))
            terms.append(constant.expand(x.shape[0], -1, *x.shape[2:]).contiguous())
        return sum(terms[1:], terms[0]), None


class _WeightGradient(torch.autograd.Function):
    """(x, g) ↦ Σ_{n,p} g(n, c', p) x(n, c, p + δ): bilinear, as the convolution itself."""

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, ...],
        x: Tensor,
        g: Tensor,
        kernel: _Kernel,
        groups: int,
    ) -> Any:
        size = info.batch_size
        many = stacked(x, in_dims[0], size, 1), stacked(g, in_dims[1], size, 1)
        shape = _Kernel((size * kernel.shape[0], *kernel.shape[1:]))
        return torch.unflatten(_apply_gradient(*many, shape, size * groups), 0, (size, -1)), 0

    @staticmethod
    def forward(x: Tensor, g: Tensor, kernel: _Kernel, groups: int) -> Tensor:
        weight = g.new_empty(1).expand(kernel.shape)
        padded = circular_pad(x, _margin(weight))
        gw = _plain_backward(g, padded, weight, groups, (False, True, False))[1]
        assert gw is not None
        return gw

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, _Kernel, int], output: Tensor
    ) -> None:
        x, g, ctx.kernel, ctx.groups = inputs
        ctx.save_for_backward(x, g)
        ctx.save_for_forward(x, g)

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, g = ctx.saved_tensors
        gx = gg = None
        if _wanted(ctx, 0):
            gx = _apply(g, _adjoint(v, ctx.groups), ctx.groups)
        if _wanted(ctx, 1):
            gg = _apply(x, v, ctx.groups)
        return gx, gg, None, None

    @staticmethod
    def jvp(ctx: Any, dx: Tensor | None, dg: Tensor | None, *_: None) -> Tensor:
        x, g = ctx.saved_tensors
        terms = []
        if dx is not None:
            terms.append(_apply_gradient(dx, g, ctx.kernel, ctx.groups))
        if dg is not None:
            terms.append(_apply_gradient(x, dg, ctx.kernel, ctx.groups))
        return sum(terms[1:], terms[0])


def _wanted(ctx: Any, index: int) -> bool:
    """Whether this backward pass will use the gradient of input `index`.

    `needs_input_grad` only says that someone might ask for it. Curvature asks for gradients of
    layer outputs while the weights carry a graph, too: their gradients would be computed in vain.
    """
    if not ctx.needs_input_grad[index]:
        return False
    node = ctx.next_functions[index][0]
    try:
        return node is None or torch._C._will_engine_execute_node(node)
    except (AttributeError, RuntimeError):
        return True


def _plain_backward(
    g: Tensor, padded: Tensor, weight: Tensor, groups: int, wanted: tuple[bool, bool, bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of a convolution without padding: of input, weight and bias, where wanted."""
    d = padded.dim() - 2
    ones, zeros = [1] * d, [0] * d
    bias = [len(weight)] if wanted[2] else None
    gx, gw, gb = torch.ops.aten.convolution_backward(
        g, padded, weight, bias, ones, zeros, ones, False, zeros, groups, wanted
    )
    return gx, gw, gb


def _fold(g: Tensor, margin: tuple[int, ...]) -> Tensor:
    """The adjoint of `circular_pad`, in place: what fell on a margin belongs to the other side."""
    for axis, m in enumerate(margin, start=2):
        size = g.shape[axis] - 2 * m
        if m:
            g.narrow(axis, m, m).add_(g.narrow(axis, size + m, m))
            g.narrow(axis, size, m).add_(g.narrow(axis, 0, m))
        g = g.narrow(axis, m, size)
    return g


def _apply(x: Tensor, weight: Tensor, groups: int, bias: Tensor | None = None) -> Tensor:
    y: Tensor
    if is_unrecorded():
        return _CircularConv.forward(x, weight, bias, groups, False)[0]
    # Only to train: what is faster depends on the batch, and predictions should not. Not under
    # `torch.func`, which would have to look into the transform.
    trains = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    plain = trains and not torch._C._are_functorch_transforms_active()
    by_fourier = plain and _fourier.is_faster(x, weight, groups)
    y, _ = _CircularConv.apply(x, weight, bias, groups, by_fourier)  # type: ignore[no-untyped-call]
    return y


def _apply_gradient(x: Tensor, g: Tensor, kernel: _Kernel, groups: int) -> Tensor:
    w: Tensor = _WeightGradient.apply(x, g, kernel, groups)  # type: ignore[no-untyped-call]
    return w


def _margin(weight: Tensor) -> tuple[int, ...]:
    return tuple(k // 2 for k in weight.shape[2:])


def _adjoint(weight: Tensor, groups: int) -> Tensor:
    """The kernel of the transposed map: offsets negated, input and output channels exchanged."""
    flipped = weight.flip(tuple(range(2, weight.dim())))
    out_channels, in_channels, *kernel = weight.shape
    blocks = flipped.reshape(groups, out_channels // groups, in_channels, *kernel)
    return blocks.transpose(1, 2).reshape(groups * in_channels, out_channels // groups, *kernel)


def _pad_by_index(x: Tensor, margin: tuple[int, ...]) -> Tensor:
    for axis, m in enumerate(margin, start=2):
        size = x.shape[axis]
        x = x.index_select(axis, torch.arange(-m, size + m, device=x.device) % size)
    return x


def _check(x: Tensor, weight: Tensor, groups: int) -> None:
    d = x.dim() - 2
    if d not in _CONV or weight.dim() != x.dim():
        raise ValueError(
            "circular_conv takes x (batch, channels, *lattice) with one, two or three lattice "
            f"axes and a weight with as many, got {tuple(x.shape)} and {tuple(weight.shape)}"
        )
    if any(k % 2 == 0 for k in weight.shape[2:]):
        raise ValueError(
            f"a circular kernel needs an odd size in every direction, got {tuple(weight.shape[2:])}"
        )
    if x.shape[1] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise ValueError(
            f"a weight of shape {tuple(weight.shape)} in {groups} group(s) takes "
            f"{weight.shape[1] * groups} channels, got {x.shape[1]}"
        )
