"""Each task and seed: the verdict beside the truth, and test errors with and without symmetry."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from groupella._files import write_text
from groupella.experiments.planted import read_result
from groupella.groups import GroupSet, trivial
from groupella.training import EquivarianceSettings, find_equivariance, fit_equivariant, outputs

from ._tasks import TASKS

TEST = 2000


@dataclass(frozen=True)
class Study:
    """Which tasks, how many data and repetitions."""

    tasks: tuple[str, ...] = tuple(TASKS)
    n: int = 1000
    seeds: int = 1
    training: dict[str, Any] = field(default_factory=dict)

    def cases(self, seed: int) -> list[tuple[str, int]]:
        """Tasks and seeds."""
        return [(task, seed * 1000 + k) for task in self.tasks for k in range(self.seeds)]


PRESETS = {
    "quick": Study(),
    "hour": Study(seeds=3),
    "paper": Study(n=3000, seeds=20, training={"epochs": 300, "channels": 16}),
}


@dataclass(frozen=True)
class Outcome:
    """One task and seed: what was found, what is true, and relative errors on test data.

    Errors are mean squares over those of the mean target; `error` is that of the network that is
    handed over, `plain_error` that of a multilayer perceptron, `soft_error` that of a network with
    a path for every candidate (residual pathway priors).
    """

    task: str
    seed: int
    truth: str
    verdict: str
    probability: float
    reason: str
    error: float
    plain_error: float
    soft_error: float

    @property
    def right(self) -> bool:
        return self.verdict == self.truth

    @property
    def wrong(self) -> bool:
        """A symmetry that is not there was asserted."""
        if self.verdict in (self.truth, "none", "undecided"):
            return False
        groups = TASKS[self.task].groups
        return self.truth == "none" or not groups.contains(self.truth, self.verdict)


def run(name: str, seed: int, study: Study, say: Callable[[str], None] | None = None) -> Outcome:
    """Return the outcome of one task and seed."""
    task = TASKS[name]
    space_in, space_out = task.spaces()
    settings = EquivarianceSettings(seed=seed, **study.training)
    train, test = task.data(study.n, 2 * seed), task.data(TEST, 2 * seed + 1)
    found = find_equivariance(train, task.groups, space_in, space_out, settings, say=say)
    error = _error(found.network, test)
    plain = _error(found.plain.network, test)
    soft = error
    if not found.symmetry.is_trivial:  # else that network is handed over
        groups = GroupSet(*task.groups, trivial())
        every = fit_equivariant(train, groups, space_in, space_out, None, settings, free=found.free)
        soft = _error(every.network, test)
    said = found.judgement
    return Outcome(
        name, seed, task.obeys, found.verdict, said.probability, said.reason, error, plain, soft
    )


def _error(network: torch.nn.Module, data: tuple[torch.Tensor, torch.Tensor]) -> float:
    x, y = data
    spread = (y - y.mean(0)).square().mean()
    return float((outputs(network, x) - y).square().mean() / spread)


def run_all(
    cases: Sequence[tuple[str, int]],
    study: Study,
    directory: Path,
    say: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Run the cases; those that a directory has the outcome of are not repeated."""
    done = []
    for task, seed in cases:
        path = directory / f"{task}-{seed}.json"
        recipe = {"n": study.n, "training": study.training}
        outcome = read_result(path, recipe, Outcome)
        if outcome is None:
            outcome = run(task, seed, study, say)
            write_text(path, json.dumps({"recipe": recipe, "result": asdict(outcome)}, indent=1))
        done.append(outcome)
    return done


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts of right and wrong verdicts, and all outcomes."""
    return {
        "cases": len(outcomes),
        "right": sum(o.right for o in outcomes),
        "wrong": sum(o.wrong for o in outcomes),
        "rows": [{**asdict(o), "right": o.right} for o in outcomes],
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes as a Markdown table."""
    lines = [
        "| task | seed | obeys | found | probability | test error | MLP | all paths |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {o.task} | {o.seed} | {o.truth} | {o.verdict} | {o.probability:.3f} "
        f"| {o.error:.4f} | {o.plain_error:.4f} | {o.soft_error:.4f} |"
        for o in outcomes
    ]
    right, wrong = (sum(getattr(o, kind) for o in outcomes) for kind in ("right", "wrong"))
    lines += ["", f"{right} of {len(outcomes)} right, {wrong} asserted what is not there."]
    return "\n".join(lines) + "\n"
