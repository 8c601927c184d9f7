"""A convolution at the phases that it chooses: values and gradients of the two steps in turn."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from groupella.nn import _fourier, _subsampled
from groupella.nn._subsampled import subsampled_conv
from groupella.nn.circular import circular_conv
from groupella.nn.pooling import take_phase

SHAPES = [
    ((8,), (3,)),
    ((6, 4), (3, 3)),
    ((2, 2), (3, 3)),
    ((4, 8), (5, 7)),
    ((4, 2, 6), (3, 3, 5)),
]


def leaves(lattice: tuple[int, ...], window: tuple[int, ...], n: int = 12) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(n, 3, *lattice, dtype=torch.float64)
    weight = torch.randn(5, 3, *window, dtype=torch.float64)
    return [v.requires_grad_() for v in (x, weight, torch.randn(5, dtype=torch.float64))]


def phases(y: Tensor) -> Tensor:
    """Every phase occurs."""
    return torch.arange(len(y)) % 2 ** (y.dim() - 2)


@pytest.mark.parametrize(("lattice", "window"), SHAPES)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_gradients_are_those_through_all_phases(
    lattice: tuple[int, ...], window: tuple[int, ...], last: bool
) -> None:
    values = leaves(lattice, window)
    if last:
        values[0] = values[0].detach().movedim(1, -1).contiguous().movedim(-1, 1).requires_grad_()
    assert _subsampled._is_simple(values[0], values[1])
    y = subsampled_conv(*values, phases)
    full = circular_conv(*values)
    expected = take_phase(full, phases(full))
    torch.testing.assert_close(y, expected, rtol=0, atol=1e-12)
    g = torch.randn_like(y)
    found = torch.autograd.grad(y, values, g)
    for a, b in zip(found, torch.autograd.grad(expected, values, g), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_derivatives_of_both_orders_are_those_of_finite_differences() -> None:
    values = leaves((4, 4), (3, 3), 4)
    assert gradcheck(lambda *v: subsampled_conv(*v, phases), values)
    assert gradgradcheck(lambda *v: subsampled_conv(*v, phases), values)


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    ("channels", "lattice", "transformed_back"),
    [((40, 48), (4, 4), False), ((64, 96), (4, 4), True), ((32, 48), (2, 2), True)],
)
def test_in_float32_many_channels_agree_with_float64(
    channels: tuple[int, int], lattice: tuple[int, int], transformed_back: bool, last: bool
) -> None:
    torch.manual_seed(0)
    c, c_out = channels
    values = [torch.randn(60, c, *lattice), torch.randn(c_out, c, 3, 3), torch.randn(c_out)]
    if last:
        values[0] = values[0].contiguous(memory_format=torch.channels_last)
    assert _fourier.is_faster(values[0], values[1], 1)
    assert _fourier.is_backward_faster(values[0], values[1]) == transformed_back
    mine, exact = ([v.to(t).requires_grad_() for v in values] for t in (torch.float, torch.double))
    y, truth = subsampled_conv(*mine, phases), subsampled_conv(*exact, phases)
    g = torch.randn_like(y)
    found = y, *torch.autograd.grad(y, mine, g)
    for a, b in zip(found, (truth, *torch.autograd.grad(truth, exact, g.double())), strict=True):
        assert float((a.detach() - b.detach()).norm() / b.detach().norm()) < 1e-6


def test_transforms_of_functions_take_the_two_steps() -> None:
    x, weight, bias = (v.detach() for v in leaves((4, 4), (3, 3), 4))
    v = torch.randn_like(x)

    def moved(x: Tensor) -> Tensor:
        return subsampled_conv(x, weight, bias, phases)

    found = torch.func.jvp(moved, (x,), (v,))[1]
    full = circular_conv(v, weight)
    torch.testing.assert_close(found, take_phase(full, phases(full)))
