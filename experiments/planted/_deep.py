"""Deep teachers: a frozen random pyramid of three layers, each with a planted symmetry.

Planted groups do not get stricter with depth: after a layer without a symmetry, that of a later one
is a choice of gauge. A layer counts when it is identifiable: when the teacher, forced to the next
stricter group in that layer and trained on from there, gets worse on held-out data.

A student knows the teacher's read-out. It starts at random, and then has to find the teacher's
function as well as its symmetries (`groupella.training.best_start`, `go_on` and `settle`). Started
from the teacher's weights in the planted paths (`start="teacher"`, all other paths small and random
as ever), it has only to choose: what is wrong then is not the fault of optimisation.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from groupella.data import Moved, load
from groupella.decide import NONE, Rule, Selection
from groupella.evidence import Prior
from groupella.groups import p4m
from groupella.nn.layer import ResidualPathway
from groupella.training import (
    Fit,
    Search,
    Settings,
    Trial,
    best_start,
    fit,
    go_on,
    settle,
)

from ._pyramid import Pyramid, random_teacher, standardise
from ._result import CANDIDATES, CaseResult

CHANNELS = 1
CLASSES = 64
HELD_OUT = 1000
FORCED = Settings(epochs=8, lr=0.003, batch_size=128, method="map")
STUDENT = Settings(
    epochs=60,
    lr=0.02,
    batch_size=64,
    method="fixed_point",
    burn_in=5,
    update_every=1,
    curvature_subset=400,
    curvature_samples=2,
    prune_from=None,
)
BASIN = replace(STUDENT, epochs=30, lr=0.01, burn_in=2)
WHOLE = replace(STUDENT, epochs=30, burn_in=1)
SEARCH = Search()
LAYER_SIZE = 0.1  # of a student at the start, relative to what skips a layer
SEARCHED = 1500  # so many data are enough to look for the student on
VERSION = 6  # of everything that decides on results and is not named in a recipe


Data = tuple[Tensor, Tensor]
Found = tuple[Fit, tuple[Trial, ...]]


@dataclass(frozen=True)
class DeepCase:
    """`planted` names the member of every layer. `noise` is the share of labels drawn at random."""

    planted: tuple[str, ...]
    n: int = 1500
    seed: int = 0
    noise: float = 0.0
    start: Literal["random", "teacher"] = "random"

    @property
    def part(self) -> str:
        return "deep" if self.start == "random" else "basin"

    @property
    def key(self) -> str:
        name = f"{self.part}-{'-'.join(self.planted)}-n{self.n}-s{self.seed}"
        return name if self.noise == 0.0 else f"{name}-noise{self.noise:g}"

    @property
    def is_short(self) -> bool:
        return False

    @property
    def search(self) -> Search:
        """With more data fewer epochs are as many steps, and every path is worth more."""
        more = max(1.0, self.n / SEARCHED)
        return replace(SEARCH, again=max(8, round(SEARCH.again / more)), doubt=SEARCH.doubt * more)

    @property
    def recipe(self) -> dict[str, Any]:
        settings = STUDENT if self.start == "random" else BASIN
        return {
            "version": VERSION,
            "student": settings.as_dict(),
            "part": {"n": SEARCHED, "search": asdict(SEARCH)},
            "whole": WHOLE.as_dict(),
            "search": asdict(self.search),
            "layer_size": LAYER_SIZE,
            "channels": CHANNELS,
            "classes": CLASSES,
        }

    def run(self, workspace: Path) -> CaseResult:
        started = time.process_time()
        train, held_out, teacher = draw(self)
        forced = forced_accuracies(self, teacher, train, held_out)
        search = self._from_teacher if self.start == "teacher" else self._from_chance
        trained, trials = search(train, teacher, workspace)
        found = trained.selection(rule=Rule(nats=self.search.rule.nats))
        planted = tuple(NONE if CANDIDATES[m].is_trivial else m for m in self.planted)
        return CaseResult(
            part=self.part,
            key=self.key,
            planted=planted,
            verdicts=tuple(found.verdicts.values()),
            counted=identifiable(forced),
            n=self.n,
            noise=self.noise,
            seed=self.seed,
            seconds=time.process_time() - started,
            details={
                "accuracy": accuracy(trained.network, held_out),
                "forced": forced,
                "log_evidence": found.log_evidence,
                "trials": [asdict(trial) for trial in trials],
                "paths": _numbers(found),
            },
        )

    def _from_teacher(self, train: Data, teacher: Pyramid, workspace: Path) -> Found:
        student = _student(self.seed, 0, train[0], teacher)
        trained = fit(
            student,
            train,
            settings=replace(BASIN, seed=self.seed),
            prior=start_from(student, teacher),
            directory=workspace / "best",
            progress=False,
        )
        return settle(trained, train, self.search, directory=workspace, progress=False)

    def _from_chance(self, train: Data, teacher: Pyramid, workspace: Path) -> Found:
        """The best start on a part of the data goes on with all, on which doubts are settled."""
        settings = replace(STUDENT, seed=self.seed)
        part = (train[0][:SEARCHED], train[1][:SEARCHED])

        def make(start: int) -> Pyramid:
            return _student(self.seed, start, part[0], teacher)

        options: dict[str, Any] = {"directory": workspace, "progress": False}
        trained = best_start(make, part, settings, SEARCH, **options)
        if self.n > SEARCHED:
            trained = go_on(trained, train, replace(WHOLE, seed=self.seed), SEARCH, **options)
        return settle(trained, train, self.search, **options)


def _student(seed: int, start: int, x: Tensor, teacher: Pyramid) -> Pyramid:
    """A fresh student that reads out as its teacher does.

    Its layers start small. Layers as large as what skips them say with confidence what is wrong
    (14 to 37 nats a datum, chance being 4), and more of these starts end in a poor optimum.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 + seed + 100 * start)
        student = Pyramid(CHANNELS, CLASSES)
    standardise(student, x, LAYER_SIZE)
    return student.read_as(teacher)


@torch.no_grad()
def start_from(student: Pyramid, teacher: Pyramid) -> Prior:
    """Give the student the teacher's weights, and precisions that go with them."""
    mine = dict(student.read_as(teacher).named_parameters())
    for name, weight in teacher.named_parameters():
        mine[name].copy_(weight)
    prior = Prior.from_network(student)
    theirs = {name for name, _ in teacher.named_parameters()}
    norms = prior.squared_norms(student).tolist()
    for group, norm in zip(prior, norms, strict=True):
        if norm > 0 and theirs.issuperset(group.parameters):
            prior.set_precision(group.name, group.size / norm)
    return prior


def moved_digits(n: int, held_out: int, seed: int) -> tuple[Tensor, Tensor]:
    """n + held_out digits, each moved by a random element of p4m; different digits in the two."""
    inputs: list[list[Tensor]] = [[], []]
    wanted = (n, held_out)
    turn = 0
    while any(sum(map(len, part)) < size for part, size in zip(inputs, wanted, strict=True)):
        data = load("digits", Moved(p4m()), seed=1000 * seed + turn)
        for part, x in zip(inputs, (data.train_x, data.test_x), strict=True):
            part.append(x)
        turn += 1
    first, second = (torch.cat(part)[:size] for part, size in zip(inputs, wanted, strict=True))
    return first, second


def draw(case: DeepCase) -> tuple[Data, Data, Pyramid]:
    """Training data, held-out data and the teacher that labels them."""
    inputs = torch.cat(moved_digits(case.n, HELD_OUT, case.seed))
    teacher = random_teacher(case.planted, CHANNELS, CLASSES, inputs, case.seed)
    with torch.no_grad():
        labels = teacher(inputs).argmax(1)
    generator = torch.Generator().manual_seed(case.seed)
    flipped = torch.rand(case.n, generator=generator) < case.noise
    random = torch.randint(CLASSES, (case.n,), generator=generator)
    train = torch.where(flipped, random, labels[: case.n])
    return (inputs[: case.n], train), (inputs[case.n :], labels[case.n :]), teacher


def next_stricter(member: str) -> tuple[str, ...]:
    """The smallest members that properly contain a member."""
    around = [m for m in CANDIDATES.supergroups(member) if m != member]
    return CANDIDATES.minimal(around) if around else ()


def forced_accuracies(
    case: DeepCase, teacher: Pyramid, train: Data, held_out: Data
) -> list[dict[str, float]]:
    """For every layer, held-out accuracy with each next stricter group forced in that layer."""
    found: list[dict[str, float]] = []
    for number, member in enumerate(case.planted):
        found.append({})
        for stricter in next_stricter(member):
            forced = copy.deepcopy(teacher)
            layer = forced.layers[number]
            assert isinstance(layer, ResidualPathway)
            forced.layers[number] = layer.strict(stricter)
            forced.requires_grad_(True)
            fit(forced, train, settings=FORCED, seed=case.seed, progress=False)
            found[-1][stricter] = accuracy(forced, held_out)
    return found


def identifiable(forced: Sequence[dict[str, float]], held_out: int = HELD_OUT) -> tuple[bool, ...]:
    """Whether every stricter group lowers the accuracy, the teacher's own being 1, beyond chance:
    by more than what is left of 2 standard errors at 98 %."""
    limit = 0.98 - 2 * math.sqrt(0.98 * 0.02 / held_out)
    return tuple(all(value < limit for value in layer.values()) for layer in forced)


def _numbers(found: Selection) -> dict[str, dict[str, dict[str, float]]]:
    """layer → path → the numbers that decided on it."""
    return {
        layer.layer: {
            p.path: {
                "removal": round(p.removal, 3),
                "gamma": round(p.effective_parameters, 3),
                "relative": round(p.relative, 5),
                "precision": float(f"{p.precision:.4g}"),
                "squared_norm": float(f"{p.squared_norm:.4g}"),
            }
            for p in layer.paths
        }
        for layer in found.layers
    }


@torch.no_grad()
def accuracy(network: nn.Module, data: Data) -> float:
    return float((network(data[0]).argmax(1) == data[1]).double().mean())
