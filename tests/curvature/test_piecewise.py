"""Rectifiers and poolings with constant masks: the same values, first and second derivatives."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.curvature._piecewise import PiecewiseLinear

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "ReLU": nn.ReLU(),
    "ReLU in place": nn.ReLU(inplace=True),
    "relu": torch.relu,
    "method": lambda x: x.relu(),
    "MaxPool2d": nn.MaxPool2d(2),
    "MaxPool2d with options": nn.MaxPool2d(3, 2, 1, ceil_mode=True),
    "max_pool2d": lambda x: F.max_pool2d(x, (3, 2)),
    "AvgPool2d": nn.AvgPool2d(2),
    "AvgPool2d with options": nn.AvgPool2d((3, 2), 2, 1, count_include_pad=False),
    "another": torch.tanh,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_the_same(name: str) -> None:
    function = FUNCTIONS[name]
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)

    def twice() -> tuple[Tensor, Tensor, Tensor]:
        y = function(x * 1.5)
        (g,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad((g**2).sum(), x)
        return y, g, h

    expected = twice()
    with PiecewiseLinear():
        found = twice()
    torch.testing.assert_close(found, expected)
