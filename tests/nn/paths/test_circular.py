"""Circular convolution against the naive sum over the torus, and its derivatives of every order."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jacfwd, jacrev, vmap
from torch.nn import functional as F

from groupella.nn.circular import circular_conv, circular_pad

# Torch's own forward-mode code warns about its own use of torch.jit.script.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")

CASES = [
    ((2, 4, 5), (3,), 2),
    ((2, 2, 4, 3), (3, 3), 1),
    ((1, 4, 3, 4), (5, 3), 2),
    ((1, 2, 3, 2, 3), (3, 1, 3), 1),
    ((2, 2, 1, 1), (3, 3), 1),
    ((1, 2, 2, 2), (7, 3), 1),
    ((2, 2, 3, 3), (1, 1), 1),
]


def operands(shape: tuple[int, ...], kernel: tuple[int, ...], groups: int) -> list[Tensor]:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64)
    weight = torch.randn(4, shape[1] // groups, *kernel, dtype=torch.float64)
    return [t.requires_grad_() for t in (x, weight, torch.randn(4, dtype=torch.float64))]


def naive(x: Tensor, weight: Tensor, bias: Tensor, groups: int) -> Tensor:
    lattice, kernel = x.shape[2:], weight.shape[2:]
    y = torch.zeros(x.shape[0], weight.shape[0], *lattice, dtype=x.dtype)
    per_group = weight.shape[0] // groups
    for out in range(weight.shape[0]):
        for c in range(weight.shape[1]):
            source = (out // per_group) * weight.shape[1] + c
            for p in itertools.product(*map(range, lattice)):
                for d in itertools.product(*map(range, kernel)):
                    q = [
                        (a + b - k // 2) % n
                        for a, b, k, n in zip(p, d, kernel, lattice, strict=True)
                    ]
                    y[(slice(None), out, *p)] += weight[(out, c, *d)] * x[(slice(None), source, *q)]
    return y + bias.view(-1, *[1] * len(lattice))


@pytest.mark.parametrize(("shape", "kernel", "groups"), CASES)
def test_equals_the_sum_over_the_torus(
    shape: tuple[int, ...], kernel: tuple[int, ...], groups: int
) -> None:
    x, weight, bias = (t.detach() for t in operands(shape, kernel, groups))
    y = circular_conv(x, weight, bias, groups)
    torch.testing.assert_close(y, naive(x, weight, bias, groups), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("shape", "kernel", "groups"), CASES)
def test_first_and_second_derivatives(
    shape: tuple[int, ...], kernel: tuple[int, ...], groups: int
) -> None:
    inputs = operands(shape, kernel, groups)

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return circular_conv(x, weight, bias, groups)

    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)


def test_functional_transforms_agree_with_padding() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 2, 4, 4).double(), torch.randn(4, 2, 3, 3).double()

    def padded(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), weight)

    for transform in (jacrev, jacfwd):
        for argument in (0, 1):
            torch.testing.assert_close(
                transform(circular_conv, argument)(x, weight),
                transform(padded, argument)(x, weight),
            )
    cubed = [hessian(lambda w, f=f: f(x, w).pow(3).sum())(weight) for f in (circular_conv, padded)]
    torch.testing.assert_close(*cubed)
    per_sample = [
        vmap(jacrev(lambda w, a, f=f: f(a[None], w).pow(2).sum()), (None, 0))(weight, x)
        for f in (circular_conv, padded)
    ]
    torch.testing.assert_close(*per_sample)


def test_channels_last_input_gives_the_same() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 6, 8, 8), torch.randn(4, 6, 3, 3)
    expected = circular_conv(x, weight)
    actual = circular_conv(x.to(memory_format=torch.channels_last), weight)
    torch.testing.assert_close(actual, expected)


def test_autocast_and_compilation_are_consistent() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 4, 4), torch.randn(4, 3, 3, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = circular_conv(x, weight)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    exported = torch.export.export(_Module(), (x, weight.detach()))
    torch.testing.assert_close(
        exported.module()(x, weight.detach()), circular_conv(x, weight.detach())
    )


class _Module(torch.nn.Module):
    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return circular_conv(x, weight)


def test_padding_may_wrap_more_than_once() -> None:
    x = torch.arange(3.0).view(1, 1, 3)
    assert circular_pad(x, (4,)).flatten().tolist() == [2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert circular_pad(x, (0,)).tolist() == x.tolist()


@pytest.mark.parametrize(
    ("x", "weight", "groups", "message"),
    [
        ((1, 2, 4, 4), (2, 2, 2, 3), 1, "odd size"),
        ((1, 2, 4, 4), (2, 3, 3, 3), 1, "takes 3 channels, got 2"),
        ((1, 2, 4, 4), (2, 2, 3), 1, "lattice"),
        ((1, 4, 4), (3, 2, 3), 2, "2 group"),
    ],
)
def test_bad_operands_are_explained(
    x: tuple[int, ...], weight: tuple[int, ...], groups: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        circular_conv(torch.zeros(x), torch.zeros(weight), groups=groups)
