"""Several convolutions of one input as one: a convolution is linear in its filter.

    Σ_i circular_conv(x, w_i, b_i) = circular_conv(x, Σ_i w_i, Σ_i b_i)

with smaller windows continued by zeros. A training pass through a layer then costs one convolution
however many paths it has. Curvature needs each path's own output, and a hook expects its path to be
called; those passes stay separate.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor, nn

from groupella.nn.circular import add_kernels
from groupella.nn.paths import Convolution
from groupella.nn.paths.conv import torus_conv

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def is_plain(path: nn.Module) -> bool:
    """Whether a call of the path is its filter's convolution, and nothing else would notice."""
    return (
        _promises(type(path))  # type: ignore[arg-type]
        and not any(getattr(path, name) for name in _HOOKS)
        and "forward" not in vars(path)
        and getattr(path, "_compiled_call_impl", None) is None
        and not nn.modules.module._has_any_global_hook()  # type: ignore[no-untyped-call]
    )


def convolve(x: Tensor, paths: Iterable[nn.Module], bias: Tensor | None = None) -> Tensor:
    """The sum of those paths, and of a further `bias` (C'·F',), by one convolution."""
    filters = []
    for path in paths:
        assert isinstance(path, Convolution)
        filters.append(path.filter())
        own = path.filter_bias()
        if own is not None:
            bias = own if bias is None else bias + own
    return torus_conv(x, add_kernels(filters), bias)


def accumulate(y: Tensor, other: Tensor) -> Tensor:
    """y + other, into `y`, a fresh result that no gradient needs.

    Not under `torch.func`, where a plain tensor cannot hold a batched one.
    """
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return y + other
    return y.add_(other)


@lru_cache(maxsize=1024)
def _promises(kind: type) -> bool:
    """Whether the class keeps what `Convolution` says: no `forward` is newer than its filter."""
    where = [_definer(kind, name) for name in ("filter", "filter_bias", "forward")]
    if None in where or _definer(kind, "__call__") is not nn.Module:
        return False
    mro = kind.__mro__
    *promises, forward = (mro.index(cls) for cls in where if cls is not None)
    return max(promises) <= forward


def _definer(kind: type, name: str) -> type | None:
    return next((cls for cls in kind.__mro__ if name in vars(cls)), None)
