"""The layer-structure table: what networks with a fully connected path use in each layer.

After training FC+CONV on CIFAR-10 under evidence the paper lists, layer by layer, each path's prior
precision, squared norm, effective parameters a weight and relative effective parameters, and calls
a layer by the path with the largest of the last. `details` prints the same of our runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from groupella.runs import Job
from groupella.runs.study import Row

from .cifar10 import PAPER_TRAINING, PUBLISHED
from .toy import FAST

if TYPE_CHECKING:
    from groupella.runs import Done

# Of FC+CONV, layer by layer: relative effective parameters of the convolution.
PUBLISHED_SHARES = (
    0.99999997,
    0.99999990,
    0.99999979,
    0.99999822,
    0.99998112,
    0.99997357,
    0.00072373,
    0.99998126,
)


@dataclass(frozen=True)
class Layers:
    """`alphas` gives the width of each network that is looked into."""

    alphas: Mapping[str, int] = field(default_factory=lambda: {"FC+CONV": 10})
    train_size: int | None = None
    init: str = "balanced"
    training: Mapping[str, Any] = field(default_factory=dict)
    budget: float | None = None

    def rows(self, seed: int) -> list[Row]:
        return [self._row(model, alpha, seed) for model, alpha in self.alphas.items()]

    def _row(self, model: str, alpha: int, seed: int) -> Row:
        nll, accuracy, evidence = PUBLISHED[model][1]
        job = Job(
            title=f"CIFAR-10: layers of {model}",
            data="cifar10",
            groups="z2",
            preset=f"cifar10/{model}",
            train_size=self.train_size,
            alpha=alpha,
            init=self.init,
            seed=seed,
            training=self.training,
        )
        return Row(model, job, {"nll": nll, "accuracy": accuracy, "evidence": evidence})


def details(done: Mapping[str, Done]) -> str:
    """The table of every network, as Markdown, beside the published layer types of FC+CONV."""
    from groupella.report import markdown

    texts = []
    for name, one in done.items():
        heads: list[str] = ["layer"]
        lines: list[list[Any]] = []
        for layer in one.content.selection.layers:
            if not heads[1:]:
                for head in ("precision", "‖θ‖²", "γ/P", "relative"):
                    heads += [f"{head}, {path.path}" for path in layer.paths]
            cells: list[Any] = [layer.layer]
            for value in ("precision", "squared_norm", "normalised", "relative"):
                cells += [f"{getattr(path, value):.3g}" for path in layer.paths]
            largest = max(layer.paths, key=lambda path: path.relative, default=None)
            cells.append(None if largest is None else largest.path)
            if name == "FC+CONV":
                cells.append("CONV" if PUBLISHED_SHARES[len(lines)] > 0.5 else "FC")
            lines.append(cells)
        heads += ["type", "paper"] if name == "FC+CONV" else ["type"]
        texts.append(f"## {name}\n\n{markdown(heads, lines)}")
    return "\n".join(texts)


PRESETS = {
    "paper": Layers(training=PAPER_TRAINING),
    "hour": Layers(
        alphas={"FC+CONV": 2, "F-FC+CONV": 10},
        init="earn",
        training={**FAST, "batch_size": 128},
        budget=3300.0,
    ),
    "quick": Layers(
        alphas={"FC+CONV": 1, "F-FC+CONV": 2},
        train_size=2000,
        init="earn",
        training={**FAST, "epochs": 10, "curvature_subset": 100},
    ),
}
