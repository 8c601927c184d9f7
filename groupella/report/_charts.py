"""The report's curves over training: precisions of each layer, evidence, likelihood, accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ._content import Content
from ._layer_tables import columns_of
from ._precisions import PrecisionCurve, precision_curves
from ._svg import Line, line_chart
from ._words import shown

COLOURS = 8


def precisions(content: Content) -> str:
    """A chart for every layer, all on one scale."""
    found = precision_curves(content)
    curves = [curve for mine in found.values() for curve in mine]
    values = [v for curve in curves for v in curve.values if v is not None]
    if not values:
        return ""
    if all(curve.is_constant for curve in curves):
        return (
            "<h3>Precisions over training</h3>"
            '<p class="quiet">All prior precisions stayed as they were set: nothing was learned '
            "about them in this run.</p>"
        )
    columns, epochs = columns_of(content), [r.epoch + 1 for r in content.history]
    limits = (min(values) / 2, max(values) * 2)
    charts = "".join(
        f"<figure><h4>layer {i}: {escape(layer.verdict)}</h4>"
        + line_chart(
            [_line(curve, epochs, columns) for curve in found[layer.layer]],
            label=f"precisions of layer {i}",
            log=True,
            limits=limits,
        )
        + "</figure>"
        for i, layer in enumerate(content.selection.layers, 1)
    )
    crosses = ""
    if any(curve.out is not None for curve in curves):
        crosses = " A cross marks where a path was taken out: the evidence was higher without it."
    return (
        "<h3>Precisions over training</h3>"
        '<p class="quiet">A path with a high prior precision δ is switched off (dashed); one that '
        f"the evidence wants keeps a low one.{crosses}</p>"
        + _legend([(c, i % COLOURS) for i, c in enumerate(columns)])
        + f'<div class="charts">{charts}</div>'
    )


def curves(content: Content) -> str:
    """Evidence, likelihood and accuracy, where they were recorded."""
    history = list(content.history)
    if not history:
        return ""
    epochs = [r.epoch + 1 for r in history]
    n = content.selection.n_data
    evidence = [None if r.log_evidence is None else r.log_evidence / n for r in history]
    charts = []
    if any(v is not None for v in evidence):
        chart = line_chart([Line("log evidence", epochs, evidence, 0)], label="log evidence")
        charts.append(("Log evidence, nats a datum", [("training", 0)], chart))
    nll = [Line("training", epochs, [r.nll for r in history], 0)]
    held = [r.validation_nll for r in history]
    if any(v is not None for v in held):
        nll.append(Line("test", epochs, held, 1))
    charts.append(("Negative log-likelihood", _names(nll), line_chart(nll, label="NLL")))
    if any(r.accuracy is not None for r in history):
        lines = [Line("training", epochs, [_hundred(r.accuracy) for r in history], 0)]
        tested = [_hundred(r.validation_accuracy) for r in history]
        if any(v is not None for v in tested):
            lines.append(Line("test", epochs, tested, 1))
        charts.append(("Accuracy, %", _names(lines), line_chart(lines, label="accuracy")))
    figures = "".join(
        f"<figure><h4>{title}</h4>{_legend(names)}{chart}</figure>"
        for title, names, chart in charts
    )
    return f'<h3>Evidence and accuracy</h3><div class="charts">{figures}</div>'


def _line(curve: PrecisionCurve, epochs: Sequence[int], columns: Sequence[str]) -> Line:
    colour = columns.index(curve.path) % COLOURS
    end = None if curve.out is None else f"taken out after epoch {curve.out + 1}"
    return Line(shown(curve.path), epochs, curve.values, colour, not curve.alive, end)


def _names(lines: Sequence[Line]) -> list[tuple[str, int]]:
    return [(line.name, line.colour) for line in lines]


def _legend(entries: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 22 10" aria-hidden="true"><polyline class="curve s{colour}" '
        f'points="1,5 21,5"/></svg>{escape(shown(name))}</li>'
        for name, colour in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share
