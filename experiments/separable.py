"""The roto-translation table: full, separable and pointwise filters, on rotated CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groupella.runs import Job
from groupella.runs.study import Row

from .cifar10 import PAPER_TRAINING
from .toy import FAST

ACCURACIES = {
    "full": 73.70,
    "separable": 61.31,
    "depthwise-separable": 51.63,
    "full-matched": 69.89,
    "separable-matched": 59.99,
    "depthwise-separable-matched": 49.77,
    "pointwise": 66.77,
    "classical": 57.89,
}


@dataclass(frozen=True)
class Separable:
    """`divide` makes every network narrower by that factor, at least one channel wide."""

    data: str = "cifar10:rotated"
    divide: int = 1
    train_size: int | None = None
    models: tuple[str, ...] = tuple(ACCURACIES)
    training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        from groupella.networks import PRESETS as NETWORKS

        rows = []
        for model in self.models:
            name = f"rotation/{model}"
            job = Job(
                title=f"{self.data}: {model} roto-translation CNN",
                data=self.data,
                groups="z2" if model == "classical" else "p4",
                preset=name,
                train_size=self.train_size,
                alpha=max(1, NETWORKS[name].alpha // self.divide),
                init="balanced",
                seed=seed,
                training={**self.training, "method": "map"},
            )
            elsewhere = None if self.data == "cifar10:rotated" else "rotated CIFAR-10"
            rows.append(Row(model, job, {"accuracy": ACCURACIES[model]}, elsewhere))
        return rows


PRESETS = {
    "paper": Separable(training=PAPER_TRAINING),
    "hour": Separable(divide=2, training={**FAST, "batch_size": 128}, budget=3300.0),
    "quick": Separable(
        data="digits:rotated",
        divide=5,
        models=("full", "separable", "pointwise", "classical"),
        training={**FAST, "curvature_subset": 20, "curvature_samples": 1},
    ),
}
