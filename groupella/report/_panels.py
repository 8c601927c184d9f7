"""The line charts of a report as data; `_figures.py` draws them, for the page and for files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from groupella.decide import PathSelection, shown

from ._content import ReportContent
from ._words import path_names

SMALLEST_ERROR = 1e-8  # float32 rounding; an error of 0 has no place on a logarithmic axis


@dataclass(frozen=True)
class Line:
    """One curve: None is a gap in `ys`, `end` says why it ends early (marked by a cross)."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float | None]
    colour: int
    dashed: bool = False
    end: str | None = None

    @property
    def points(self) -> list[tuple[float, float]]:
        pairs = zip(self.xs, self.ys, strict=True)
        return [(x, y) for x, y in pairs if y is not None and math.isfinite(y)]


@dataclass(frozen=True)
class Panel:
    """One chart. `limits` bounds its vertical axis, which is logarithmic if `log`."""

    title: str
    lines: tuple[Line, ...]
    y_label: str = ""
    x_label: str = "epoch"
    log: bool = False
    limits: tuple[float, float] | None = None


def precision_panels(content: ReportContent) -> list[Panel]:
    """Return the prior precisions of every layer, all on one scale; [] if none was learned.

    A path has one precision, or several if its tensors or lengthscales have priors of their own.
    The precision of a path that was removed goes to the upper bound, which says nothing about the
    evidence and would squeeze the other curves: its curve ends there instead.
    """
    columns = path_names(content.selection)
    found = {
        layer.layer: [
            line
            for path in layer.paths
            for name in path.priors
            if (line := _precision(content, path, name, columns.index(path.path))).points
        ]
        for layer in content.selection.layers
    }
    lines = [line for mine in found.values() for line in mine]
    if not any(line.end or len({y for _, y in line.points}) > 1 for line in lines):
        return []
    values = [y for line in lines for _, y in line.points]
    return [
        Panel(
            f"layer {number}: {layer.verdict}",
            tuple(found[layer.layer]),
            y_label="prior precision δ",
            log=True,
            limits=(min(values) / 2, max(values) * 2),
        )
        for number, layer in enumerate(content.selection.layers, 1)
        if found[layer.layer]
    ]


def training_panels(content: ReportContent) -> list[Panel]:
    """Return log evidence, likelihood and accuracy over training, where they were recorded."""
    epochs = [record.epoch + 1 for record in content.history]
    panels = []
    per_example = 1 / content.selection.n_data
    for title, factor, columns in (
        ("Log evidence, nats per example", per_example, {"training": "log_evidence"}),
        ("Negative log-likelihood", 1.0, {"training": "nll", "test": "validation_nll"}),
        ("Accuracy, %", 100.0, {"training": "accuracy", "test": "validation_accuracy"}),
    ):
        lines = []
        for colour, (name, column) in enumerate(columns.items()):
            values = [None if v is None else factor * v for v in content.history.column(column)]
            lines.append(Line(name, epochs, values, colour))
        drawn = tuple(line for line in lines if line.points)
        if drawn:
            panels.append(Panel(title, drawn))
    return panels


def reliability_panels(content: ReportContent) -> list[Panel]:
    """Return how often predictions are right, over how sure they are; [] if it was not measured."""
    found = content.reliability
    if found is None or not found.count:
        return []
    confidence, right = ([100 * v for v in values] for values in (found.confidence, found.accuracy))
    lines = (
        Line("as often as said", (0.0, 100.0), (0.0, 100.0), 7, dashed=True),
        Line("held-out data", confidence, right, 0),
    )
    title = f"Calibration error {found.error:.3f}, {sum(found.count)} held-out data"
    return [Panel(title, lines, y_label="right, %", x_label="confidence, %")]


def error_panels(content: ReportContent) -> list[Panel]:
    """Return the equivariance errors of all layers, one panel per group."""
    panels = []
    for group in dict.fromkeys(e.group for e in content.errors):
        mine = [e for e in content.errors if e.group == group]
        numbers = range(1, len(mine) + 1)
        before, after = (
            [None if v is None else max(v, SMALLEST_ERROR) for v in values]
            for values in ([e.before for e in mine], [e.after for e in mine])
        )
        lines = (
            Line("before training", numbers, before, 0, dashed=True),
            Line("after training", numbers, after, 1),
        )
        if any(line.points for line in lines):
            panels.append(Panel(f"equivariance error, {group}", lines, x_label="layer", log=True))
    return panels


def _precision(content: ReportContent, path: PathSelection, name: str, colour: int) -> Line:
    out = next((r.epoch for r in content.history if name in r.taken_out), None)
    return Line(
        shown(path.path),
        [record.epoch + 1 for record in content.history],
        [
            None if out is not None and r.epoch >= out else (r.precisions or {}).get(name)
            for r in content.history
        ],
        colour,
        dashed=not path.alive,
        end=None if out is None else f"removed after epoch {out + 1}",
    )
