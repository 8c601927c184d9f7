"""A budget becomes as many epochs as fit into it, on a machine whose clock is made here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from groupella.data import Augmentation, ImageData
from groupella.evidence import Prior
from groupella.runs.budget import with_budget
from groupella.runs.jobs import Job
from groupella.runs.record import RunError
from groupella.runs.spelling import seconds
from groupella.training import EpochRecord, FindSettings, History, Settings

JOB = Job(
    title="made here",
    data="made here",
    groups="z2",
    alpha=1,
    hidden=4,
    blocks=((1, 1), (2, 2)),
    init="balanced",
    training={"update_every": 2, "curvature_subset": 400},
)
TRAINING, TEST = 20_000, 4_000
HOUR = 3600.0


@dataclass
class Machine:
    """How long everything takes, in seconds; nothing is computed.

    step, datum: a training step, for each batch and for each of its data; forward: a datum without
    gradient; curvature: for each datum; solve: the rest of an update; first: what the first epoch
    and the first update of a process take longer.
    """

    step: float = 0.02
    datum: float = 0.003
    forward: float = 0.0006
    curvature: float = 0.05
    solve: float = 10.0
    first: float = 0.0
    loading: float = 8.0
    now: float = 0.0
    calls: list[dict[str, Any]] = field(default_factory=list)

    def epochs(self, settings: Settings, n: int, validation: int) -> Iterator[float]:
        subset = n if settings.curvature_subset is None else min(settings.curvature_subset, n)
        updated = False
        for epoch in range(settings.epochs):
            taken = -(-n // settings.batch_size) * self.step + n * self.datum
            taken += validation * self.forward + (self.first if epoch == 0 else 0.0)
            if settings.updates_after(epoch):
                part = min(settings.fit_subset or n, n)
                taken += self.update(part, subset) + (0.0 if updated else self.first)
                updated = True
            yield taken

    def update(self, n: int, subset: int) -> float:
        return self.solve + subset * self.curvature + n * self.forward

    def fit(
        self, network: nn.Module, data: Any, likelihood: Any, settings: Settings, **given: Any
    ) -> Any:
        n = len(data[1])
        self.calls.append({"n": n, "settings": settings, **given})
        history = History()
        for epoch, taken in enumerate(self.epochs(settings, n, 0)):
            self.now += taken
            history.records.append(EpochRecord(epoch, 0.0, 0.0, None, 0.0, taken))
        if settings.learns_precisions:
            self.now += self.update(n, min(settings.curvature_subset or n, n))
        return SimpleNamespace(history=history, network=network, likelihood=likelihood)

    def data_fit(self, network: nn.Module, likelihood: Any, data: Any, **_: Any) -> None:
        self.now += len(data[1]) * self.forward

    def whole(self, settings: Settings) -> float:
        """A run after its budget was measured: loading, training, and curvature at its end."""
        taken = self.loading + sum(self.epochs(settings, TRAINING, TEST))
        if settings.learns_precisions:
            taken += self.update(TRAINING, min(settings.curvature_subset or TRAINING, TRAINING))
        return taken


def data(augmentation: Augmentation | None = None) -> ImageData:
    x, y = torch.zeros(TRAINING, 1, 4, 4), torch.zeros(TRAINING, dtype=torch.int64)
    names = ("one", "other")
    made = ImageData(x, y, x[:TEST], y[:TEST], names, "made here", 0, (0.0,), (1.0,))
    return replace(made, augmentation=augmentation)


def install(monkeypatch: pytest.MonkeyPatch, machine: Machine) -> None:
    machine.now += machine.loading
    clock = SimpleNamespace(perf_counter=lambda: machine.now)
    monkeypatch.setattr("groupella.runs.budget.time", clock)
    monkeypatch.setattr("groupella.training.fit", machine.fit)
    monkeypatch.setattr("groupella.evidence.data_fit", machine.data_fit)


@pytest.mark.parametrize(
    "training",
    [
        {},
        {"update_every": 1},
        {"batch_size": 256, "curvature_subset": 2000},
        {"curvature_subset": None, "update_every": 5},
        {"method": "adam", "burn_in": 0},
        {"method": "map"},
    ],
    ids=lambda training: ",".join(training) or "usual",
)
@pytest.mark.parametrize("first", [0.0, 60.0])
def test_a_run_takes_most_of_its_budget_and_never_more(
    monkeypatch: pytest.MonkeyPatch, training: dict[str, Any], first: float
) -> None:
    machine = Machine(first=first)
    if training.get("curvature_subset", 0) is None:
        machine = replace(machine, curvature=0.005, solve=1.0)
    install(monkeypatch, machine)
    job = replace(JOB, training={**JOB.training, **training})
    settings = with_budget(job, HOUR, data()).settings()
    spent = machine.now
    assert spent < 0.2 * HOUR
    taken = spent + machine.whole(settings)
    assert taken < 0.95 * HOUR
    one_more = machine.whole(replace(settings, epochs=settings.epochs + 1))
    assert spent + one_more > 0.8 * HOUR


def test_epochs_that_are_cheap_beside_their_updates_are_counted_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(datum=0.0005, step=0.001, solve=100.0)
    install(monkeypatch, machine)
    settings = with_budget(JOB, HOUR, data()).settings()
    taken = machine.now + machine.whole(settings)
    assert 0.75 * HOUR < taken < 0.95 * HOUR


@pytest.mark.parametrize("method", ["fixed_point", "map"])
def test_the_budget_that_is_advised_will_do(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    machine = Machine()
    install(monkeypatch, machine)
    job = replace(JOB, training={**JOB.training, "method": method})
    with pytest.raises(RunError, match=r"^60s is too short: .* Give about \w+,") as refused:
        with_budget(job, 60.0, data())
    advised = seconds(str(refused.value).partition("Give about ")[2].partition(",")[0])
    assert with_budget(job, advised, data()).settings().epochs >= (1 if method == "map" else 5)


@pytest.mark.parametrize("prior", ["weights", "lengthscales"])
def test_a_trial_has_the_prior_and_the_augmentation_of_the_run(
    monkeypatch: pytest.MonkeyPatch, prior: str
) -> None:
    machine = Machine()
    loaded = data(Augmentation(shift=1))
    install(monkeypatch, machine)
    job = replace(JOB, paths="S-FC+S-CONV", increments=False, prior=prior)
    with_budget(job, HOUR, loaded)
    assert {call["settings"].method for call in machine.calls} == {"map", "fixed_point"}
    for call in machine.calls:
        found = call["prior"]
        assert isinstance(found, Prior)
        learned = {g.role for g in found if g.learn and g.path is not None}
        assert learned == {"path" if prior == "weights" else "lengthscale", "offset"}
        assert call["augment"] is loaded.augmentation


SEARCH = Job(title="made here", data="made here", groups="z2,p4", search="confirm")


@dataclass
class Searcher:
    """How long a search takes: for each datum and epoch of a training, and for each training."""

    datum: float
    each: float = 0.2
    now: float = 0.0
    labels: list[int] = field(default_factory=list)

    def find_symmetry(
        self, few: Any, groups: Any, classes: int, settings: FindSettings, on_epoch: Any, **_: Any
    ) -> None:
        self.labels.append(len(torch.unique(few[1])))
        whole = self.whole(len(few[1]), settings)
        self.now += whole
        networks = 3 * settings.looks + 3 * settings.layers + 1
        on_epoch(SimpleNamespace(seconds=whole - networks * self.each), None)

    def whole(self, n: int, settings: FindSettings, more: int = 0) -> float:
        """A network for none, z2 and p4 on three quarters of the data, and one on all.

        At most: a second look at all of them, and three networks about layers.
        """
        part = 3 * settings.looks + 3 * settings.layers
        epochs = settings.training(n).epochs + more
        return (part * 0.75 + 1) * n * epochs * self.datum + (part + 1) * self.each

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        monkeypatch.setattr("groupella.runs.budget.time", clock)
        monkeypatch.setattr("groupella.training.find_symmetry", self.find_symmetry)


@pytest.mark.parametrize("datum", [1e-5, 3e-4, 1e-3, 3e-3, 6e-3])
def test_a_search_keeps_its_budget(monkeypatch: pytest.MonkeyPatch, datum: float) -> None:
    machine = Searcher(datum)
    machine.install(monkeypatch)
    job = with_budget(SEARCH, HOUR, data())
    n = TRAINING if job.train_size is None else job.train_size
    settings, wanted = job.find_settings(), SEARCH.find_settings()
    assert machine.now + machine.whole(n, settings) < 0.95 * HOUR
    assert machine.labels == [2]  # although the first data all have the same
    if machine.whole(TRAINING, wanted) < 0.5 * HOUR:
        assert (n, settings) == (TRAINING, replace(wanted, epochs=settings.epochs))
        assert settings.training(n) == wanted.training(TRAINING)
    elif machine.whole(TRAINING, replace(wanted, looks=1, layers=False)) > 0.7 * HOUR:
        # As many data and epochs as there is time for.
        assert machine.now + machine.whole(n, settings, 1) > 0.6 * HOUR
    assert settings.training(n).epochs >= 8
    assert job.epochs == settings.epochs
    job.check()


def test_what_trainings_take_beside_their_epochs_is_not_counted_per_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Searcher(datum=1e-6, each=10.0)
    machine.install(monkeypatch)
    job = with_budget(SEARCH, 600.0, data())
    assert job.find_settings().looks == 2
    assert machine.now + machine.whole(TRAINING, job.find_settings()) < 600


def test_a_search_that_cannot_be_done_says_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Searcher(2e-3)
    machine.install(monkeypatch)
    with pytest.raises(RunError, match=r"^20s is too short .* Give about \w+,") as refused:
        with_budget(SEARCH, 20.0, data())
    advised = seconds(str(refused.value).partition("Give about ")[2].partition(",")[0])
    machine.now = 0.0
    job = with_budget(SEARCH, advised, data())
    assert job.train_size is not None
    assert job.train_size >= 500
    assert machine.now + machine.whole(job.train_size, job.find_settings()) < advised
