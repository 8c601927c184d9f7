"""The search for a deep student: which start goes on, and which doubtful paths go."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from groupella.experiments.planted import DeepCase
from groupella.experiments.planted import _deep as deep
from groupella.experiments.planted import _search as search
from groupella.training import Settings

DATA = (torch.zeros(1), torch.zeros(1))


class Groups:
    """A prior that names one group for each path."""

    def of_path(self, layer: str, path: str) -> list[Any]:
        return [SimpleNamespace(name=f"{layer}/{path}")]


@dataclass
class Student:
    """A fit whose evidence depends on which paths are out; the factored one likes all out."""

    out: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    prior: Groups = field(default_factory=Groups)
    worth: dict[str, float] = field(
        default_factory=lambda: {"a": 3.0, "b": 200.0, "c": 900.0, "d": 0.0}
    )

    @property
    def exact(self) -> float:
        return -sum(self.worth[name[-1]] for name in self.out)

    @property
    def log_evidence(self) -> float:
        return 30.0 * len(self.out)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Paths look as if they were worth 100, 150, 900 and 1 nats; a in truth is worth 3."""
    seen: list[list[str]] = []

    def on(student: Student, without: list[str], *_: Any) -> Student:
        seen.append(without)
        return replace(student, out=tuple(dict.fromkeys((*student.out, *without))))

    def decided(student: Student, nats: float) -> Any:
        looks = {"a": 100.0, "b": 150.0, "c": 900.0, "d": 1.0}
        gone = {name[-1] for name in student.out}
        worth = {p: 0.0 if p in gone else v for p, v in looks.items()}
        paths = [SimpleNamespace(path=p, removal=-v, alive=v >= nats) for p, v in worth.items()]
        return SimpleNamespace(layers=[SimpleNamespace(layer="layers.0", paths=paths)])

    monkeypatch.setattr(search, "_on", on)
    monkeypatch.setattr(search, "decided", decided)
    monkeypatch.setattr(search, "_exact", lambda student, *_: student.exact)
    return seen


def test_doubtful_paths_go_unless_the_exact_evidence_falls(
    tried: list[list[str]], tmp_path: Path
) -> None:
    found, trials = search.settle(Student(), DATA, search.Search(doubt=250), tmp_path)  # type: ignore[arg-type]
    dead, a, b = "layers.0/d", "layers.0/a", "layers.0/b"
    assert tried == [[dead], [dead, a], [a, dead], [a, dead, b]]
    assert found.out == (dead, a)  # type: ignore[attr-defined]
    assert [t["gain"] for t in trials] == [-3.0, -200.0]
    assert [t["factored_gain"] for t in trials] == [30.0, 30.0]


def test_the_number_of_trials_is_limited(tried: list[list[str]], tmp_path: Path) -> None:
    limited = search.Search(doubt=1000, most_trials=1)
    search.settle(Student(), DATA, limited, tmp_path)  # type: ignore[arg-type]
    assert tried == [["layers.0/d"], ["layers.0/d", "layers.0/a"]]


def test_the_start_with_the_highest_evidence_goes_on(tmp_path: Path) -> None:
    train, _, teacher = deep.draw(DeepCase(("p4m", "p4m", "p4m"), n=100))

    def make(start: int) -> Any:
        return deep._student(0, start, train[0], teacher)

    short = replace(deep.STUDENT, epochs=2, burn_in=1, curvature_subset=50)
    few = search.Search(restarts=2, first=2)
    found = search.best_start(make, train, short, few, tmp_path)
    first = [
        search.fit(make(i), train, settings=short, directory=tmp_path / f"start{i}", progress=False)
        for i in range(2)
    ]
    best = max(first, key=lambda one: one.log_evidence)
    other = min(first, key=lambda one: one.log_evidence)
    again = search.fit(best.network, train, settings=short, prior=best.prior, progress=False)
    mine, expected, others = (
        one.network.get_parameter("layers.0.paths.p4m.weight") for one in (found, again, other)
    )
    torch.testing.assert_close(mine, expected)
    assert not torch.allclose(mine, others)
