"""The common protocol: a method sees a problem and says how far it is from each candidate.

A method gives a *number* for each candidate, 0 for "obeyed" and 1 for "not at all", and a
prediction. The verdict names the strictest candidates whose number is at most the method's
*threshold*. Where the paper of the method has a criterion (the best of a grid, the largest path
weight, our probabilities), numbers are 0 or 1. Where it has none, there is a threshold for every
family of tasks: the most favourable one on the tuning seeds (`_thresholds.py`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from groupella.decide import NONE, UNDECIDED, Candidates
from groupella.experiments import planted
from groupella.experiments.planted import CaseResult

from ._problem import Predict, Problem
from ._tasks import draw
from ._thresholds import THRESHOLDS

KINDS = ("right", "wrong", "weaker", "undecided")
DEEP = "deep"
VERSION = 3  # of everything that decides results and is named nowhere else


@dataclass(frozen=True)
class Found:
    """What a method found: a number for each candidate, and how to predict.

    `layers` has the numbers of every layer, None for undecided, where a method has them.
    """

    numbers: Mapping[str, float]
    predict: Predict
    undecided: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    layers: Sequence[Mapping[str, float] | None] = ()

    @classmethod
    def of_layers(
        cls, layers: Sequence[Mapping[str, float]], predict: Predict, **more: Any
    ) -> Found:
        """A network obeys what all its layers obey: a candidate's number is the largest."""
        numbers = {name: max(layer[name] for layer in layers) for name in layers[0]}
        return cls(numbers, predict, layers=layers, **more)


@dataclass(frozen=True)
class Method:
    """One approach of the comparison.

    Parameters
    ----------
    name, reference
        As in the table.
    run
        Looks for the symmetry of a problem.
    criterion
        "published", or "tuned" for thresholds from the tuning seeds.
    validation, layer_wise
        Whether it needs validation data; whether it can say something about each layer.
    tuned
        Hyper-parameters that are not the published ones, and how they were set.
    families
        The tasks that it applies to; empty for all.
    """

    name: str
    reference: str
    run: Callable[[Problem], Found]
    criterion: str = "published"
    validation: bool = False
    layer_wise: bool = True
    tuned: str = ""
    families: tuple[str, ...] = ()

    def applies(self, task: str) -> bool:
        if family(task) == DEEP and not self.layer_wise:
            return False
        return not self.families or family(task) in self.families

    def threshold(self, task: str) -> float:
        """The largest number of a candidate that is obeyed; for larger digits that of digits."""
        kind = family(task).removesuffix("16")
        return 0.5 if self.criterion == "published" else THRESHOLDS[self.name][kind]


def family(task: str) -> str:
    """The kind of task: linear, sets, sequences, digits, digits16 or deep."""
    return task.split("-")[0]


def verdict(numbers: Mapping[str, float], threshold: float, candidates: Candidates) -> str:
    """The strictest candidates whose number is at most the threshold, or "none"."""
    held = [n for n in candidates.names if numbers[n] <= threshold]
    top = [n for n in held if not any(n in candidates.inside[o] for o in held)]
    return " and ".join(top) or NONE


def outcome(found: str, truth: str, true_members: Sequence[str]) -> str:
    """Right, wrong (a symmetry that is not there), weaker (less than there is) or undecided."""
    if found == truth:
        return "right"
    if found == UNDECIDED:
        return "undecided"
    named = () if found == NONE else found.split(" and ")
    return "weaker" if all(name in true_members for name in named) else "wrong"


@dataclass(frozen=True)
class PeerCase:
    """One method on one task with one seed: a case for `groupella.experiments.planted.run_all`."""

    method: str
    task: str
    seed: int

    part: ClassVar[str] = "peers"
    is_short: ClassVar[bool] = True

    @property
    def key(self) -> str:
        return f"{self.method}-{self.task}-s{self.seed}"

    @property
    def recipe(self) -> Mapping[str, Any]:
        return {"version": VERSION}

    def run(self, _: Path) -> CaseResult:
        from ._methods import METHODS

        method = METHODS[self.method]
        problem = draw(self.task, self.seed)
        started = time.process_time()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            found = method.run(problem)
            seconds = time.process_time() - started
            if isinstance(found.predict, torch.nn.Module):
                found.predict.eval()
            accuracy, nll = problem.score(found.predict)
        truths = problem.layers or (problem.truth,)
        numbers = found.layers if problem.layers else (None if found.undecided else found.numbers,)
        result = CaseResult(
            part=self.part,
            key=self.key,
            planted=truths,
            verdicts=(UNDECIDED,) * len(truths),
            counted=(True,) * len(truths),
            n=len(problem.pool[0]),
            noise=0.0,
            seed=self.seed,
            seconds=seconds,
            details={
                "method": self.method,
                "task": self.task,
                "accuracy": accuracy,
                "nll": nll,
                "numbers": [
                    None if own is None else {k: float(f"{v:.5g}") for k, v in own.items()}
                    for own in numbers
                ],
                "candidates": problem.candidates.as_dict(),
                "true_members": [problem.below(truth) for truth in truths],
                **found.details,
            },
        )
        return judged(result, method.threshold(self.task))


def judged(result: CaseResult, threshold: float) -> CaseResult:
    """The same result with verdicts and outcomes at a threshold: one, or one for every layer."""
    details = result.details
    candidates = Candidates.from_dict(details["candidates"])
    named = tuple(
        UNDECIDED if numbers is None else verdict(numbers, threshold, candidates)
        for numbers in details["numbers"]
    )
    kinds = [
        outcome(*one) for one in zip(named, result.planted, details["true_members"], strict=True)
    ]
    return replace(result, verdicts=named, details={**details, "outcomes": kinds})


def finished(cases: Sequence[PeerCase], directory: Path) -> list[CaseResult]:
    """The results of those cases that are finished there, judged at the present thresholds."""
    from ._methods import METHODS

    found = planted.finished(cases, directory)
    return [judged(r, METHODS[r.details["method"]].threshold(r.details["task"])) for r in found]


def tuned_threshold(results: Sequence[CaseResult]) -> float:
    """The threshold with most right less wrong verdicts; of several, the middle of the widest gap.

    `results` are those of one method on tasks of one family, with the tuning seeds.
    """
    numbers = [own for r in results for own in r.details["numbers"] if own is not None]
    values = sorted({max(v, 1e-6) for own in numbers for v in own.values()})
    edges = [values[0] / 10, *values, max(1.0, values[-1]) * 2]
    best: tuple[float, float, float] = (-math.inf, 0.0, 0.5)
    for low, high in itertools.pairwise(edges):
        option = math.sqrt(low * high)
        kinds = [k for r in results for k in judged(r, option).details["outcomes"]]
        score = kinds.count("right") - kinds.count("wrong")
        best = max(best, (score, math.log(high / low), option))
    return best[2]
