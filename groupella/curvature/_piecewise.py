"""Second derivatives of piecewise linear functions are zero; do not compute them.

The backward pass of a rectifier or a pooling is linear in the gradient, with a mask that depends
on the input but has no derivative. Autograd still gives the mask a derivative, a tensor of zeros,
and carries it through the whole network. While factors are differentiated, the functions here
replace torch's; their backward passes treat the mask as a constant.
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


class _Masked(torch.autograd.Function):
    """A function with a backward pass in which everything but the gradient is constant.

    `forward(x)` gives the output and the tensors that `backward(g, *tensors)` uses.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, forward: Callable[..., Any], backward: Any) -> Any:
        y, kept = forward(x)
        ctx.save_for_backward(*kept)
        ctx.pull = backward
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return ctx.pull(g, *(t.detach() for t in ctx.saved_tensors)), None, None


def _masked(x: Tensor, forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    return _Masked.apply(x, forward, backward)  # type: ignore[no-untyped-call]


def _relu(input: Tensor, inplace: bool = False) -> Any:
    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        y = torch.relu(x)
        return y, (y,)

    if inplace:
        return torch.relu_(input)
    return _masked(input, forward, lambda g, y: aten.threshold_backward(g, y, 0))


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

    def forward(x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        y, index = aten.max_pool2d_with_indices(x, *options)
        return y, (x, index)

    def backward(g: Tensor, x: Tensor, index: Tensor) -> Any:
        return aten.max_pool2d_with_indices_backward(g, x, *options, index)

    return _masked(input, forward, backward)


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
    return _masked(
        input,
        lambda x: (aten.avg_pool2d(x, *options), (x,)),
        lambda g, x: aten.avg_pool2d_backward(g, x, *options),
    )


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
