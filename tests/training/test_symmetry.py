"""`find_symmetry` on small data whose symmetry is known, or that have nothing to learn."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import groupella.training._candidates as module
from groupella.decide.claims import Claims, Comparison, Judgement
from groupella.groups import GroupSet, Symmetry, c4, d4, flips, p4, permutations, trivial, z2
from groupella.networks import InvariantNet
from groupella.nn.normalisation import ChannelNorm
from groupella.nn.shared_maps import FactorTooLargeError
from groupella.testing import equivariance_error
from groupella.training import (
    FindSettings,
    FoundSymmetry,
    Interrupted,
    find_symmetry,
    strict_networks,
)

Data = tuple[Tensor, Tensor]
QUICK = FindSettings(width=8, epochs=10)
SHORT = FindSettings(width=4, epochs=2)
NAMES = ("flips(0)", "flips")


def patches(n: int, seed: int = 0, above: float = 0.0, noise: float = 0.1) -> Data:
    """One of four patches anywhere on the torus, in noise; the label says which.

    Of those in the upper half, a share `above` has a label of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.tensor(
        [
            [[1, 1, 1], [0, 0, 0], [0, 0, 0]],
            [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
            [[1, 0, 1], [0, 0, 0], [1, 0, 1]],
            [[0, 1, 0], [1, 1, 1], [0, 1, 0]],
        ]
    ).float()
    y = torch.arange(n) % 4
    x = noise * torch.randn(n, 1, 8, 8, generator=generator)
    x[:, 0, :3, :3] += drawn[y]
    shifts = torch.randint(8, (n, 2), generator=generator)
    moved = [one.roll(tuple(s), (1, 2)) for one, s in zip(x, shifts.tolist(), strict=True)]
    told = (shifts[:, 0] < 4) & (torch.rand(n, generator=generator) < above)
    return torch.stack(moved), torch.where(told, 4, y)


def quadrants(n: int, seed: int = 0) -> Data:
    """A bright pixel in noise; the label is the quadrant that it is in."""
    generator = torch.Generator().manual_seed(seed)
    sites = torch.randint(8, (n, 2), generator=generator)
    x = 0.1 * torch.randn(n, 1, 8, 8, generator=generator)
    x[torch.arange(n), 0, sites[:, 0], sites[:, 1]] += 2.0
    return x, 2 * (sites[:, 0] >= 4).long() + (sites[:, 1] >= 4).long()


def sets(n: int, ordered: bool) -> Data:
    """Six numbers; the label is the sign of the first, or whether their squares are large."""
    x = torch.randn(n, 1, 6, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0, 0] > 0 if ordered else x.square().sum((1, 2)) > 5.35).long()


def search(data: Data, *groups: Symmetry, settings: FindSettings = QUICK) -> FoundSymmetry:
    return find_symmetry(data, GroupSet(*groups), settings=settings, progress=False)


def assert_invariant(found: FoundSymmetry, x: Tensor) -> None:
    symmetry = found.symmetry
    space = GroupSet(symmetry).space(x.shape[2:], x.shape[1], "trivial")
    assert isinstance(found.network, InvariantNet)
    assert not any(isinstance(m, ChannelNorm) for m in found.network.modules())
    assert float(equivariance_error(found.network, space, None, symmetry, inputs=x[:8])) < 1e-4


def test_patches_anywhere_obey_shifts() -> None:
    data = patches(400)
    found = search(data, z2())
    assert found.verdict == "z2"
    assert found.symmetry.name == "z2"
    assert found.judgement.probability > 0.9
    x, y = patches(400, seed=1)
    with torch.no_grad():
        assert float((found.network(x).argmax(1) == y).float().mean()) > 0.95
    assert_invariant(found, x)
    selected = found.selection(data)
    assert selected.verdict == "z2"
    assert set(selected.verdicts.values()) == {"z2"}
    assert selected.judgement == found.judgement


@pytest.mark.slow
def test_groups_that_hold_one_by_one_are_imposed_together_before_both_are_asserted() -> None:
    x, y = patches(400)
    keep = (y == 1).logical_not()  # a diagonal is no mirror image of itself
    sides = (flips(0), flips(1))
    found = search((x[keep], y[keep].unique(return_inverse=True)[1]), *sides)
    assert found.verdict == "flips(0) and flips"
    assert [row.name for row in found.consequences] == ["chance", "free", *NAMES, "flips(0)&flips"]
    assert found.judgement.findings[-1].outcome == "holds"
    for side in sides:
        space = GroupSet(side).space((8, 8), 1, "trivial")
        assert float(equivariance_error(found.network, space, None, side)) < 1e-4


def test_a_network_too_wide_for_curvature_has_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    data = quadrants(40)
    found = search(data, p4(), settings=SHORT)

    def too_wide(*_: object) -> None:
        raise FactorTooLargeError("4608 rows")

    monkeypatch.setattr("groupella.training._found.observed", too_wide)
    said = found.selection(data)
    assert not said.is_measured
    assert said.verdict == found.verdict
    assert set(said.verdicts.values()) == {found.verdict}


def test_a_place_that_matters_a_little_is_not_overlooked() -> None:
    """The free network learns the patches badly, so that shifts seem to cost nothing."""
    data = patches(500, above=0.4, noise=0.3)
    found = search(data, z2(), settings=replace(QUICK, looks=1, layers=False))
    assert found.verdict == "none"
    (finding,) = found.judgement.findings
    assert finding.imposing is not None
    assert finding.leftover is not None
    assert finding.imposing.mean > 0  # z2's network predicts better
    assert "depends on what a network without symmetry sees" in finding.reason


def test_quadrants_obey_nothing() -> None:
    data = quadrants(400)
    found = search(data, z2())
    assert found.verdict == "none"
    assert found.symmetry.is_trivial
    x, y = quadrants(400, seed=1)
    with torch.no_grad():
        assert float((found.network(x).argmax(1) == y).float().mean()) > 0.9
    assert found.selection(data).verdict == "none"


@pytest.mark.parametrize("ordered", [False, True])
def test_sets(ordered: bool) -> None:
    data = sets(800, ordered)
    found = search(data, permutations(6), settings=replace(QUICK, epochs=20))
    assert found.verdict == ("none" if ordered else permutations(6).name)
    assert_invariant(found, data[0])
    assert np.isfinite(found.selection(data).log_evidence)


def test_one_target_of_many_that_has_an_order_is_not_overlooked() -> None:
    """Eight targets are symmetric, and explained nearly completely; one is half of an entry."""
    x, _ = sets(600, ordered=False)
    random = torch.Generator().manual_seed(1)
    parts = torch.stack([x.mean((1, 2)), x.square().mean((1, 2)), x.amax((1, 2))], 1)
    y = parts @ torch.randn(3, 8, generator=random)
    y = (y - y.mean(0)) / y.std(0)
    entry = x[:, 0, :1] + torch.randn(len(x), 1, generator=random)
    data, group = (x, torch.cat([y, entry / 2**0.5], 1)), permutations(6)
    settings = replace(QUICK, epochs=40, looks=1)
    for targets, verdict in ((data[1], "none"), (y, group.name)):
        found = find_symmetry(
            (x, targets), GroupSet(group), settings=settings, task="regression", progress=False
        )
        assert found.verdict == verdict


def nothing_to_learn(kind: str) -> Data:
    generator = torch.Generator().manual_seed(3)
    if kind == "random labels":
        x = torch.randn(300, 1, 8, 8, generator=generator)
        return x, torch.randint(4, (300,), generator=generator)
    if kind == "constant images":
        return torch.ones(200, 1, 8, 8), torch.randint(4, (200,), generator=generator)
    return quadrants(20)


@pytest.mark.parametrize("kind", ["random labels", "constant images", "20 samples"])
def test_where_nothing_can_be_learned_nothing_is_said(kind: str) -> None:
    data = nothing_to_learn(kind)
    found = search(data, z2(), c4(), settings=replace(QUICK, epochs=6))
    assert found.verdict == "undecided"
    assert found.judgement.obeys is None
    assert found.judgement.reason
    chance = found.consequences[0]
    assert chance.name == "chance"
    assert found.selection(data).verdict == "undecided"


def test_consequences_are_those_of_each_network_on_held_out_data() -> None:
    said: list[str] = []
    x, y = quadrants(120)
    found = find_symmetry(
        (x, y), GroupSet(z2(), c4()), settings=SHORT, progress=False, say=said.append
    )
    rows = {row.name: row for row in found.consequences}
    assert list(rows) == ["chance", "free", "z2", "c4"]
    train, held = module.split(y, SHORT)
    share = torch.bincount(y[train], minlength=4).argmax()
    assert rows["chance"].accuracy == pytest.approx(float((y[held] == share).float().mean()))
    for name in ("free", "z2", "c4"):
        row = rows[name]
        assert row.accuracy is not None
        assert row.nll is not None
        assert row.nll > 0
        assert any(f"{100 * row.accuracy:.1f} %" in line for line in said)
        assert row.parameters is not None
        assert row.log_evidence is not None
        assert row.log_evidence <= 0
    assert rows["free"].equivariance_error is None
    for name in ("z2", "c4"):
        assert rows[name].equivariance_error == pytest.approx(0, abs=1e-4)
    assert [line.partition(":")[0] for line in said] == ["no symmetry", "z2", "c4"]


def test_what_contains_a_group_that_clearly_fails_is_not_trained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nothing counts as familiar: each group is judged by a network of its own.
    settings = replace(SHORT, claims=Claims(familiar=1e-6))
    groups = GroupSet(c4(), d4())
    data = quadrants(240)
    said: list[str] = []
    found = find_symmetry(data, groups, settings=settings, progress=False, say=said.append)
    assert found.verdict == "none"
    assert [line.partition(":")[0] for line in said] == ["no symmetry", "c4"]
    row = found.consequences[-1]
    assert (row.name, row.note) == ("d4", "c4 fails: free, averaged over it")
    free = next(row.nll for row in found.consequences if row.name == "free")
    assert row.nll > free  # type: ignore[operator]
    assert found.judgement.findings[-1].outcome == "rejected"
    # The complete table has its network, which shows the same.
    complete = strict_networks(data, groups, settings=settings, progress=False)
    by_name = {row.name: row.nll for row in complete}
    assert by_name["d4"] > 2 * by_name["free"]  # type: ignore[operator]


def test_the_split_has_the_same_share_of_every_class() -> None:
    y = torch.tensor([0] * 40 + [1] * 12 + [2] * 8)
    train, held = module.split(y, FindSettings())
    assert sorted([*train.tolist(), *held.tolist()]) == list(range(60))
    assert torch.bincount(y[held]).tolist() == [10, 3, 2]
    assert module.split(y, FindSettings(seed=1))[1].tolist() != held.tolist()


def assert_same(one: FoundSymmetry, other: FoundSymmetry) -> None:
    assert one.judgement == other.judgement
    assert one.consequences == other.consequences
    assert one.symmetry == other.symmetry
    theirs = other.network.state_dict()
    for name, weight in one.network.state_dict().items():
        assert torch.equal(weight, theirs[name]), name


def test_the_same_seed_gives_the_same_result_and_another_another() -> None:
    data, groups = quadrants(60), GroupSet(z2())
    first, again = (find_symmetry(data, groups, settings=SHORT, progress=False) for _ in range(2))
    assert_same(first, again)
    torch.manual_seed(5)  # the state outside is neither used nor changed
    state = torch.get_rng_state()
    assert_same(first, find_symmetry(data, groups, settings=SHORT, progress=False))
    assert torch.equal(torch.get_rng_state(), state)
    other = find_symmetry(data, groups, settings=replace(SHORT, seed=1), progress=False)
    assert other.consequences != first.consequences


@pytest.mark.parametrize("at", [0, 1, 2], ids=["free", "z2", "final"])
def test_interrupted_in_any_training_and_resumed_it_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    data, groups = quadrants(60), GroupSet(z2())
    settings = replace(SHORT, longer=1.0)  # the last training has a second epoch too
    whole = find_symmetry(data, groups, settings=settings, progress=False)
    fit, trained = module.fit, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        def press_control_c(*_: Any) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        if len(trained) == at:
            options["on_epoch"] = press_control_c
        trained.append(options["directory"].name)
        return fit(*arguments, **options)

    monkeypatch.setattr(module, "fit", interrupted)
    options: dict[str, Any] = {"settings": settings, "progress": False, "directory": tmp_path}
    with pytest.raises(Interrupted):
        find_symmetry(data, groups, **options)
    assert trained == ["free", "z2", "final"][: at + 1]
    monkeypatch.setattr(module, "fit", fit)
    assert_same(find_symmetry(data, groups, **options), whole)
    assert_same(find_symmetry(data, groups, **options), whole)  # finished: nothing is trained


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 129, 193, 1400, 4033, 4097, 8193])
def test_batches_are_about_equal_and_none_has_one_sample(n: int) -> None:
    settings = FindSettings().training(n)
    batch = settings.batch_size
    assert batch <= max(FindSettings().batch_size + 2, 1)
    assert n % batch != 1 or n == 1
    assert 8 <= settings.epochs <= 80


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="the same label"):
        search((torch.randn(50, 1, 8, 8), torch.ones(50).long()), z2())


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="confirm must be 'predictions' or 'evidence'"):
        FindSettings(confirm="guess")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="longer must be positive"):
        FindSettings(longer=0.0)
    for share in (0.0, 1.0, -0.1):
        with pytest.raises(ValueError, match="held_out must lie between 0 and 1"):
            FindSettings(held_out=share)


def bars(n: int, seed: int = 0) -> Data:
    """A long or a broken bar anywhere, lying or upright: the label says which of the four."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 4
    drawn = torch.zeros(4, 8, 8)
    drawn[0, 0, :4] = drawn[1, :4, 0] = 1.0
    drawn[2, 0, [0, 1, 3, 4]] = drawn[3, [0, 1, 3, 4], 0] = 1.0
    shifts = torch.randint(8, (n, 2), generator=generator).tolist()
    x = torch.stack([drawn[k].roll(tuple(s), (0, 1)) for k, s in zip(y, shifts, strict=True)])
    return (x + 0.1 * torch.randn(n, 8, 8, generator=generator))[:, None], y


def test_layers_obey_turns_where_labels_do_not() -> None:
    data = bars(400)
    said: list[str] = []
    groups = GroupSet(z2(), p4())
    settings = FindSettings(width=16, epochs=15)
    found = find_symmetry(data, groups, settings=settings, progress=False, say=said.append)
    assert found.verdict == "z2"
    # Averaging over turns was enough to reject them.
    assert [line.partition(":")[0] for line in said] == ["no symmetry", "z2"]
    assert "averaged" in found.consequences[-1].note
    (strict,) = (f for f in found.judgement.layers if f.holds)
    assert strict.candidate == "p4"
    selected = found.selection(data)
    layers = list(selected.layers)
    assert [s.verdict for s in layers[: strict.depth]] == ["p4"] * strict.depth
    assert layers[0].probability == strict.probability
    assert selected.verdict == "z2"
    assert_invariant(found, data[0])
    for layer in list(found.network.layers)[: strict.depth]:
        error = equivariance_error(layer, layer.space_in, layer.space_out, p4())  # type: ignore[arg-type]
        assert float(error) < 1e-5
    # Without the question every layer obeys what the labels do.
    plain = search(data, z2(), p4(), settings=replace(settings, layers=False))
    assert plain.judgement.layers == ()
    assert set(plain.selection(data).verdicts.values()) == {"z2"}
    # The complete table has a network for every candidate.
    rows = strict_networks(data, groups, settings=settings, progress=False)
    assert [row.name for row in rows] == ["chance", "free", "z2", "p4"]
    assert not any(row.note for row in rows)


def test_where_data_cannot_tell_others_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    data = quadrants(60)
    undecided = Judgement(None, 0.5, "the held-out data cannot tell", open=("z2",))
    monkeypatch.setattr(Comparison, "judgement", undecided)
    found = find_symmetry(data, GroupSet(z2()), settings=SHORT, progress=False, say=said.append)
    assert [line.partition(":")[0] for line in said] == ["no symmetry", "z2"] * 2
    assert found.verdict == "undecided"


@pytest.mark.slow
def test_by_the_evidence_alone_every_candidate_has_a_network() -> None:
    settings = replace(QUICK, confirm="evidence", layers=False)
    found = search(patches(240), z2(), p4(), settings=settings)
    assert found.verdict == "z2"
    rows = {row.name: row for row in found.consequences}
    assert rows["z2"].log_evidence > rows["p4"].log_evidence  # type: ignore[operator]
    assert not any(row.note for row in rows.values())


def test_folds_hold_out_different_data() -> None:
    y = torch.arange(200) % 5
    first, second = (module.split(y, FindSettings(), fold)[1] for fold in (0, 1))
    assert len(first) == len(second) == 50
    assert not set(first.tolist()) & set(second.tolist())


@pytest.mark.parametrize("looks", [0, 5])
def test_looks_that_cannot_be_are_refused(looks: int) -> None:
    with pytest.raises(ValueError, match=r"looks must be .*at least 1"):
        FindSettings(looks=looks)


def test_noise_in_labels_is_not_learned_by_heart_again(tmp_path: Path) -> None:
    """Three labels in ten are wrong; networks that are trained for long know them all."""

    def spread(n: int, seed: int) -> tuple[Tensor, Tensor]:
        x = torch.randn(n, 1, 8, generator=torch.Generator().manual_seed(seed))
        return x, (x[:, 0].std(1) > 0.97).long()

    x, y = spread(480, 10)
    wrong = torch.rand(len(y), generator=torch.Generator().manual_seed(11)) < 0.3
    found = find_symmetry(
        (x, torch.where(wrong, 1 - y, y)),
        GroupSet(trivial(), permutations(8)),
        settings=FindSettings(epochs=40, width=16),
        directory=tmp_path,
        progress=False,
    )
    assert (tmp_path / "free-2-short").exists()
    assert found.verdict == "undecided"
    assert found.fit.settings.epochs <= 20
    # The short look alone would hand over the free network, with 0.71 right; both looks do not.
    truth_x, truth = spread(1000, 12)
    assert float((found.network(truth_x).argmax(1) == truth).double().mean()) > 0.85


def test_labels_that_obey_even_permutations_are_not_said_to_obey_nothing() -> None:
    """No linear layer on four points tells even permutations from all, so none imposes them."""
    even = Symmetry.from_generators("a4", 4, [[1, 2, 0, 3], [1, 0, 3, 2]])
    x = torch.randn(2000, 1, 4, generator=torch.Generator().manual_seed(0))
    gaps = x[:, 0, :, None] - x[:, 0, None, :]
    first, second = torch.triu_indices(4, 4, 1)
    y = (gaps[:, first, second].prod(1) > 0).long()
    settings = FindSettings(looks=1)
    groups = GroupSet(trivial(), even, permutations(4))
    found = find_symmetry((x, y), groups, settings=settings, progress=False)
    outcomes = {f.candidate: f.outcome for f in found.judgement.findings}
    assert outcomes == {"a4": "open", "s4": "rejected"}
    assert found.verdict == "undecided"
