"""`groupella select`, as users run it, on tasks whose answer is known.

Beside its verdict and the test accuracy of its network stand

* the grid: of the networks that obey one candidate each (or nothing), the one of highest held-out
  likelihood. `select` trains most of them anyway and the others are trained after it; the grid's
  CPU time is that of all of them and of reading the data. It hands over a network trained on three
  quarters of the data; to train its winner on all data would take it the time of "final" as well;
* a plain CNN: three circular convolutions of width 3 with 32, 64 and 128 channels, batch
  normalisation, ReLU and pooling, the mean over sites and a linear map (sets: a multilayer
  perceptron), by Adam in one cycle to 0.005, for 60 epochs or the CPU time of `select`.

The number of epochs is the one that `select` takes when its budget allows, so results do not depend
on the speed of the machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from groupella._files import file_name
from groupella.decide import NONE, UNDECIDED
from groupella.groups import GroupSet

from ._result import CaseResult
from ._select_tasks import TASKS, TEST_SHARE, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from groupella.decide.claims import Consequence, Judgement
    from groupella.training import FindSettings

MOST_EPOCHS, PLAIN_LR, PLAIN_BATCH = 60, 0.005, 64


@dataclass(frozen=True)
class Answer:
    """What `select` found: its judgement, the table, and the test accuracy of its network.

    `read` is the CPU time at which the data had been read.
    """

    judgement: Judgement
    consequences: Sequence[Consequence]
    accuracy: float
    groups: GroupSet
    data: tuple[Tensor, Tensor, Tensor, Tensor]
    classes: int
    settings: FindSettings
    read: float


@dataclass(frozen=True)
class SelectCase:
    """One task with one seed; `n` training data instead of as many as the task has."""

    task: str
    seed: int
    n: int | None = None

    part: ClassVar[str] = "select"
    is_short: ClassVar[bool] = False

    @property
    def key(self) -> str:
        few = "" if self.n is None else f"-n{self.n}"
        return f"select-{self.task}{few}-s{self.seed}"

    @property
    def recipe(self) -> Mapping[str, Any]:
        from groupella.training import FindSettings

        return {**asdict(FindSettings()), "plain": [MOST_EPOCHS, PLAIN_LR, PLAIN_BATCH]}

    def run(self, workspace: Path) -> CaseResult:
        """Select, train the plain network, compare."""
        task = TASKS[self.task]
        began, started = time.perf_counter(), time.process_time()
        answer = (by_command if task.job else by_arrays)(task, workspace, self.seed, self.n)
        selected = time.process_time()
        strict = [row.name for row in answer.consequences if not row.note]
        candidates = workspace / "run" / "candidates"
        cpu = (selected - started) / max(time.perf_counter() - began, 1e-6)
        trained = cpu * training_seconds(candidates, strict)
        final = cpu * training_seconds(candidates, ["final"])
        grid = best_of_grid(answer, candidates)
        gridded = time.process_time()
        plain = plain_accuracy(answer.data, selected - started, self.seed)
        done = time.process_time()
        judgement = answer.judgement
        decided = judgement.obeys is not None
        return CaseResult(
            part=self.part,
            key=self.key,
            planted=(task.truth,),
            verdicts=(judgement.verdict,),
            counted=(True,),
            n=len(answer.data[1]),
            noise=0.0,
            seed=self.seed,
            seconds=done - started,
            details={
                "true_members": true_members(task.truth, answer.groups),
                "probabilities": {judgement.verdict: judgement.probability} if decided else {},
                "reason": judgement.reason,
                "findings": judgement.as_dict()["findings"],
                "layers": judgement.as_dict()["layers"],
                "consequences": [asdict(row) for row in answer.consequences],
                "grid_verdict": NONE if grid.name == "free" else grid.name,
                "accuracy": answer.accuracy,
                "grid_accuracy": grid.accuracy,
                "plain_accuracy": plain,
                "select_seconds": selected - started,
                "grid_seconds": answer.read - started + trained + gridded - selected,
                "final_seconds": final,
                "plain_seconds": done - gridded,
            },
        )


def by_command(task: Task, workspace: Path, seed: int, n: int | None = None) -> Answer:
    """The answer of the job that `groupella select` runs, on the first n training data."""
    from groupella.runs import Job, run

    assert task.job is not None
    workspace.mkdir(parents=True, exist_ok=True)
    options = {"train_size": n, **task.job(workspace, seed)}
    job = Job(title="", seed=seed, search="confirm", **options)
    data = job.load(progress=False)
    read = time.process_time()
    done = run(job, workspace / "run", data=data, progress=False)
    content = done.content
    judgement, accuracy = content.selection.judgement, content.held_out.accuracy
    assert judgement is not None
    assert accuracy is not None
    arrays = (data.train_x, data.train_y, data.test_x, data.test_y)
    return Answer(
        judgement,
        content.consequences,
        accuracy,
        job.group_set(),
        arrays,
        len(data.classes),
        job.find_settings(),
        read,
    )


def by_arrays(task: Task, workspace: Path, seed: int, n: int | None = None) -> Answer:
    """The answer of `find_symmetry` on arrays that the command cannot read."""
    import torch

    from groupella.training import FindSettings, find_symmetry

    assert task.arrays is not None
    assert task.groups is not None
    inputs, labels = task.arrays(np.random.default_rng(seed))
    x, y = torch.from_numpy(inputs), torch.from_numpy(np.unique(labels, return_inverse=True)[1])
    first = round((1 - TEST_SHARE) * len(y))
    count = first if n is None else min(n, first)
    groups, settings, classes = task.groups(), FindSettings(seed=seed), int(y.max()) + 1
    read = time.process_time()
    found = find_symmetry(
        (x[:count], y[:count]),
        groups,
        classes,
        settings,
        directory=workspace / "run" / "candidates",
        progress=False,
    )
    accuracy = accuracy_of(found.network, x[first:], y[first:])
    data = (x[:count], y[:count], x[first:], y[first:])
    return Answer(
        found.judgement, found.consequences, accuracy, groups, data, classes, settings, read
    )


def best_of_grid(answer: Answer, directory: Path) -> Consequence:
    """The network that is best on held-out data, of one for every candidate."""
    from groupella.training import strict_networks

    return best_row(
        strict_networks(
            answer.data[:2],
            answer.groups,
            answer.classes,
            answer.settings,
            directory=directory,
            progress=False,
        )
    )


def best_row(rows: Iterable[Consequence]) -> Consequence:
    """The row of the highest held-out likelihood, but for chance."""
    found = [row for row in rows if row.name != "chance"]
    return min(found, key=lambda row: float("inf") if row.nll is None else row.nll)


def training_seconds(directory: Path, names: Iterable[str]) -> float:
    """Wall time of some of the trainings in a directory."""
    total = 0.0
    for name in names:
        file = directory / file_name(name) / "history.json"
        if file.exists():
            records = json.loads(file.read_text(encoding="utf-8"))
            total += sum(record["seconds"] for record in records)
    return total


def true_members(truth: str, groups: GroupSet) -> list[str]:
    """The candidates that labels with this truth obey."""
    if truth in (NONE, UNDECIDED):
        return []
    return [name for name in groups.subgroups(truth) if not groups[name].is_trivial]


def plain_network(lattice: Sequence[int], channels: int, classes: int) -> nn.Module:
    """The network that a user would otherwise train."""
    from torch import nn

    if len(lattice) == 1 and lattice[0] <= 8:
        widths = (channels * lattice[0], 128, 128)
        parts: list[nn.Module] = [nn.Flatten()]
        for before, after in pairwise(widths):
            parts += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
        return nn.Sequential(*parts, nn.Linear(128, classes))
    two = len(lattice) == 2
    convolution: Any = nn.Conv2d if two else nn.Conv1d
    norm: Any = nn.BatchNorm2d if two else nn.BatchNorm1d
    pool: Any = nn.MaxPool2d if two else nn.MaxPool1d
    mean: Any = nn.AdaptiveAvgPool2d if two else nn.AdaptiveAvgPool1d
    layers: list[nn.Module] = []
    side = min(lattice)
    for before, after in pairwise((channels, 32, 64, 128)):
        layers += [
            convolution(before, after, 3, padding=1, padding_mode="circular"),
            norm(after),
            nn.ReLU(),
        ]
        if side >= 4:
            layers.append(pool(2))
            side //= 2
    return nn.Sequential(*layers, mean(1), nn.Flatten(), nn.Linear(128, classes))


def plain_accuracy(data: tuple[Tensor, Tensor, Tensor, Tensor], seconds: float, seed: int) -> float:
    """Test accuracy of the plain network, trained for 60 epochs or `seconds` of CPU time."""
    import torch

    x, y, test_x, test_y = data
    classes = int(torch.cat([y, test_y]).max()) + 1
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        started = time.process_time()
        train_plain(plain_network(x.shape[2:], x.shape[1], classes), x, y, 1)
        epoch = time.process_time() - started
        network = plain_network(x.shape[2:], x.shape[1], classes)
        train_plain(network, x, y, max(min(MOST_EPOCHS, int(seconds / max(epoch, 1e-6))), 1))
    return accuracy_of(network, test_x, test_y)


def train_plain(network: nn.Module, x: Tensor, y: Tensor, epochs: int) -> None:
    """Adam with one cycle of the learning rate."""
    import torch
    from torch.nn.functional import cross_entropy

    steps = max(len(y) // PLAIN_BATCH, 1)
    optimiser = torch.optim.Adam(network.parameters(), lr=PLAIN_LR)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=PLAIN_LR, total_steps=epochs * steps + 1
    )
    network.train()
    for _ in range(epochs):
        for rows in torch.tensor_split(torch.randperm(len(y)), steps):
            optimiser.zero_grad()
            loss: Any = cross_entropy(network(x[rows]), y[rows])
            loss.backward()
            optimiser.step()
            cycle.step()


def accuracy_of(network: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of (x, y) that the network gets right, in evaluation mode."""
    import torch

    network.eval()
    with torch.no_grad():
        found = torch.cat([network(part).argmax(1) for part in torch.split(x, 500)])
    return float((found == y).double().mean())


@dataclass(frozen=True)
class Tally:
    """Verdicts of one kind, counted: right, a wrong symmetry, less than there is, undecided."""

    right: int
    wrong: int
    weaker: int
    undecided: int

    @classmethod
    def of(cls, results: Iterable[CaseResult], grid: bool = False) -> Tally:
        kinds = [outcome(r, grid) for r in results]
        return cls(*(kinds.count(k) for k in ("right", "wrong", "weaker", "undecided")))


def outcome(result: CaseResult, grid: bool = False) -> str:
    """Right, wrong, weaker or undecided, of the verdict or of the grid's.

    Where there is nothing to learn, "undecided" is right and any symmetry is wrong.
    """
    verdict = result.details["grid_verdict"] if grid else result.verdicts[0]
    if verdict == result.planted[0]:
        return "right"
    if verdict == UNDECIDED:
        return "undecided"
    true = result.details["true_members"]
    named = () if verdict == NONE else verdict.split(" and ")
    return "weaker" if all(name in true for name in named) else "wrong"


def gain(result: CaseResult) -> float | None:
    """Test accuracy above that of the plain network; None where there is nothing to learn."""
    if result.planted[0] == UNDECIDED:
        return None
    return float(result.details["accuracy"] - result.details["plain_accuracy"])


SELECT_COLUMNS = (
    "task",
    "truth",
    "verdict",
    "probability",
    "grid",
    "accuracy",
    "plain CNN",
    "best of grid (held-out)",
    "CPU s",
    "plain CPU s",
)


def select_cells(results: Iterable[CaseResult]) -> list[list[str]]:
    """One row per case, under `SELECT_COLUMNS`."""
    found = []
    for r in results:
        d = r.details
        chance = d["probabilities"].get(r.verdicts[0])
        found.append(
            [
                r.key.removeprefix("select-"),
                r.planted[0],
                _marked(r.verdicts[0], outcome(r)),
                "–" if chance is None else f"{chance:.3f}",
                _marked(d["grid_verdict"], outcome(r, grid=True)),
                *(f"{d[k]:.3f}" for k in ("accuracy", "plain_accuracy", "grid_accuracy")),
                *(f"{d[k]:.0f}" for k in ("select_seconds", "plain_seconds")),
            ]
        )
    return found


def _marked(verdict: str, kind: str) -> str:
    return verdict if kind in ("right", "undecided") else f"{verdict} ({kind})"
