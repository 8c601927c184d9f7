"""Where the evidence takes lengthscales out, the constant stays in `strict` and `harden`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella import groups as g
from groupella.decide import Rule, selection
from groupella.evidence import Evidence, Prior
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import GroupSet
from groupella.harden import harden
from groupella.networks import Trunk, trunk
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import Path
from groupella.testing import assert_equivariant

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def network(dtype: torch.dtype, groups: GroupSet, paths: str) -> Trunk:
    torch.manual_seed(1)
    made = trunk(groups, paths, 2, 8, 3, in_channels=1, blocks=((1, 1), (2, 2), (2, 1)), hidden=4)
    with torch.no_grad():
        for layer in made.layers:
            assert isinstance(layer, ResidualPathway)
            for path in layer.paths.values():
                assert isinstance(path, Path)
                path.reset_parameters(3.0)
    return made.to(dtype)


def unchanged(before: Tensor, after: Tensor) -> None:
    assert float((before - after).abs().max() / before.std()) < TOLERANCE[before.dtype]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("paths", ["S-FC+S-CONV", "S-FC+CONV"])
def test_outputs_stay_when_lengthscales_are_taken_out(dtype: torch.dtype, paths: str) -> None:
    groups = GroupSet(g.trivial(), g.z2())
    made = network(dtype, groups, paths)
    prior = Prior.from_network(made, on="lengthscales")
    decide = ("lengthscale", "offset")
    free = [group.name for group in prior if group.role in decide and group.path == "S-FC"]
    assert len(free) == 2 * 3
    prior.take_out(made, free)
    x, y = torch.randn(12, 1, 8, 8, dtype=dtype), torch.randn(12, 3, dtype=dtype)
    evidence = Evidence(made, Gaussian(), prior)
    evidence.collect((x, y))
    with torch.no_grad():
        expected = made(x)
        bare = [layer.only([p for p in layer.paths if p != "S-FC"]) for layer in made.layers]
        changed = bare[0](x) - made.layers[0](x)
        assert float(changed.abs().max()) > 0.1 * float(made.layers[0](x).std())
        unchanged(expected, made.strict("z2")(x))
        # Under the rule "gamma" every path with curvature is alive.
        found = selection(made, evidence, rule=Rule(by="gamma", share=1e-9))
        others = [p for p in made.layers[0].paths if p != "S-FC"]
        assert all("S-FC" not in live for live in found.kept.values())
        assert all(list(live) == others for live in found.kept.values()), found.kept
        assert found.verdict == "z2"
        unchanged(expected, harden(made, found)(x))
        unchanged(expected, harden(made, found.kept)(x))
        unchanged(expected, harden(made)(x))
        assert_equivariant(
            made.layers[0].strict("z2"), made.layers[0].space_in, made.layers[0].space_out, g.z2()
        )


def test_a_dead_lengthscale_that_was_not_taken_out_leaves_its_constant() -> None:
    groups = GroupSet(g.trivial(), g.z2())
    made = network(torch.float64, groups, "S-FC+S-CONV")
    evidence = Evidence(made, Categorical(), Prior.from_network(made, on="lengthscales"))
    x = torch.randn(12, 1, 8, 8, dtype=torch.float64)
    evidence.collect((x, torch.arange(12) % 3))
    found = selection(made, evidence, rule=Rule(nats=1e9))
    assert found.verdict == "undecided"
    assert set(found.stationary.values()) == {("S-FC", "S-CONV")}
    plain = harden(made, found)
    with torch.no_grad():
        for parameter in [p for n, p in made.named_parameters() if "omega" in n]:
            parameter.zero_()
        unchanged(made(x), plain(x))


def test_a_constant_that_mixes_the_fibre_limits_the_verdict() -> None:
    """On a regular fibre the constant of S-FC obeys shifts, not rotations."""
    groups = GroupSet(g.trivial(), g.z2(), g.p4())
    space = groups.space((4, 4), 1)
    net = nn.Sequential(
        ResidualPathway(space, space, groups, "S-FC+GCONV"), nn.Flatten(), nn.Linear(64, 2)
    )
    for on, expected in (("weights", "p4"), ("lengthscales", "z2")):
        prior = Prior.from_network(net, on=on)  # type: ignore[arg-type]
        evidence = Evidence(net, Categorical(), prior)
        evidence.collect((torch.randn(12, 4, 4, 4), torch.arange(12) % 2))
        found = selection(net, evidence, rule=Rule(by="gamma", share=0.5))
        if found["0"].live != ("GCONV",):
            pytest.fail(f"the case needs a dead S-FC, got {found}")
        assert found.verdict == found["0"].verdict == expected
        assert type(found).from_dict(found.as_dict()) == found
