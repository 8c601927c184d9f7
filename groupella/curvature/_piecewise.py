"""Second derivatives of piecewise linear functions are zero; do not compute them.

The backward pass of a rectifier or a pooling is linear in the gradient, with a mask that depends
on the input but has no derivative. Autograd gives the mask a derivative all the same, a tensor of
zeros, and carries it through the whole network. While factors are differentiated, the functions
here take the place of torch's; what their backward passes use is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.modules.utils import _pair
from torch.overrides import TorchFunctionMode

aten = torch.ops.aten
Size = int | Sequence[int]


class _Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.relu(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return aten.threshold_backward(g, y.detach(), 0)


class _MaxPool2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, options: Sequence[Any]) -> Any:
        y, index = aten.max_pool2d_with_indices(x, *options)
        ctx.save_for_backward(x, index)
        ctx.options = options
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, index = ctx.saved_tensors
        return aten.max_pool2d_with_indices_backward(g, x.detach(), *ctx.options, index), None


class _AvgPool2d(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, options: Sequence[Any]) -> Any:
        ctx.save_for_backward(x)
        ctx.options = options
        return aten.avg_pool2d(x, *options)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return aten.avg_pool2d_backward(g, x.detach(), *ctx.options), None


def _relu(input: Tensor, inplace: bool = False) -> Any:
    return torch.relu_(input) if inplace else _Relu.apply(input)  # type: ignore[no-untyped-call]


def _max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    kernel = _pair(kernel_size)
    options = (kernel, _pair(stride or kernel), _pair(padding), _pair(dilation), ceil_mode)
    return _MaxPool2d.apply(input, options)  # type: ignore[no-untyped-call]


def _avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    kernel = _pair(kernel_size)
    steps = _pair(stride or kernel)
    options = (kernel, steps, _pair(padding), ceil_mode, count_include_pad, divisor_override)
    return _AvgPool2d.apply(input, options)  # type: ignore[no-untyped-call]


_REPLACED: Mapping[Any, Callable[..., Any]] = {
    torch.relu: _relu,
    Tensor.relu: _relu,
    F.relu: _relu,
    torch.max_pool2d: _max_pool2d,
    F.max_pool2d: _max_pool2d,
    F.avg_pool2d: _avg_pool2d,
}


class PiecewiseLinear(TorchFunctionMode):
    """Inside this context rectifiers and poolings have backward passes with constant masks."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return _REPLACED.get(func, func)(*args, **(kwargs or {}))
