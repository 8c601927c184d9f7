"""The search for the best network: which start goes on, and which doubtful paths go."""

from __future__ import annotations

import copy
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from groupella.decide import (
    Candidates,
    LayerSelection,
    PathSelection,
    Rule,
    verdict,
    verdict_text,
)
from groupella.evidence.likelihoods import Gaussian
from groupella.experiments.planted import DeepCase
from groupella.experiments.planted import _deep as deep
from groupella.groups import GroupSet, p4, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.training import CheckpointError, Settings, fit
from groupella.training import _search as search

DATA = (torch.zeros(1), torch.zeros(1))


LOOKS = {"a": 100.0, "b": 150.0, "c": 900.0, "d": 1.0}
WORTH = {"a": 3.0, "b": 200.0, "c": 900.0, "d": 0.0}
MEMBERS = {"a": ("z2",), "b": ("z2",), "c": ("z2", "p4"), "d": ()}


@dataclass
class Student:
    """A fit of a layer with four paths, which look as if they were worth 100, 150, 900 and 1 nats;
    in truth a is worth 3. The factored evidence likes every path out."""

    out: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)

    @property
    def prior(self) -> Any:
        def of_path(layer: str, path: str) -> list[Any]:
            return [SimpleNamespace(name=f"{layer}/{path}")]

        return SimpleNamespace(of_path=of_path, is_out=lambda name: name in self.out)

    @property
    def network(self) -> nn.Module:
        module = nn.Module()
        module.register_buffer("out", torch.tensor([len(self.out)]))
        return module

    @property
    def evidence(self) -> Student:
        return self

    @property
    def exact(self) -> float:
        return -sum(WORTH[name[-1]] for name in self.out)

    @property
    def log_evidence(self) -> float:
        return 30.0 * len(self.out)

    def selection(self, *, rule: Rule) -> Any:
        worth = {p: 0.0 if f"layers.0/{p}" in self.out else v for p, v in LOOKS.items()}
        paths = tuple(
            PathSelection(p, 1.0, 1.0, 1, 1.0, 0.25, -v, v >= rule.nats, MEMBERS[p])
            for p, v in worth.items()
        )
        candidates = Candidates.seen_in(MEMBERS.values())
        obeyed = verdict_text(verdict([p.members for p in paths if p.alive], candidates))
        layer = LayerSelection("layers.0", paths, obeyed)
        return SimpleNamespace(layers=[layer], candidates=candidates)


@pytest.fixture
def size() -> int:
    return 100


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch, size: int) -> list[list[str]]:
    """What was taken out in each training."""
    seen: list[list[str]] = []

    def on(student: Student, without: list[str], *_: Any) -> Student:
        seen.append(without)
        return replace(student, out=tuple(dict.fromkeys((*student.out, *without))))

    def exact(student: Student, *_: Any, subset: int) -> Any:
        factored = [] if "layers.0/b" in student.out else ["layers.0/b"]
        return SimpleNamespace(log_evidence=student.exact, factored=factored)

    monkeypatch.setattr(search, "_train_on", on)
    monkeypatch.setattr(search, "exact_evidence", exact)
    monkeypatch.setattr(search, "joint_size", lambda _: size)
    return seen


def test_doubtful_paths_go_unless_the_exact_evidence_falls(
    tried: list[list[str]], tmp_path: Path
) -> None:
    found, trials = search.settle(Student(), DATA, directory=tmp_path)  # type: ignore[arg-type]
    dead, a, b = "layers.0/d", "layers.0/a", "layers.0/b"
    assert tried == [[dead], [dead, a], [a, dead], [a, dead, b]]
    assert [p.name for p in sorted(tmp_path.glob("*/trial.json"))] == ["trial.json"] * 2
    assert found.out == (dead, a)  # type: ignore[attr-defined]
    assert [t.gain for t in trials] == [-3.0, -200.0]
    assert [t.factored_gain for t in trials] == [30.0, 30.0]
    assert [t.out for t in trials] == [True, False]
    assert [t.is_exact for t in trials] == [True, False]


@pytest.mark.parametrize("size", [10**6])
@pytest.mark.usefixtures("tried")
def test_the_factored_evidence_decides_where_the_network_is_too_large() -> None:
    found, trials = search.settle(Student(), DATA)  # type: ignore[arg-type]
    assert found.out == ("layers.0/d", "layers.0/a", "layers.0/b")  # type: ignore[attr-defined]
    assert [(t.gain, t.is_exact) for t in trials] == [(30.0, False)] * 2


@pytest.mark.usefixtures("tried")
def test_a_directory_with_a_trial_of_something_else_is_refused(tmp_path: Path) -> None:
    search.settle(Student(), DATA, directory=tmp_path)  # type: ignore[arg-type]
    search.settle(Student(), DATA, directory=tmp_path)  # type: ignore[arg-type]
    other = Student(out=("layers.0/a",))
    with pytest.raises(CheckpointError, match="doubt0 holds trainings of another network"):
        search.settle(other, DATA, directory=tmp_path)  # type: ignore[arg-type]
    note = next(tmp_path.glob("*/trial.json"))
    note.write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"trial\.json is truncated or is not JSON"):
        search.settle(Student(), DATA, directory=tmp_path)  # type: ignore[arg-type]


@pytest.mark.usefixtures("tried")
def test_the_strictest_path_of_a_layer_stays_although_it_is_dead() -> None:
    assert search._dead(Student().selection(rule=Rule(nats=950.0))) == [
        ("layers.0", "a"),
        ("layers.0", "b"),
        ("layers.0", "d"),
    ]


@pytest.mark.parametrize(
    "bad",
    [
        {"restarts": 0},
        {"restarts": 1.5},
        {"first": 0},
        {"finalists": 0},
        {"again": 0},
        {"subset": 0},
        {"doubt": 1.0},
        {"doubt": float("nan")},
        {"most_trials": -1},
    ],
)
def test_bad_searches_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        search.Search(**bad)


@pytest.mark.parametrize(("out", "expected"), [((), []), (("layers.0/b",), ["a"])])
@pytest.mark.usefixtures("tried")
def test_a_path_on_which_the_verdict_hangs_is_tried_whatever_it_seems_worth(
    out: tuple[str, ...], expected: list[str]
) -> None:
    _, trials = search.settle(Student(out), DATA, search.Search(doubt=50.0))  # type: ignore[arg-type]
    assert [t.path for t in trials] == expected


def test_the_number_of_trials_is_limited(tried: list[list[str]], tmp_path: Path) -> None:
    limited = search.Search(doubt=1000, most_trials=1)
    search.settle(Student(), DATA, limited)  # type: ignore[arg-type]
    assert tried == [["layers.0/d"], ["layers.0/d", "layers.0/a"]]


@dataclass
class Pair(Student):
    """A fit of two layers with the paths z (obeys z2), q (p4), m (p4m) and a dead one, d.

    `without` is the exact evidence without some of them, by their names; layer 0 comes first."""

    without: dict[str, float] = field(default_factory=dict)
    live: str = "zm"

    @property
    def exact(self) -> float:
        out = " ".join(name[7:] for name in sorted(self.out) if name[-1] in self.live)
        return self.without.get(out, -1000.0 if out else 0.0)

    def selection(self, *, rule: Rule) -> Any:
        members = {"z": ("z2",), "q": ("z2", "p4"), "m": ("z2", "p4", "p4m"), "d": ()}
        layers = []
        for layer in ("layers.0", "layers.1"):
            alive = [p in self.live and f"{layer}/{p}" not in self.out for p in members]
            paths = tuple(
                PathSelection(p, 1.0, 1.0, 1, 1.0, 0.25, -900.0 * one, one, members[p])
                for p, one in zip(members, alive, strict=True)
            )
            layers.append(LayerSelection(layer, paths, "z2"))
        inside = {"z2": (), "p4": ("z2",), "p4m": ("z2", "p4")}
        return SimpleNamespace(layers=layers, candidates=Candidates(tuple(inside), inside))

    def settled(self, directory: Path | None = None) -> tuple[list[str], list[tuple[Any, ...]]]:
        """The live paths that are out in the end; layer, path, gain and outcome of all trials."""
        one, trials = search.settle(self, DATA, directory=directory)  # type: ignore[arg-type]
        out = sorted(n[7:] for n in one.out if n[-1] in self.live)  # type: ignore[attr-defined]
        return out, [(t.layer, t.path, t.gain, t.out) for t in trials]


STUCK = {"0/z": -50.0, "1/z": -50.0}  # no layer can do without its path while the other has one


def test_a_candidate_is_imposed_on_layers_that_share_a_poor_optimum(
    tried: list[list[str]], tmp_path: Path
) -> None:
    out, trials = Pair(without={**STUCK, "0/z 1/z": 100.0}).settled(tmp_path)
    assert out == ["0/z", "1/z"]
    assert trials[:2] == [(None, "p4m", 100.0, True), (None, "p4", 100.0, False)]
    assert trials[2:4] == [("layers.0", "z", 150.0, True), ("layers.1", "z", 150.0, True)]
    dead = [f"layers.{i}/{p}" for i in (0, 1) for p in "qd"]
    assert sorted(tried[0]) == sorted(dead)
    assert all(not name.endswith("/q") for name in tried[2])  # p4 may want its dead path
    assert (tmp_path / "impose" / "trial.json").exists()
    with pytest.raises(CheckpointError, match="another network"):
        Pair(("layers.0/d",)).settled(tmp_path)


@pytest.mark.parametrize("gain", [-11.0, 9.0])
@pytest.mark.usefixtures("tried")
def test_a_candidate_that_does_not_gain_is_not_imposed(gain: float) -> None:
    out, trials = Pair(without={**STUCK, "0/z 1/z": gain}).settled()
    assert trials[0] == (None, "p4m", gain, False)
    assert out == []


@pytest.mark.parametrize(("p4", "expected"), [(109.0, "zq"), (111.0, "z")])
@pytest.mark.usefixtures("tried")
def test_a_weaker_candidate_that_is_better_is_imposed_instead(p4: float, expected: str) -> None:
    without = {"0/q 0/z 1/q 1/z": 100.0, "0/z 1/z": p4}
    out, _ = Pair(without=without, live="zqm").settled()
    assert out == sorted(f"{i}/{p}" for i in (0, 1) for p in expected)


@pytest.mark.parametrize(
    ("without", "spared", "expected"),
    [
        ({"0/z": 109.0, "1/z": -50.0}, [], ["0/z", "1/z"]),
        ({"0/z": 111.0, "1/z": -50.0}, ["layers.1"], ["0/z"]),
        ({"0/z": -50.0, "1/z": 111.0}, ["layers.0"], ["1/z"]),
        ({"0/z": 111.0, "1/z": 111.0}, ["layers.0", "layers.1"], ["0/z"]),  # then 0/z is doubted
    ],
)
@pytest.mark.usefixtures("tried")
def test_a_layer_that_is_better_with_its_paths_gets_them_back(
    without: dict[str, float], spared: list[str], expected: list[str]
) -> None:
    out, trials = Pair(without={**without, "0/z 1/z": 100.0}).settled()
    assert trials[0] == (None, "p4m", 100.0, True)
    assert [layer for layer, _, _, imposed in trials[2:4] if not imposed] == spared
    assert out == expected


@pytest.mark.parametrize("size", [10**6])
@pytest.mark.usefixtures("tried")
def test_nothing_is_imposed_by_factored_evidence() -> None:
    assert not any(out for layer, _, _, out in Pair().settled()[1] if layer is None)


@pytest.mark.usefixtures("tried")
def test_nothing_is_imposed_on_a_layer_that_would_be_empty() -> None:
    assert all(layer is not None for layer, *_ in Pair(live="z").settled()[1])
    none = search.Search(most_trials=0)
    assert search.settle(Pair(), DATA, none)[1] == ()  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("finalists", [1, 2, 5])
def test_the_best_finalist_of_the_best_starts_is_kept(tmp_path: Path, finalists: int) -> None:
    train, _, teacher = deep.draw(DeepCase(("p4m", "p4m", "p4m"), n=100))

    def make(start: int) -> Any:
        return deep._student(0, start, train[0], teacher)

    settings = replace(deep.STUDENT, epochs=3, burn_in=2, curvature_subset=50)
    few = search.Search(restarts=3, first=2, finalists=finalists)
    found = search.best_start(make, train, settings, few, directory=tmp_path, progress=False)
    short = replace(settings, epochs=2)
    starts = [fit(make(i), train, settings=short, progress=False) for i in range(3)]
    order = sorted(range(3), key=[-one.log_evidence for one in starts].__getitem__)
    again = replace(settings, burn_in=1)
    ends = [
        fit(starts[i].network, train, settings=again, prior=starts[i].prior, progress=False)
        for i in order[:finalists]
    ]
    best = max(ends, key=lambda one: one.log_evidence)
    assert {p.name for p in tmp_path.glob("best*")} == {f"best{i}" for i in order[:finalists]}
    for place in tmp_path.glob("best*"):
        shutil.rmtree(place)
    resumed = search.best_start(make, train, settings, few, directory=tmp_path, progress=False)
    for name, weight in best.network.state_dict().items():
        assert torch.equal(found.network.state_dict()[name], weight)
        assert torch.equal(resumed.network.state_dict()[name], weight)


def shifted() -> tuple[nn.Sequential, tuple[torch.Tensor, torch.Tensor]]:
    """A layer with paths for p4, z2 and neither, and data that need z2."""
    torch.manual_seed(0)
    groups = GroupSet(trivial(), z2(), p4())
    space = groups.space((4, 4), 1, "trivial")
    network = nn.Sequential(ResidualPathway(space, space, groups), nn.Flatten())
    x = torch.randn(200, 1, 4, 4)
    data = (x, (x - 0.5 * x.roll(1, dims=3)).flatten(1) + 0.1 * torch.randn(200, 16))
    return network, data


@pytest.mark.slow
def test_a_path_that_the_data_need_stays_and_the_given_network_too(tmp_path: Path) -> None:
    network, data = shifted()
    trained = fit(network, data, Gaussian(), epochs=60, lr=0.02, progress=False)
    before = {n: w.clone() for n, w in network.state_dict().items()}
    every = search.Search(doubt=1e9, again=30)
    found, trials = search.settle(trained, data, every, directory=tmp_path, progress=False)
    assert {(t.path, t.out) for t in trials} == {("z2", False), ("p4", False)}
    assert all(t.gain == pytest.approx(t.factored_gain, rel=0.05) for t in trials)
    assert found.selection().verdicts == {"0": "z2"}
    assert all(found.prior.is_out(g.name) for g in found.prior.of_path("0", "trivial"))
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, before[name])
    again, repeated = search.settle(trained, data, every, directory=tmp_path, progress=False)
    assert repeated == trials
    assert again.log_evidence == found.log_evidence


def test_a_network_goes_on_with_more_data_without_its_dead_paths(tmp_path: Path) -> None:
    network, data = shifted()
    part = (data[0][:50], data[1][:50])
    options: dict[str, Any] = {"lr": 0.02, "prune_from": None}
    trained = fit(network, part, Gaussian(), epochs=60, progress=False, **options)
    before = {n: w.clone() for n, w in network.state_dict().items()}
    settings, strict = Settings(epochs=20, **options), search.Search(rule=Rule(nats=10.0))
    assert not any(trained.prior.is_out(g.name) for g in trained.prior)
    found = search.go_on(trained, data, settings, strict, directory=tmp_path, progress=False)
    out = {path: found.prior.is_out(f"0/{path}") for path in ("trivial", "z2", "p4")}
    assert out == {"trivial": True, "z2": False, "p4": False}
    assert found.selection().verdicts == {"0": "z2"}
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, before[name])

    expected, prior = copy.deepcopy((trained.network, trained.prior))
    prior.take_out(expected, ["0/trivial", "0/trivial/offset"])
    noise = copy.deepcopy(trained.likelihood)
    fit(expected, data, noise, settings, prior=prior, progress=False)
    for name, weight in expected.state_dict().items():
        assert torch.equal(found.network.state_dict()[name], weight)

    again = search.go_on(trained, data, settings, strict, directory=tmp_path, progress=False)
    assert again.log_evidence == found.log_evidence
    with pytest.raises(CheckpointError, match="holds trainings of another network"):
        search.go_on(found, data, settings, strict, directory=tmp_path, progress=False)
    (tmp_path / "whole" / "trial.json").unlink()
    with pytest.raises(CheckpointError, match="holds trainings without their"):
        search.go_on(found, data, settings, strict, directory=tmp_path, progress=False)
