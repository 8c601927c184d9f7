"""How parameters are grouped, and what their precisions start at."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupella.evidence import Evidence, Prior, PriorGroup
from groupella.evidence.likelihoods import Categorical
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.nn.layer import ResidualPathway


def layer(paths: str | None = None, **options: object) -> ResidualPathway:
    groups = GroupSet(trivial(), z2(), p4())
    space = groups.space((4, 4), channels=2)
    return ResidualPathway(space, space, groups, paths, **options)  # type: ignore[arg-type]


def network(paths: str | None = None, **options: object) -> nn.Sequential:
    inner = nn.Sequential(layer(paths, **options), nn.ReLU(), layer(paths, **options))
    head = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    return nn.Sequential(inner, head)


def test_every_parameter_is_in_one_group_with_a_readable_name() -> None:
    net = network()
    prior = Prior.from_network(net)
    paths = [f"0.{i}/{p}" for i in (0, 2) for p in ("trivial", "z2", "p4")]
    # All that p4 leaves unchanged is the bias.
    offsets = [f"0.{i}/{p}/offset" for i in (0, 2) for p in ("trivial", "z2")]
    assert set(prior.names) == {*paths, *offsets, "0.0/bias", "0.2/bias", "1.1", "1.1/bias"}
    grouped = [p for g in prior for p in g.parameters]
    assert sorted(grouped) == sorted(n for n, _ in net.named_parameters())
    assert sum(g.size for g in prior) == sum(p.numel() for p in net.parameters())


def test_the_two_factors_of_a_free_path_share_a_precision_unless_asked() -> None:
    net = network("F-FC+CONV")
    shared = Prior.from_network(net)
    assert len(shared.groups[shared.index("0.0/F-FC")].parameters) == 2
    apart = Prior.from_network(net, per_tensor=True)
    assert {"0.0/F-FC/theta1", "0.0/F-FC/theta2"} <= set(apart.names)
    assert len(apart) > len(shared)


def test_biases_inside_paths_are_groups_of_their_own() -> None:
    prior = Prior.from_network(network("F-FC+CONV", paper_biases=True))
    assert "0.0/CONV/bias" in prior
    assert "0.0/bias" not in prior
    assert prior.groups[prior.index("0.0/F-FC/bias")].role == "bias"


def test_initial_precisions_come_from_the_layers_init() -> None:
    earn = Prior.from_network(network(init="earn"))
    assert earn.precision("0.0/trivial") == pytest.approx(300.0)
    assert earn.precision("0.0/trivial/offset") == pytest.approx(300.0)
    assert earn.precision("0.0/p4") == pytest.approx(1.0)
    assert earn.precision("0.0/bias") == pytest.approx(1.0)
    balanced = Prior.from_network(network(init="balanced"))
    assert balanced.precisions.tolist() == pytest.approx([1.0] * len(balanced))
    set_by_name = Prior.from_network(network(), precisions={"1.1": 7.0}, fixed=["1.1"])
    assert set_by_name.precision("1.1") == pytest.approx(7.0)
    assert not set_by_name.groups[set_by_name.index("1.1")].learn


def test_lengthscales_are_hyperparameters_or_have_the_prior() -> None:
    net = network("S-FC+S-CONV")
    plain = Prior.from_network(net)
    assert all("omega" in name for name in plain.hyperparameters)
    assert plain.hyperparameters
    on_them = Prior.from_network(net, on="lengthscales")
    assert on_them.hyperparameters == ()
    group = on_them.groups[on_them.index("0.0/S-FC/lengthscale")]
    assert (group.role, group.learn) == ("lengthscale", True)
    assert not on_them.groups[on_them.index("0.0/S-FC")].learn
    with pytest.raises(ValueError, match="on must be"):
        Prior.from_network(net, on="anchors")  # type: ignore[arg-type]


def test_penalty_is_half_the_weighted_squared_norm() -> None:
    net = nn.Linear(2, 1)
    prior = Prior.from_network(net, precisions={"weight": 4.0, "bias": 2.0})
    expected = 2.0 * net.weight.square().sum() + 1.0 * net.bias.square().sum()
    torch.testing.assert_close(prior.penalty(net), expected.double())
    (gradient,) = torch.autograd.grad(prior.penalty(net), net.weight)
    torch.testing.assert_close(gradient, 4.0 * net.weight)


def test_tied_parameters_are_counted_once() -> None:
    net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    net[1].weight = net[0].weight
    prior = Prior.from_network(net)
    assert prior.names == ("0",)


def test_bounds_are_kept() -> None:
    net = nn.Linear(2, 1)
    prior = Prior.from_network(net, bounds=(1e-2, 1e2))
    prior.set_precision("weight", 1e9)
    assert prior.precision("weight") == pytest.approx(1e2)
    x = torch.randn(10, 2)
    evidence = Evidence(net, Categorical(), Prior.from_network(net, bounds=(0.5, 2.0)))
    net2 = nn.Linear(2, 2)
    evidence = Evidence(net2, Categorical(), Prior.from_network(net2, bounds=(0.5, 2.0)))
    for method in ("fixed_point", "adam", "linearised"):
        evidence.update((x, torch.arange(10) % 2), method, steps=50, lr=1.0)
        assert all(d * 1.0000001 >= 0.5 and d <= 2.0000001 for d in evidence.prior.precisions)


def test_groups_that_are_not_learned_stay() -> None:
    net = nn.Linear(2, 2)
    prior = Prior.from_network(net, fixed=["weight"])
    evidence = Evidence(net, Categorical(), prior)
    data = (torch.randn(10, 2), torch.arange(10) % 2)
    for method in ("fixed_point", "adam", "linearised"):
        evidence.update(data, method, steps=5)
    assert prior.precision("weight") == 1.0
    assert prior.precision("bias") != 1.0


def test_bad_input_is_refused() -> None:
    net = nn.Linear(2, 1)
    with pytest.raises(KeyError, match="no prior group 'wieght'"):
        Prior.from_network(net, precisions={"wieght": 1.0})
    with pytest.raises(KeyError, match="no prior group"):
        Prior.from_network(net).precision("head")
    with pytest.raises(ValueError, match="positive"):
        Prior.from_network(net, precisions=-1.0)
    with pytest.raises(ValueError, match="bounds"):
        Prior.from_network(net, bounds=(1.0, 0.1))
    with pytest.raises(ValueError, match="at least one group"):
        Prior.from_network(nn.ReLU())
    one = PriorGroup("a", ("w",), 1, "weight", "")
    with pytest.raises(ValueError, match="two prior groups"):
        Prior([one, one])
    with pytest.raises(ValueError, match="must be in one"):
        Prior([one, PriorGroup("b", ("w",), 1, "weight", "")])
    with pytest.raises(ValueError, match="another network"):
        Evidence(nn.Sequential(nn.Linear(2, 2)), Categorical(), Prior.from_network(net))
    bigger = nn.Linear(2, 2)
    prior = Prior.from_network(bigger)
    bigger.extra = nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match="no group for"):
        Evidence(bigger, Categorical(), prior)
