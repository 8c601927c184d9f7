"""Table 3: a path without symmetry, convolutions and p4 convolutions, on five data sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from groupella.runs import Job
from groupella.runs.study import Row

from .cifar10 import PAPER_TRAINING as CIFAR_TRAINING
from .toy import FAST, PAPER_TRAINING

# data: preset, MAP (nll, accuracy), evidence (nll, accuracy, −log evidence a datum)
Published = tuple[str, tuple[float, float], tuple[float, float, float]]
PUBLISHED: dict[str, Published] = {
    "mnist": ("mnist", (0.172, 97.59), (0.023, 99.21, 0.328)),
    "mnist:translated": ("translated-mnist", (0.812, 90.78), (0.053, 98.27, 0.216)),
    "mnist:rotated": ("rotated-mnist", (0.819, 91.02), (0.136, 95.55, 0.896)),
    "cifar10": ("cifar10", (3.540, 68.33), (0.552, 80.94, 0.926)),
    "cifar10:rotated": ("rotated-cifar10", (5.953, 48.30), (1.236, 55.68, 1.630)),
}


@dataclass(frozen=True)
class Multigroup:
    """Settings of the study; `init` is how paths start under evidence, as in `toy`.

    cifar_training: what else is set in training on CIFAR-10.
    """

    alpha: int = 2
    train_size: int | None = None
    init: str = "balanced"
    data: tuple[str, ...] = tuple(PUBLISHED)
    training: Mapping[str, Any] = field(default_factory=dict)
    cifar_training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        return [row for name in self.data for row in self._rows(name, seed)]

    def _rows(self, name: str, seed: int) -> list[Row]:
        elsewhere = None if name in PUBLISHED else "MNIST"  # the embedded digits only stand for it
        stem, by_map, by_evidence = PUBLISHED[name.replace("digits", "mnist")]
        papers = {
            "map": dict(zip(("nll", "accuracy"), by_map, strict=True)),
            "evidence": dict(zip(("nll", "accuracy", "evidence"), by_evidence, strict=True)),
        }
        rows = []
        for objective, paper in papers.items():
            learned = dict(self.cifar_training) if name.startswith("cifar10") else {}
            if objective == "map":
                learned["method"] = "map"
            job = Job(
                title=f"{name}: F-FC+CONV+GCONV, {objective}",
                data=name,
                groups="z2,p4",
                preset=f"groups/{stem}",
                train_size=self.train_size,
                alpha=self.alpha,
                init=self.init if objective == "evidence" else "balanced",
                seed=seed,
                training={**self.training, **learned},
            )
            rows.append(Row(f"{name} {objective}", job, paper, elsewhere))
        return rows


PRESETS = {
    "paper": Multigroup(training=PAPER_TRAINING, cifar_training=CIFAR_TRAINING),
    "hour": Multigroup(init="earn", training={**FAST, "batch_size": 128}, budget=3300.0),
    "quick": Multigroup(
        alpha=1,
        init="earn",
        data=("digits:translated", "digits:rotated"),
        training={**FAST, "curvature_subset": 100},
    ),
}
