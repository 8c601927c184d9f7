"""Several convolutions of one input as one: a convolution is linear in its filter.

    Σ_i circular_conv(x, w_i, b_i) = circular_conv(x, Σ_i w_i, Σ_i b_i)

with smaller windows continued by zeros. A training pass through a layer then costs one convolution
however many paths it has. Curvature needs each path's own output, and a hook expects its path to be
called; those passes stay separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from groupella.nn._simple import is_simple
from groupella.nn._subsampled import Choose, subsampled_conv
from groupella.nn.circular import add_kernels
from groupella.nn.paths import Convolution
from groupella.nn.paths.conv import torus_conv

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(path: nn.Module) -> bool:
    """Whether a call of the path is its filter's convolution, and nothing else would notice."""
    torus = getattr(path, "padding", "circular") == "circular"
    return torus and _promises(type(path)) and not is_watched(path)


def is_watched(path: nn.Module) -> bool:
    """Whether a call of the path does more than its class says, for instance calls a hook."""
    return (
        any(getattr(path, name) for name in _HOOKS)
        or "forward" in vars(path)
        or getattr(path, "_compiled_call_impl", None) is not None
        or nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def convolve(
    x: Tensor,
    paths: Iterable[nn.Module],
    bias: Tensor | None = None,
    choose: Choose | None = None,
) -> Tensor:
    """The sum of those paths, and of a further `bias` (C'·F',), by one convolution.

    With `choose`, sub-sampled to the phases that it chooses.
    """
    filters = []
    for path in paths:
        convolution = cast(Convolution, path)  # to check a protocol takes long
        filters.append(convolution.filter())
        own = convolution.filter_bias()
        if own is not None:
            bias = own if bias is None else bias + own
    if choose is not None:
        return subsampled_conv(x, add_kernels(filters), bias, choose)
    return torus_conv(x, add_kernels(filters), bias)


def accumulate(y: Tensor, other: Tensor) -> Tensor:
    """y + other, into `y`, a fresh result that no gradient needs.

    Not under `torch.func`, where a plain tensor cannot hold a batched one.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return y + other
    return y.add_(other)


def repeated(count: int, constant: Tensor, idle: Sequence[Tensor] = ()) -> Tensor:
    """The constant (C, *lattice), of one sample, for `count` samples.

    Parameters in `idle` get a gradient of zero.
    """
    if constant[0].numel() > 1 and is_simple(constant, *idle):
        samples: Tensor = _Repeated.apply(count, constant, *idle)  # type: ignore[no-untyped-call]
        return samples
    for parameter in idle:
        constant = constant + 0.0 * parameter.sum()
    return constant.expand(count, *constant.shape)


class _Repeated(torch.autograd.Function):
    """Its gradient is summed over samples row by row, as it lies in memory.

    torch's own sum over samples is ten times slower where channels come last.
    """

    @staticmethod
    def forward(ctx: Any, count: int, constant: Tensor, *idle: Tensor) -> Tensor:
        ctx.idle = [parameter.shape for parameter in idle]
        return constant.movedim(0, -1).contiguous().movedim(-1, 0).expand(count, *constant.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        zeros = [g.new_zeros(shape) for shape in ctx.idle]
        if g.stride(1) != 1:
            return None, g.sum(0), *zeros
        last = g.movedim(1, -1)
        total = g.new_ones(1, len(g)) @ last.reshape(len(g), -1)
        return None, total.view(last.shape[1:]).movedim(-1, 0), *zeros


_kept: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _promises(kind: type) -> bool:
    """Whether the class keeps what `Convolution` says: no `forward` is newer than its filter."""
    if torch.compiler.is_compiling():
        return _keeps(kind)
    if kind not in _kept:
        _kept[kind] = _keeps(kind)
    return _kept[kind]


def _keeps(kind: type) -> bool:
    where = [_definer(kind, name) for name in ("filter", "filter_bias", "forward")]
    if None in where or _definer(kind, "__call__") is not nn.Module:
        return False
    mro = kind.__mro__
    *promises, forward = (mro.index(cls) for cls in where if cls is not None)
    return max(promises) <= forward


def _definer(kind: type, name: str) -> type | None:
    return next((cls for cls in kind.__mro__ if name in vars(cls)), None)
