"""`find_equivariance`: verdicts on laws whose symmetry is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from groupella.decide.claims import FREE
from groupella.experiments.physics import TASKS
from groupella.groups import SCALAR, GroupSet, V, about_axis, orthogonal, rotations
from groupella.training import (
    EquivarianceSettings,
    find_equivariance,
    find_symmetry,
    fit_equivariant,
    outputs,
)
from groupella.training._equivariance import _held_out, _Search

GROUPS = GroupSet(orthogonal(3), rotations(3), about_axis(2))
PAIR = GROUPS.space((), 2, V)
VECTOR = GROUPS.space((), 1, V)
SETTINGS = EquivarianceSettings(channels=4, depth=1, epochs=30, lr=0.02, batch_size=32)


def vectors(n: int) -> tuple[Tensor, Tensor, Tensor]:
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3], x[:, 3:]


@pytest.mark.slow
def test_a_cross_product_turns_but_has_no_mirror_image() -> None:
    x, a, b = vectors(400)
    said: list[str] = []
    found = find_equivariance(
        (x, torch.linalg.cross(a, b)), GROUPS, PAIR, VECTOR, SETTINGS, say=said.append
    )
    assert found.verdict == "SO(3)"
    assert found.symmetry == GROUPS["SO(3)"]
    assert said[0].startswith("no symmetry: held-out R²")
    names = [row.name for row in found.consequences]
    assert names[:2] == ["chance", "free"]
    g = PAIR.sample(GROUPS["SO(3)"], 1)[0]
    network = found.network.double()
    moved = network(PAIR.act(g, x.double()))
    torch.testing.assert_close(moved, VECTOR.act(g, network(x.double())), atol=1e-9, rtol=0)


def test_a_law_without_symmetry_is_not_given_one() -> None:
    x, a, b = vectors(400)
    y = torch.stack([a[:, 0] + b[:, 1], 2 * a[:, 2], b[:, 0] - a[:, 1]], 1)
    found = find_equivariance((x, y), GROUPS, PAIR, VECTOR, SETTINGS)
    assert found.verdict == "none"
    assert found.symmetry.is_trivial
    assert found.network.symmetry is None


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_do_not_change_the_verdict(factor: float) -> None:
    x, a, b = vectors(300)
    x, y = x / factor, factor * (2 * a - b)
    groups = GroupSet(orthogonal(3))
    pair, vector = groups.space((), 2, V), groups.space((), 1, V)
    found = find_equivariance((x, y), groups, pair, vector, SETTINGS)
    assert found.verdict == "O(3)"
    assert (found.network(x) - y).square().mean().sqrt() < 0.1 * factor


def test_a_network_that_may_break_a_symmetry_is_not_ruined_by_it() -> None:
    """Else one that obeys too much would seem to cost nothing."""
    x, a, b = vectors(1150)
    y = (a * b).sum(1, keepdim=True) * a
    settings = replace(SETTINGS, epochs=20)
    errors = []
    for name in ("O(3)", "SO(2)z"):
        data = x[:150], y[:150]
        network = fit_equivariant(data, GROUPS, PAIR, VECTOR, GROUPS[name], settings).network
        errors.append((outputs(network, x[150:]) - y[150:]).square().mean())
    assert errors[1] < 2 * errors[0]


def test_what_only_a_weaker_group_expresses_is_learned() -> None:
    """Cross products are in paths of SO(3), not of O(3): where these are shrunk, they are not."""
    task = TASKS["torque"]
    train, test = task.data(500, 0), task.data(1000, 1)
    settings = EquivarianceSettings(channels=4, depth=1, epochs=20)
    errors = []
    for free in ((), ("SO(3)",)):
        fitted = fit_equivariant(
            train, task.groups, *task.spaces(), task.groups["SO(3)"], settings, free=free
        )
        errors.append((outputs(fitted.network, test[0]) - test[1]).square().mean())
    assert errors[1] < 0.7 * errors[0]


def test_products_of_weights_leave_their_saddle() -> None:
    """With its prior from the first step, this network ends near the mean of the targets."""
    task = TASKS["inertia"]
    train, test = task.data(1000, 0), task.data(1000, 1)
    settings = EquivarianceSettings(epochs=30)
    fitted = fit_equivariant(
        train, task.groups, *task.spaces(), task.groups["O(3)"], settings, free=()
    )
    error = (outputs(fitted.network, test[0]) - test[1]).square().mean()
    assert error < 0.2 * (test[1] - test[1].mean(0)).square().mean()


def test_a_network_is_trained_on_and_handed_over_as_well_trained() -> None:
    x, a, b = vectors(400)
    data = x, torch.linalg.cross(a, b) + a
    settings = replace(SETTINGS, epochs=2, lr=0.005)
    search = _Search(data, GROUPS, PAIR, VECTOR, settings, lambda line: None)
    train, choose, held = _held_out(data, settings)
    group = GROUPS["SO(3)"]
    before, _ = search.best(group, train, choose)
    once = search.trained(group, torch.arange(400)).network
    search.train_on("SO(3)", train, choose)
    search.train_on(FREE, train, choose)
    search.add("SO(3)", train, choose, held)
    assert search.best(group, train, choose)[0] > before + 0.05
    twice = search.trained(group, torch.arange(400)).network
    errors = [(outputs(n, x) - data[1]).square().mean() for n in (once, twice)]
    assert errors[1] < 0.8 * errors[0]


def test_networks_are_chosen_by_other_data_than_claims_are_tested_on() -> None:
    x = torch.randn(100, 6)
    x[50:60] = x[:10]  # copies stay together
    parts = _held_out((x, x), EquivarianceSettings(held_out=0.4))
    assert torch.equal(torch.cat(parts).sort().values, torch.arange(100))
    assert [len(part) for part in parts] == pytest.approx([60, 10, 30], abs=4)
    for part in parts:
        assert torch.equal(
            torch.isin(torch.arange(10), part), torch.isin(torch.arange(50, 60), part)
        )


def test_bad_data_are_refused() -> None:
    x, a, _ = vectors(50)
    with pytest.raises(ValueError, match="expected targets of shape"):
        find_equivariance((x, a[:, :2]), GROUPS, PAIR, VECTOR)
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        find_equivariance((x[:, :4], a), GROUPS, PAIR, VECTOR)
    with pytest.raises(ValueError, match="nothing to learn"):
        find_equivariance((x, torch.ones(50, 1)), GROUPS, PAIR, GROUPS.space((), 1, SCALAR))
    with pytest.raises(ValueError, match="not finite"):
        find_equivariance((x / 0, a), GROUPS, PAIR, VECTOR)
    with pytest.raises(ValueError, match="say which inputs are vectors"):
        find_symmetry((x, torch.arange(50) % 2), GROUPS)
    with pytest.raises(ValueError, match="held_out must lie between 0 and 1"):
        EquivarianceSettings(held_out=1.5)
