"""Paths that were taken out are not computed, and the layer gives the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import curvature
from groupella.evidence import Prior
from groupella.evidence.likelihoods import Categorical
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import FactoredFC, SparseFC


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The free paths that are computed."""
    seen: list[type] = []
    for kind in (FactoredFC, SparseFC):

        def counted(self: nn.Module, x: Tensor, kind=kind, forward=kind.forward) -> Tensor:
            seen.append(kind)
            return forward(self, x)

        monkeypatch.setattr(kind, "forward", counted)
    return seen


def layer(paths: str, stride: int = 1, **options: bool) -> ResidualPathway:
    groups = GroupSet(z2(), p4(), trivial())
    torch.manual_seed(0)
    source, target = groups.space((4, 4), 2), groups.space((4 // stride,) * 2, 3)
    return ResidualPathway(source, target, groups, paths, stride=stride, **options)


def without(module: ResidualPathway, *paths: str) -> Prior:
    prior = Prior.from_network(module)
    prior.take_out(module, [g.name for g in prior if g.path in paths and g.role != "bias"])
    return prior


@pytest.mark.parametrize("paths", ["F-FC+CONV", "S-FC+CONV", "F-FC+GCONV:p4"])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_path_that_is_taken_out_is_not_computed(
    paths: str, stride: int, calls: list[type]
) -> None:
    free = paths.split("+")[0]
    module = layer(paths, stride)
    x = torch.randn(5, *module.space_in.shape, requires_grad=True)
    module(x)
    assert len(calls) == 1
    without(module, free)
    calls.clear()
    hook = module.paths[free].register_forward_hook(lambda *_: None)
    expected = module(x)  # a path that is watched is computed
    assert len(calls) == 1
    hook.remove()
    calls.clear()
    y = module(x)
    assert not calls
    assert torch.equal(y, expected)
    (one,) = torch.autograd.grad(y.square().sum(), x, retain_graph=True)
    (other,) = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("free", "samples"), [("F-FC", []), ("S-FC", [1])])
def test_the_bias_of_a_path_that_is_taken_out_is_computed_for_one_sample_at_most(
    free: str, samples: list[int], stride: int
) -> None:
    module = layer(f"{free}+CONV", stride, paper_biases=True)
    path = module.paths[free]
    without(module, free)
    biases = [p for name, p in path.named_parameters() if name.endswith("bias")]
    for bias in biases:
        nn.init.normal_(bias)
    x = torch.randn(5, *module.space_in.shape)
    hook = path.register_forward_hook(lambda *_: None)
    expected = module(x)
    truth = torch.autograd.grad(expected.square().sum(), biases)
    hook.remove()
    sizes: list[int] = []
    kind = type(path)
    forward: Any = kind.forward
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "forward", lambda self, x: (sizes.append(len(x)), forward(self, x))[1])
        y = module(x)
    assert sizes == samples
    torch.testing.assert_close(y, expected)
    found = torch.autograd.grad(y.square().sum(), biases)
    torch.testing.assert_close(found, truth)


def test_weights_that_come_back_are_heard(calls: list[type]) -> None:
    module = layer("F-FC+CONV")
    x = torch.randn(5, *module.space_in.shape)
    state, before = copy.deepcopy(module.state_dict()), module(x)
    without(module, "F-FC")
    assert not torch.equal(module(x), before)
    module.load_state_dict(state)
    calls.clear()
    assert torch.equal(module(x), before)
    assert calls == [FactoredFC]


def test_zero_weights_that_are_trained_are_computed(calls: list[type]) -> None:
    module = layer("F-FC+CONV")
    nn.init.zeros_(module.paths["F-FC"].theta1)  # type: ignore[arg-type]
    x = torch.randn(5, *module.space_in.shape)
    module(x).square().sum().backward()
    assert calls == [FactoredFC]
    assert bool(module.paths["F-FC"].theta1.grad.any())  # type: ignore[union-attr]


def test_without_any_path_the_bias_is_left() -> None:
    module = layer("F-FC+CONV")
    without(module, "F-FC", "CONV")
    x = torch.randn(5, *module.space_in.shape)
    torch.testing.assert_close(module(x), torch.zeros(5, *module.space_out.shape))


def test_curvature_of_weights_that_start_at_zero_is_found() -> None:
    """Curvature freezes the weights while it records, which does not make them silent."""
    module = layer("F-FC+CONV")
    nn.init.zeros_(module.paths["F-FC"].theta1)  # type: ignore[arg-type]
    network = nn.Sequential(module, nn.Flatten())
    blocks = curvature(
        network,
        Categorical(),
        (torch.randn(5, *module.space_in.shape), torch.randint(3, (5,))),
    )
    assert "0.paths.F-FC.theta1" in blocks
    assert float(blocks["0.paths.F-FC.theta1"].output_factors.abs().sum()) > 0
