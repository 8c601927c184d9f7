"""The report: one HTML file that needs nothing else.

No script and no network: a content security policy forbids both. Curves are inline SVG, pictures
are PNG inside the page, colours follow the reader's light or dark setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from groupella._files import write_text
from groupella.evidence import LayerSelection

from ._content import Content, FilterPicture
from ._pictures import image, signed
from ._svg import Line, line_chart
from ._words import clearness, network_verdict, sentence

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
EXACT = 1e-4
COLOURS = 8


def write_report(
    contents: Content | Sequence[Content], path: str | Path, verdict: str | None = None
) -> Path:
    """Write the page about one run or several, atomically, and return where it is."""
    return write_text(path, page(contents, verdict))


def page(contents: Content | Sequence[Content], verdict: str | None = None) -> str:
    """The page as text. `verdict` heads a page about several runs."""
    runs = [contents] if isinstance(contents, Content) else list(contents)
    if not runs:
        raise ValueError("a report needs at least one run")
    style = resources.files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    if len(runs) == 1:
        title = runs[0].title
        body = f"<h1>{escape(title)}</h1>{_run(runs[0])}"
    else:
        title = "groupella: which symmetries?"
        heading = verdict or " ".join(f"{r.title}: {sentence(r.selection)}" for r in runs)
        sections = "".join(
            f'<section class="run" id="run{i}"><h2>{escape(r.title)}</h2>{_run(r)}</section>'
            for i, r in enumerate(runs)
        )
        body = (
            f'<h1>groupella</h1><p class="verdict">{escape(heading)}</p>{_overview(runs)}{sections}'
        )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def _overview(runs: Sequence[Content]) -> str:
    rows = "".join(
        f'<tr><td><a href="#run{i}">{escape(r.title)}</a></td>'
        f'<td class="answer">{escape(network_verdict(r.selection))}</td>'
        f'<td class="left">{escape(r.expected or "not known")}</td></tr>'
        for i, r in enumerate(runs)
    )
    return (
        '<nav class="scroll"><table class="plain"><thead><tr><th>task</th>'
        '<th class="left">found</th>'
        f'<th class="left">by construction</th></tr></thead><tbody>{rows}</tbody></table></nav>'
    )


def _run(content: Content) -> str:
    parts = [
        f'<p class="verdict">{escape(sentence(content.selection))}</p>',
        _facts(content),
        _heat_map(content) if content.selection.is_measured else "",
        _legend_of_groups(content.groups),
        _precisions(content),
        _curves(content),
        _errors(content),
        _filters(content),
        _examples(content),
        _numbers(content),
        _settings(content),
    ]
    return "".join(parts)


def _facts(content: Content) -> str:
    chosen = content.selection
    facts = [("data", content.data), ("training examples", f"{chosen.n_data:,}")]
    if content.outcome.accuracy is not None:
        facts.append(("test accuracy", f"{100 * content.outcome.accuracy:.1f} %"))
    if content.outcome.nll is not None:
        facts.append(("test NLL", f"{content.outcome.nll:.3f}"))
    if chosen.is_measured:
        facts.append(
            ("log evidence", f"{_signed(chosen.log_evidence / chosen.n_data, 3)} nats a datum")
        )
    if content.expected is not None:
        facts.append(("labels obey, by construction", content.expected))
    items = "".join(f'<li><span class="quiet">{k}</span><b>{escape(v)}</b></li>' for k, v in facts)
    return f'<ul class="facts">{items}</ul>'


def _columns(content: Content) -> list[str]:
    return list(dict.fromkeys(p.path for s in content.selection.layers for p in s.paths))


def _heat_map(content: Content) -> str:
    columns = _columns(content)
    heads = "".join(f'<th style="text-align:center">{escape(_shown(c))}</th>' for c in columns)
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        shares = {p.path: p for p in layer.paths}
        cells = []
        for column in columns:
            path = shares.get(column)
            if path is None:
                cells.append('<td class="dead">–</td>')
                continue
            strong = " strong" if path.relative > 0.55 else ""
            dead = "" if path.alive else " dead"
            cells.append(
                f'<td class="heat{strong}{dead}" style="--share:{path.relative:.3f}" '
                f'title="{escape(_detail(layer, column))}">{_percent(path.relative)}</td>'
            )
        rows.append(
            f'<tr><th title="{escape(layer.layer)}">layer {number}</th>{"".join(cells)}'
            f'<td class="answer">{escape(layer.verdict)}</td>'
            f'<td class="quiet left">{escape(clearness(layer, content.selection))}</td></tr>'
        )
    return (
        "<h3>What each layer uses</h3>"
        '<p class="quiet">Share of each path in the effective parameters of its layer (γ/P, '
        f"normalised per layer). A path is alive {_rule(content)}. A layer obeys the strictest "
        "group that contains all its live paths.</p>"
        f'<div class="scroll"><table class="map"><thead><tr><th></th>{heads}'
        '<th class="left">obeys</th><th class="left">how clear</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _rule(content: Content) -> str:
    limit = content.selection.threshold
    if content.selection.rule == "gamma":
        return f"from a share of {100 * limit:g} %"
    each = content.selection.nats_per_parameter
    more = f", and by {each:g} for each of its effective parameters," if each else " or more"
    return f"when the log evidence falls by {limit:g} nats{more} without it"


def _detail(layer: LayerSelection, name: str) -> str:
    path = next(p for p in layer.paths if p.path == name)
    state = "alive" if path.alive else "dead"
    return (
        f"{name}, {state}: γ {path.effective_parameters:.1f} of {path.parameters}, "
        f"δ {path.precision:.3g}, removal {path.removal:+.1f} nats"
    )


def _legend_of_groups(groups: Mapping[str, str]) -> str:
    named = [f"<b>{escape(_shown(n))}</b> {escape(t)}" for n, t in groups.items() if t != n]
    return f'<p class="quiet">{"; ".join(named)}.</p>' if named else ""


def _precisions(content: Content) -> str:
    epochs = [r.epoch + 1 for r in content.history]
    columns = _columns(content)
    series: dict[str, list[Line]] = {}
    values: list[float] = []
    for layer in content.selection.layers:
        lines = []
        for path in layer.paths:
            name = f"{layer.layer}/{path.path}" if layer.layer else path.path
            found = [(r.precisions or {}).get(name) for r in content.history]
            if any(v is not None for v in found):
                values += [v for v in found if v is not None]
                colour = columns.index(path.path) % COLOURS
                lines.append(Line(path.path, epochs, found, colour, not path.alive))
        series[layer.layer] = lines
    if not values:
        return ""
    limits = (min(values) / 2, max(values) * 2)
    charts = "".join(
        f"<figure><h4>layer {i}: {escape(layer.verdict)}</h4>"
        + line_chart(series[layer.layer], label=f"precisions of layer {i}", log=True, limits=limits)
        + "</figure>"
        for i, layer in enumerate(content.selection.layers, 1)
    )
    return (
        "<h3>Precisions over training</h3>"
        '<p class="quiet">A path with a high prior precision δ is switched off (dashed); one that '
        "the evidence wants keeps a low one.</p>"
        + _legend([(c, i % COLOURS) for i, c in enumerate(columns)])
        + f'<div class="charts">{charts}</div>'
    )


def _curves(content: Content) -> str:
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


def _names(lines: Sequence[Line]) -> list[tuple[str, int]]:
    return [(line.name, line.colour) for line in lines]


def _legend(entries: Sequence[tuple[str, int]]) -> str:
    items = "".join(
        f'<li><svg viewBox="0 0 22 10" aria-hidden="true"><polyline class="curve s{colour}" '
        f'points="1,5 21,5"/></svg>{escape(_shown(name))}</li>'
        for name, colour in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _errors(content: Content) -> str:
    if not content.errors:
        return ""
    groups = list(dict.fromkeys(e.group for e in content.errors))
    found = {(e.layer, e.group): e for e in content.errors}
    heads = "".join(f'<th colspan="2">{escape(g)}</th>' for g in groups)
    subheads = "<th>before</th><th>after</th>" * len(groups)
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        cells = []
        for group in groups:
            error = found.get((layer.layer, group))
            pair = (None, None) if error is None else (error.before, error.after)
            cells += [_error(v) for v in pair]
        rows.append(f"<tr><th>layer {number}</th>{''.join(cells)}</tr>")
    return (
        "<h3>Measured equivariance error</h3>"
        '<p class="quiet">Largest ‖f(g·x) − g·f(x)‖ relative to ‖f(x)‖ over generators and random '
        "elements, for each whole layer with all its paths, before and after training. "
        f"Below {EXACT:g} it is exact up to rounding.</p>"
        f'<div class="scroll"><table class="plain"><thead><tr><th></th>{heads}</tr>'
        f"<tr><th></th>{subheads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _error(value: float | None) -> str:
    if value is None:
        return "<td>–</td>"
    text = "0" if value == 0 else f"{value:.0e}" if value < EXACT else f"{value:.2g}"
    return f'<td class="exact">{text}</td>' if value < EXACT else f"<td>{text}</td>"


def _filters(content: Content) -> str:
    if not content.filters:
        return ""
    figures = []
    for number, layer in enumerate(content.selection.layers, 1):
        mine = [f for f in content.filters if f.layer == layer.layer]
        if not mine:
            continue
        scales = {kind: _scale(mine, layer.live, kind) for kind in ("kernels", "maps")}
        strips = []
        for picture in mine:
            alive = picture.path in layer.live or not layer.paths
            images = "".join(
                f'<img alt="" src="{signed(f, scales[picture.kind])}">' for f in picture.filters
            )
            state = "" if alive else " (dead)"
            largest = float(np.abs(picture.filters).max(initial=0.0))
            strips.append(
                f'<div class="{"" if alive else "faded"}"><span class="quiet">'
                f"{escape(_shown(picture.path))}{state}, largest weight {largest:.2g}</span>"
                f'<div class="strip {picture.kind}">{images}</div></div>'
            )
        figures.append(f"<figure><h4>layer {number}</h4>{''.join(strips)}</figure>")
    return (
        "<h3>Learned filters</h3>"
        '<p class="quiet">The largest of each path: positive orange, negative blue, on one scale '
        "a layer, so that paths that are switched off are blank. Paths without shifts show maps "
        f'over the whole image.</p><div class="filters">{"".join(figures)}</div>'
    )


def _scale(pictures: Sequence[FilterPicture], live: Sequence[str], kind: str) -> float:
    """The largest weight of live paths of that kind, or of any where all of them are dead."""
    sizes = {p.path: float(np.abs(p.filters).max(initial=0.0)) for p in pictures}
    alike = [sizes[p.path] for p in pictures if p.kind == kind and p.path in live]
    return max(alike or sizes.values(), default=0.0)


def _examples(content: Content) -> str:
    if not content.examples:
        return ""
    figures = "".join(
        f'<figure><img alt="{escape(e.label)}" src="{image(e.pixels)}">'
        f"<figcaption>{escape(e.label)}</figcaption></figure>"
        for e in content.examples
    )
    return (
        '<h3>Example images</h3><p class="quiet">Training images with their labels.</p>'
        f'<div class="examples">{figures}</div>'
    )


def _numbers(content: Content) -> str:
    heads = ("layer", "path", "state", "δ", "‖w‖²", "γ", "P", "γ/P", "relative", "removal, nats")
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        for p in layer.paths:
            cells = (
                f"{p.precision:.3g}",
                f"{p.squared_norm:.3g}",
                f"{p.effective_parameters:.1f}",
                f"{p.parameters:,}",
                f"{p.normalised:.2g}",
                _percent(p.relative),
                f"{p.removal:+.1f}",
            )
            state = (
                '<td class="alive left">alive</td>'
                if p.alive
                else '<td class="dead left">dead</td>'
            )
            tail = "".join(f"<td>{c}</td>" for c in cells)
            rows.append(
                f'<tr><td>layer {number}</td><td class="left">{escape(_shown(p.path))}</td>'
                f"{state}{tail}</tr>"
            )
    top = "".join(f'<th class="{"left" if i < 3 else ""}">{h}</th>' for i, h in enumerate(heads))
    remarks = "".join(f'<p class="quiet">{escape(r)}</p>' for r in content.remarks)
    return (
        "<details><summary>All numbers</summary>"
        f'<div class="scroll"><table class="plain"><thead><tr>{top}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{remarks}</details>"
    )


def _settings(content: Content) -> str:
    entries = {**content.settings, **{f"version of {k}": v for k, v in content.versions.items()}}
    if not entries:
        return ""
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(_plain(v))}</dd>" for k, v in entries.items())
    return f"<details><summary>Settings and versions</summary><dl>{items}</dl></details>"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    return str(value)


def _shown(name: str) -> str:
    """The trivial group is "none" to a reader."""
    return "none" if name == "trivial" else name


def _percent(share: float) -> str:
    if share == 0 or share >= 0.0995:
        return f"{100 * share:.0f} %"
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _signed(value: float, digits: int) -> str:
    """With a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def _hundred(share: float | None) -> float | None:
    return None if share is None else 100 * share
