"""Many channels on a small torus: the Fourier transform gives what the sum over taps gives."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from groupella.nn import _fourier
from groupella.nn.circular import circular_conv

SHAPES = [
    ((4, 4), (3, 3)),
    ((8, 8), (3, 3)),
    ((6, 6), (3, 3)),
    ((5, 7), (3, 3)),
    ((2, 2), (3, 3)),
    ((1, 4), (3, 5)),
    ((3, 5), (3, 3)),
    ((7,), (5,)),
    ((2, 3, 4), (3, 3, 3)),
]


def summed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Σ_δ w(δ) x(p + δ) by rolling x, one tap after the other."""
    window = weight.shape[2:]
    y = bias.view(-1, *[1] * len(window)).expand(len(x), -1, *x.shape[2:])
    for tap in product(*(range(k) for k in window)):
        shift = [k // 2 - t for t, k in zip(tap, window, strict=True)]
        moved = x.roll(shift, tuple(range(2, x.dim())))
        y = y + torch.einsum("oc,nc...->no...", weight[(..., *tap)], moved)
    return y


def leaves(lattice: tuple[int, ...], window: tuple[int, ...], last: bool) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(30, 40, *lattice)
    if last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    return [x, torch.randn(48, 40, *window), torch.randn(48)]


@pytest.mark.parametrize(("lattice", "window"), SHAPES)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_values_and_gradients_are_those_of_the_sum_over_taps(
    lattice: tuple[int, ...], window: tuple[int, ...], last: bool
) -> None:
    values = leaves(lattice, window, last)
    assert _fourier.is_faster(values[0], values[1], 1)
    mine = [v.requires_grad_() for v in values]
    exact = [v.detach().double().requires_grad_() for v in values]
    y, expected = circular_conv(*mine), summed(*exact)
    g = torch.randn_like(y)
    found = [y, *torch.autograd.grad(y, mine, g)]
    truth = [expected, *torch.autograd.grad(expected, exact, g.double())]
    for a, b in zip(found, truth, strict=True):
        assert float((a.detach() - b.detach()).norm() / b.detach().norm()) < 1e-6
        assert a.shape == b.shape


@pytest.mark.parametrize("index", range(3), ids=["input", "weight", "bias"])
def test_one_gradient_alone_is_the_same(index: int) -> None:
    values = leaves((4, 4), (3, 3), True)
    g = torch.randn(30, 48, 4, 4)
    every = [v.detach().requires_grad_() for v in values]
    truth = torch.autograd.grad(circular_conv(*every), every, g)[index]
    alone = [v.detach().requires_grad_(i == index) for i, v in enumerate(values)]
    (found,) = torch.autograd.grad(circular_conv(*alone), [alone[index]], g)
    torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-4)


def test_second_derivatives_and_transforms_of_functions_agree() -> None:
    x, weight, bias = leaves((4, 4), (3, 3), True)
    v = torch.randn_like(x)

    def energy(x: Tensor) -> Tensor:
        return circular_conv(x, weight, bias).square().sum() / 2

    truth = circular_conv(v.double(), weight.double())  # the Hessian is WᵀW
    expected = torch.autograd.functional.vjp(
        lambda z: circular_conv(z, weight.double()), x.double(), truth
    )[1]
    _, reverse = torch.autograd.functional.hvp(energy, x, v)
    forward = torch.func.jvp(torch.func.grad(energy), (x,), (v,))[1]
    for found in (reverse, forward):
        assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_predictions_are_summed_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight, bias = leaves((4, 4), (3, 3), True)
    monkeypatch.setattr(_fourier, "forward", None)
    with torch.no_grad():
        circular_conv(x, weight.requires_grad_(), bias)
    with pytest.raises(TypeError):
        circular_conv(x, weight, bias)


def test_a_layer_may_add_to_the_result() -> None:
    x, weight, bias = leaves((4, 4), (3, 3), True)
    weight.requires_grad_()
    y = circular_conv(x, weight, bias)
    y.add_(1.0).sum().backward()
    (expected,) = torch.autograd.grad(circular_conv(x, weight).sum(), weight)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, expected)


def test_few_channels_large_lattices_and_other_precisions_are_summed() -> None:
    weight = torch.randn(48, 40, 3, 3)
    small = torch.randn(30, 40, 4, 4)
    assert not _fourier.is_faster(torch.randn(30, 40, 16, 16), weight, 1)
    assert not _fourier.is_faster(torch.randn(30, 2, 4, 4), torch.randn(2, 2, 3, 3), 1)
    assert not _fourier.is_faster(small.double(), weight.double(), 1)
    assert not _fourier.is_faster(small, weight, 2)
