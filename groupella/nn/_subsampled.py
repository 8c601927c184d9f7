"""A circular convolution that is sub-sampled to the phase that it chooses itself.

    y(n, c', j) = Σ_c Σ_δ w(c', c, δ) x(n, c, 2j + a(n) + δ mod lattice)

with a(n) the phase of sample n. All phases must be computed to choose, but only one has gradients:
with x rolled by a(n), they are those of a convolution of stride 2, a quarter of the work on images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from groupella.nn import _fourier
from groupella.nn.circular import circular_conv
from groupella.nn.pooling._phases import take_phase, take_sites

Choose = Callable[[Tensor], Tensor]


def subsampled_conv(x: Tensor, weight: Tensor, bias: Tensor | None, choose: Choose) -> Tensor:
    """The convolution y of x (batch, C, *even lattice) at the phases choose(y).

    Differentiable in x, weight and bias to any order; the choice is constant.
    """
    if _is_simple(x, weight):
        y: Tensor = _SubsampledConv.apply(x, weight, bias, choose)  # type: ignore[no-untyped-call]
        return y
    y = circular_conv(x, weight, bias)
    return take_phase(y, choose(y))


def _is_simple(x: Tensor, weight: Tensor) -> bool:
    """Whether gradients are wanted, of windows that fit, and nothing transforms functions."""
    device = x.device.type
    return (
        x.dim() > 2
        and torch.is_grad_enabled()
        and (x.requires_grad or weight.requires_grad)
        and all(1 < k <= n + 1 for k, n in zip(weight.shape[2:], x.shape[2:], strict=True))
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device))
    )


class _SubsampledConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, choose: Choose) -> Tensor:
        if _fourier.is_faster(x, weight, 1):
            y, _ = _fourier.forward(x, weight, bias)
        else:
            y = circular_conv(x, weight, bias)
        phase = choose(y)
        ctx.save_for_backward(x, weight, bias, phase)
        return take_phase(y, phase)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, phase = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            return *_differentiable_backward(g, x, weight, bias, phase, wanted), None
        d, lattice = x.dim() - 2, x.shape[2:]
        margin = [k // 2 for k in weight.shape[2:]]
        offsets = torch.stack([(phase >> (d - 1 - axis)) & 1 for axis in range(d)], 1)
        lengths = [n - 1 + 2 * m for n, m in zip(lattice, margin, strict=True)]
        half = torch.tensor(margin, device=x.device)
        rolled = take_sites(x, _sites(offsets - half, lattice, lengths)).view(
            *x.shape[:2], *lengths
        )
        gx, gw, gb = torch.ops.aten.convolution_backward(
            g,
            rolled,
            weight,
            [len(weight)],
            [2] * d,
            [0] * d,
            [1] * d,
            False,
            [0] * d,
            1,
            list(wanted),
        )
        if gx is not None:
            folded = _fold(gx, lattice)
            gx = take_sites(folded, _sites(half - offsets, lattice, lattice)).view(x.shape)
        return gx, gw, gb, None


def _differentiable_backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    phase: Tensor,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients with a graph, through all phases."""
    inputs: list[Any] = [t for t, want in zip((x, weight, bias), wanted, strict=True) if want]
    y = take_phase(circular_conv(x, weight, bias), phase)
    found = iter(torch.autograd.grad(y, inputs, g, create_graph=True))
    return [next(found) if want else None for want in wanted]


def _sites(shift: Tensor, lattice: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """(batch, d) to (batch, sites): the flat site shift + q mod lattice for each q < lengths."""
    index = shift.new_zeros(len(shift), 1)
    for axis, (size, length) in enumerate(zip(lattice, lengths, strict=True)):
        along = (torch.arange(length, device=shift.device) + shift[:, axis : axis + 1]) % size
        index = (index.unsqueeze(2) * size + along.unsqueeze(1)).flatten(1)
    return index


def _fold(g: Tensor, lattice: Sequence[int]) -> Tensor:
    """The adjoint of a periodic continuation, in place: what lies beyond belongs to the start."""
    for axis, size in enumerate(lattice, start=2):
        beyond = g.shape[axis] - size
        g.narrow(axis, 0, beyond).add_(g.narrow(axis, size, beyond))
        g = g.narrow(axis, 0, size)
    return g
