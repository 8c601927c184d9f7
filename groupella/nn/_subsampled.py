"""A circular convolution that is sub-sampled to the phase that it chooses itself.

    y(n, c', j) = Σ_c Σ_δ w(c', c, δ) x(n, c, 2j + a(n) + δ mod lattice)

with a(n) the phase of sample n. All phases must be computed to choose, but only one has gradients:
with x rolled by a(n), they are those of a convolution of stride 2, a quarter of the work on images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from groupella.nn import _fourier
from groupella.nn._simple import is_simple
from groupella.nn.circular import circular_conv
from groupella.nn.pooling._phases import put_sites, take_phase, take_sites

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
    fits = all(1 < k <= n + 1 for k, n in zip(weight.shape[2:], x.shape[2:], strict=True))
    return x.dim() > 2 and fits and is_simple(x, weight)


class _SubsampledConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, choose: Choose) -> Tensor:
        spectrum = None
        if _fourier.is_faster(x, weight, 1):
            y, spectrum = _fourier.forward(x, weight, bias)
            if not _fourier.is_backward_faster(x, weight):
                spectrum = None
        else:
            y = circular_conv(x, weight, bias)
        phase = choose(y)
        ctx.save_for_backward(x, weight, bias, phase, spectrum)
        lattice = tuple(x.shape[2:])
        taken = take_sites(y, _tables(lattice, None, x.device)[0][phase])
        return taken.view(*y.shape[:2], *(n // 2 for n in lattice))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, phase, spectrum = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():
            return *_differentiable_backward(g, x, weight, bias, phase, wanted), None
        if spectrum is not None:
            index = _tables(tuple(x.shape[2:]), None, x.device)[0][phase]
            whole = put_sites(g.flatten(2), index, x.shape[2:])
            return *_fourier.backward(whole, spectrum, weight, wanted), None
        d, lattice = x.dim() - 2, tuple(x.shape[2:])
        rolled, back = (t[phase] for t in _tables(lattice, tuple(weight.shape[2:]), x.device))
        lengths = [n - 1 + 2 * (k // 2) for n, k in zip(lattice, weight.shape[2:], strict=True)]
        moved = take_sites(x, rolled).view(*x.shape[:2], *lengths)
        gx, gw, gb = torch.ops.aten.convolution_backward(
            g,
            moved,
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
            gx = take_sites(_fold(gx, lattice), back).view(x.shape)
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


@lru_cache(maxsize=64)
def _tables(
    lattice: tuple[int, ...], window: tuple[int, ...] | None, device: torch.device
) -> tuple[Tensor, ...]:
    """Flat sites for each phase a, numbered with the last axis fastest: (2^d, sites).

    Without a window 2j + a; with one a − margin + j, of which a convolution of stride 2 without
    padding gives phase a, and its inverse margin − a + j, on the whole lattice.
    """
    phases = torch.tensor(list(product(range(2), repeat=len(lattice))), device="cpu")
    if window is None:
        found = [_sites(phases, lattice, [n // 2 for n in lattice], 2)]
    else:
        half = torch.tensor([k // 2 for k in window], device="cpu")
        lengths = [n - 1 + 2 * (k // 2) for n, k in zip(lattice, window, strict=True)]
        found = [_sites(phases - half, lattice, lengths), _sites(half - phases, lattice, lattice)]
    return tuple(sites.to(device) for sites in found)


def _sites(shift: Tensor, lattice: Sequence[int], lengths: Sequence[int], step: int = 1) -> Tensor:
    """(batch, d) to (batch, sites): the flat sites shift + step·q mod lattice, q < lengths."""
    index = shift.new_zeros(len(shift), 1)
    for axis, (size, length) in enumerate(zip(lattice, lengths, strict=True)):
        along = (
            step * torch.arange(length, device=shift.device) + shift[:, axis : axis + 1]
        ) % size
        index = (index.unsqueeze(2) * size + along.unsqueeze(1)).flatten(1)
    return index


def _fold(g: Tensor, lattice: Sequence[int]) -> Tensor:
    """The adjoint of a periodic continuation, in place: what lies beyond belongs to the start."""
    for axis, size in enumerate(lattice, start=2):
        beyond = g.shape[axis] - size
        g.narrow(axis, 0, beyond).add_(g.narrow(axis, size, beyond))
        g = g.narrow(axis, 0, size)
    return g
