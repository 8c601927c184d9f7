"""The layer-structure table: what FC+CONV under evidence uses in each layer, on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._jobs import Job
from ._study import Row
from .cifar10 import PAPER_TRAINING, PUBLISHED
from .toy import FAST


@dataclass(frozen=True)
class Inspect:
    model: str = "FC+CONV"
    alpha: int = 10
    train_size: int | None = None
    init: str = "balanced"
    training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        nll, accuracy, evidence = PUBLISHED[self.model][1]
        job = Job(
            title=f"CIFAR-10: layers of {self.model}",
            data="cifar10",
            groups="z2",
            preset=f"cifar10/{self.model}",
            train_size=self.train_size,
            alpha=self.alpha,
            init=self.init,
            seed=seed,
            training=self.training,
        )
        return [Row(self.model, job, {"nll": nll, "accuracy": accuracy, "evidence": evidence})]


PRESETS = {
    "paper": Inspect(training=PAPER_TRAINING),
    "hour": Inspect(
        model="F-FC+CONV", init="earn", training={**FAST, "batch_size": 128}, budget=3300.0
    ),
    "quick": Inspect(
        model="F-FC+CONV",
        alpha=2,
        train_size=2000,
        init="earn",
        training={**FAST, "epochs": 10, "curvature_subset": 100},
    ),
}
