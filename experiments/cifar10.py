"""Table 2: eleven networks on CIFAR-10, by MAP and by evidence.

Convolutions are best under MAP; under evidence, networks with a path that could be fully connected
learn to be convolutional, and reach the convolutional one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groupella.runs import Job
from groupella.runs.study import Row

from . import toy
from .toy import FAST, FC_FAST

# network: MAP (nll, accuracy), evidence (nll, accuracy, −log evidence a datum)
PUBLISHED: dict[str, tuple[tuple[float, float], tuple[float, float, float]]] = {
    "FC": ((2.423, 64.42), (1.319, 52.36, 1.896)),
    "CONV": ((1.184, 82.81), (0.464, 84.07, 1.022)),
    "FC+CONV": ((1.713, 76.93), (0.489, 83.32, 1.019)),
    "F-FC": ((4.291, 50.47), (1.307, 53.38, 2.119)),
    "F-FC+CONV": ((1.343, 81.61), (0.468, 83.92, 1.277)),
    "S-FC": ((5.614, 50.21), (1.496, 46.18, 1.926)),
    "S-CONV": ((0.604, 82.53), (0.562, 81.29, 1.037)),
    "S-FC+S-CONV": ((5.485, 58.80), (0.538, 81.55, 0.978)),
    "S-FC:lengthscales": ((7.783, 49.69), (1.319, 52.22, 1.813)),
    "S-CONV:lengthscales": ((0.913, 81.84), (0.549, 81.20, 1.055)),
    "S-FC+S-CONV:lengthscales": ((2.040, 77.97), (0.564, 80.63, 1.067)),
}


@dataclass(frozen=True)
class Cifar10:
    """Settings of the study; `fc_alpha`, `fc_training` (FC and FC+CONV) and `init` as in `toy`."""

    alpha: int = 10
    fc_alpha: int = 10
    train_size: int | None = None
    init: str = "balanced"
    models: tuple[str, ...] = tuple(PUBLISHED)
    objectives: tuple[str, ...] = ("map", "evidence")
    training: Mapping[str, Any] = field(default_factory=dict)
    fc_training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        return [
            self._row(model, objective, seed)
            for model in self.models
            for objective in self.objectives
        ]

    def _row(self, model: str, objective: str, seed: int) -> Row:
        by_map, by_evidence = PUBLISHED[model]
        has_full_fc = model in ("FC", "FC+CONV")
        learned: dict[str, Any] = {}
        if objective == "map":
            paper = dict(zip(("nll", "accuracy"), by_map, strict=True))
            learned = {**(self.fc_training if has_full_fc else {}), "method": "map"}
        else:
            paper = dict(zip(("nll", "accuracy", "evidence"), by_evidence, strict=True))
        job = Job(
            title=f"CIFAR-10: {model}, {objective}",
            data="cifar10",
            groups="z2",
            preset=f"cifar10/{model}",
            train_size=self.train_size,
            alpha=self.fc_alpha if has_full_fc and objective == "evidence" else self.alpha,
            init=self.init if "+" in model and objective == "evidence" else "balanced",
            prior="lengthscales" if model.endswith("lengthscales") else "weights",
            seed=seed,
            training={**self.training, **learned},
        )
        return Row(f"{model} {objective}", job, paper)


PAPER_TRAINING = {**toy.PAPER_TRAINING, "epochs": 4000}
PRESETS = {
    "paper": Cifar10(training=PAPER_TRAINING),
    "hour": Cifar10(
        fc_alpha=2,
        init="earn",
        training={**FAST, "batch_size": 128},
        fc_training=FC_FAST,
        budget=3300.0,
    ),
    "quick": Cifar10(
        alpha=2,
        fc_alpha=1,
        train_size=2000,
        init="earn",
        models=("CONV", "F-FC", "F-FC+CONV"),
        training={**FAST, "epochs": 10, "curvature_subset": 100},
    ),
}
