"""Table 1: a digit in one of four quadrants; name the digit, or the digit and the quadrant.

Strict translation equivariance helps with the first task and forbids the second. The learned
network, F-FC+CONV under evidence, should be good at both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groupella.runs import Job
from groupella.runs.study import Row

TASKS = {"digit": ("toy-digit", "quadrants"), "digit+quadrant": ("toy-quadrant", "quadrants+label")}
# None where nothing is published.
ACCURACIES: dict[tuple[str, str, str], float | None] = {
    ("digit", "FC", "map"): 95.73,
    ("digit", "CONV", "map"): 99.38,
    ("digit", "F-FC+CONV", "map"): None,
    ("digit", "FC", "evidence"): 97.04,
    ("digit", "CONV", "evidence"): 99.23,
    ("digit", "F-FC+CONV", "evidence"): 98.86,
    ("digit+quadrant", "FC", "map"): 95.10,
    ("digit+quadrant", "CONV", "map"): 24.68,
    ("digit+quadrant", "F-FC+CONV", "map"): None,
    ("digit+quadrant", "FC", "evidence"): 95.46,
    ("digit+quadrant", "CONV", "evidence"): 24.50,
    ("digit+quadrant", "F-FC+CONV", "evidence"): 99.00,
}


@dataclass(frozen=True)
class Toy:
    """Settings of the study.

    fc_alpha: width of rows with a full FC path under evidence, whose curvature factors grow with
        its square; under MAP, which needs none, those rows are as wide as the others.
    fc_training: what else is set in training rows with a full FC path by MAP. At α = 10 they have
        113 million weights, and a step of the optimiser costs as much as passes over a hundred
        data.
    init: how paths start under evidence. Under MAP they start alike, as published: to make free
        paths start small with a high precision is to know already what evidence is to find.
    """

    data: str = "mnist"
    alpha: int = 10
    fc_alpha: int = 10
    train_size: int | None = None
    size: int | None = 32
    init: str = "balanced"
    models: tuple[str, ...] = ("FC", "CONV", "F-FC+CONV")
    training: Mapping[str, Any] = field(default_factory=dict)
    fc_training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        found = []
        for (task, model, objective), accuracy in ACCURACIES.items():
            if model not in self.models:
                continue
            stem, transform = TASKS[task]
            learned: dict[str, Any] = {}
            if objective == "map":
                learned = {**(self.fc_training if model == "FC" else {}), "method": "map"}
            job = Job(
                title=f"{task}: {model}, {objective}",
                data=f"{self.data}:{transform}",
                groups="z2",
                preset=f"{stem}/{model}",
                size=self.size,
                train_size=self.train_size,
                alpha=self.fc_alpha if model == "FC" and objective == "evidence" else self.alpha,
                init=self.init if "+" in model and objective == "evidence" else "balanced",
                seed=seed,
                training={**self.training, **learned},
            )
            known = {} if accuracy is None else {"accuracy": accuracy}
            elsewhere = None if self.data == "mnist" else "MNIST"  # the digits only stand for it
            found.append(Row(f"{task} {model} {objective}", job, known, elsewhere))
        return found


PAPER_TRAINING: dict[str, Any] = {
    "epochs": 1000,
    "batch_size": 128,
    "lr": 0.01,
    "prior_step": "gradient",
    "method": "adam",
    "burn_in": 10,
    "update_every": 5,
    "hyper_steps": 1,
    "curvature_subset": None,
    "curvature_samples": None,
    "prune_from": None,
}
FAST: dict[str, Any] = {
    "epochs": 20,
    "lr": 0.003,
    "update_every": 2,
    "curvature_subset": 400,
    "curvature_samples": 4,
}
FC_FAST: dict[str, Any] = {"batch_size": 256, "lr": 0.001}
PRESETS = {
    "paper": Toy(training=PAPER_TRAINING),
    "hour": Toy(
        fc_alpha=2,
        init="earn",
        training=FAST,
        fc_training=FC_FAST,
        budget=3300.0,
    ),
    "quick": Toy(
        data="digits",
        alpha=2,
        size=None,
        init="earn",
        models=("CONV", "F-FC+CONV"),
        training={**FAST, "curvature_subset": 200},
    ),
}
