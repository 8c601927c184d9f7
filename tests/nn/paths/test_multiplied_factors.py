"""F-FC with few points multiplies its factors first, and computes the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from groupella.groups import GroupSet, p4, z2
from groupella.nn.paths import FactoredFC
from groupella.nn.paths.factored_fc import factored
from groupella.nn.shared_maps import taping

CASES = [
    pytest.param(z2(), (2, 2), (1, 1), "lattice", id="one site"),
    pytest.param(z2(), (4, 4), (2, 2), "lattice", id="the most"),
    pytest.param(z2(), (4, 4), (4, 2), "lattice", id="too many"),
    pytest.param(p4(), (2, 2), (2, 2), "lattice", id="fibre as channels"),
    pytest.param(p4(), (1, 1), (1, 1), "group", id="over the group"),
]


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize(("symmetry", "lattice", "smaller", "over"), CASES)
def test_values_and_gradients_follow_the_definition(
    symmetry: Any, lattice: Any, smaller: Any, over: Any, biases: bool
) -> None:
    groups = GroupSet(symmetry)
    space, target = groups.space(lattice, 3), groups.space(smaller, 2)
    path = FactoredFC(space, target, over=over, paper_biases=biases).double()
    for parameter in path.parameters():
        torch.nn.init.normal_(parameter)
    c, p = path.theta2.shape[1:]
    x = torch.randn(5, *space.shape, dtype=torch.float64, requires_grad=True)
    z = torch.einsum("dcp,ncp->ndc", path.theta2, x.view(5, c, p))
    z = z if path.channel_bias is None else z + path.channel_bias.view(-1, 1)
    truth = torch.einsum("dcq,ndc->ndq", path.theta1, z)
    truth = truth if path.point_bias is None else truth + path.point_bias
    truth, y = truth.reshape(5, *target.shape), path(x)
    torch.testing.assert_close(y, truth, rtol=1e-12, atol=1e-12)
    weight, wanted = torch.randn_like(y), [x, *path.parameters()]
    found = torch.autograd.grad(y, wanted, weight)
    for one, other in zip(found, torch.autograd.grad(truth, wanted, weight), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)
    seen: list[str] = []
    with taping(
        lambda module, shared_map, x, y: seen.append(shared_map.weight)
    ):  # curvature wants to see z
        torch.testing.assert_close(path(x), truth, rtol=1e-12, atol=1e-12)
    assert {"theta1", "theta2"} <= set(seen)


@pytest.mark.parametrize("biases", [True, False])
def test_derivatives_of_both_orders_are_those_of_finite_differences(biases: bool) -> None:
    torch.manual_seed(0)
    x, theta1, theta2 = (
        torch.randn(s, dtype=torch.float64) for s in ((2, 2, 3), (2, 2, 2), (2, 2, 3))
    )
    values = [x, theta1, theta2, *([torch.randn(2, 2, dtype=torch.float64)] if biases else [])]
    values = [v.requires_grad_() for v in values]

    def product(*v: torch.Tensor) -> torch.Tensor:
        return factored(*v[:3], v[3] if biases else None)

    assert torch.autograd.gradcheck(product, values)
    assert torch.autograd.gradgradcheck(product, values)
