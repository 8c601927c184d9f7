"""The report's tables of layers: the heat map, equivariance errors, and all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from groupella.decide import LayerSelection, PathSelection, clearness_text

from ._content import Content
from ._words import shown

EXACT = 1e-4
POOLS = "ᵖ"


def columns_of(content: Content) -> list[str]:
    """The names of all paths, in order of appearance."""
    return list(dict.fromkeys(p.path for s in content.selection.layers for p in s.paths))


def heat_map(content: Content) -> str:
    """Layers × paths by relative effective parameters, with the verdict on each layer."""
    columns = columns_of(content)
    heads = "".join(_head(shown(c), "middle") for c in columns)
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        found = {p.path: p for p in layer.paths}
        cells = "".join(_share(found.get(column)) for column in columns)
        remark = clearness_text(layer, content.selection)
        if layer.paths and not layer.live:
            remark = f"uses no path; {remark}"
        rows.append(
            f'<tr>{_layer(number, layer)}<td class="answer">{escape(layer.verdict)}</td>'
            f'{cells}<td class="quiet left">{escape(remark)}</td></tr>'
        )
    return (
        "<h3>What each layer uses</h3>"
        '<p class="quiet">Share of each path in the effective parameters of its layer (γ/P, '
        "normalised per layer); in brackets where the path is dead. "
        f"{escape(str(content.selection.rule))} "
        "A layer obeys the strictest group that contains all its live paths.</p>"
        + _table(
            "map",
            "what each layer uses",
            f"<tr>{_head('layer')}{_head('obeys', 'left')}{heads}{_head('how clear', 'left')}</tr>",
            rows,
        )
    )


def errors(content: Content) -> str:
    """Measured equivariance errors, layers × groups, before beside after."""
    if not content.errors:
        return ""
    groups = list(dict.fromkeys(e.group for e in content.errors))
    found = {(e.layer, e.group): e for e in content.errors}
    heads = "".join(
        f'<th scope="colgroup" colspan="2" class="middle">{escape(g)}</th>' for g in groups
    )
    subheads = (_head("before") + _head("after")) * len(groups)
    pooling = {e.layer for e in content.errors if e.up_to_translation}
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        cells = []
        for group in groups:
            error = found.get((layer.layer, group))
            pair = (None, None) if error is None else (error.before, error.after)
            cells += [_error(v) for v in pair]
        rows.append(f"<tr>{_layer(number, layer, layer.layer in pooling)}{''.join(cells)}</tr>")
    pooled = (
        f" Layers that pool ({POOLS}) are compared up to one shift a sample: they halve the "
        "lattice, so that no odd shift of the input is a shift of the output."
    )
    return (
        "<h3>Measured equivariance error</h3>"
        '<p class="quiet">Largest entry of f(g·x) − g·f(x), relative to the largest of f(x) and '
        "f(g·x), over generators and random elements g and random inputs x, for each whole "
        "layer with all its paths, before and after training. "
        f"Below {EXACT:g} it is exact up to rounding.{pooled if pooling else ''}</p>"
        + _table(
            "plain",
            "measured equivariance error",
            f"<tr>{_head('')}{heads}</tr><tr>{_head('layer')}{subheads}</tr>",
            rows,
        )
    )


def numbers(content: Content) -> str:
    """Everything that is known of each path."""
    heads = ("layer", "path", "state", "δ", "‖w‖²", "γ", "P", "γ/P", "relative", "removal, nats")
    rows = []
    for number, layer in enumerate(content.selection.layers, 1):
        for p in layer.paths:
            state = "alive" if p.alive else "dead"
            cells = (
                f"{p.precision:.3g}",
                f"{p.squared_norm:.3g}",
                f"{p.effective_parameters:.1f}",
                f"{p.parameters:,}",
                f"{p.normalised:.2g}",
                _percent(p.relative),
                f"{p.removal:+.1f}".replace("-", "−"),
            )
            tail = "".join(f"<td>{c}</td>" for c in cells)
            rows.append(
                f'<tr>{_layer(number, layer)}<td class="left">{escape(shown(p.path))}</td>'
                f'<td class="{state} left">{state}</td>{tail}</tr>'
            )
    top = "".join(_head(h, "left" if i < 3 else "") for i, h in enumerate(heads))
    return (
        "<details><summary>All numbers</summary>"
        + _table("plain", "all numbers", f"<tr>{top}</tr>", rows)
        + "</details>"
    )


def _table(kind: str, label: str, head: str, rows: Sequence[str]) -> str:
    """A table that scrolls by itself where it is wider than the page, also by keyboard."""
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">'
        f'<table class="{kind}"><thead>{head}</thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _head(text: str, kind: str = "") -> str:
    if not text:
        return "<td></td>"
    classes = f' class="{kind}"' if kind else ""
    return f'<th scope="col"{classes}>{escape(text)}</th>'


def _layer(number: int, layer: LayerSelection, pools: bool = False) -> str:
    mark = POOLS if pools else ""
    module = f'<span class="module">{escape(layer.layer)}</span>' if layer.layer else ""
    return f'<th scope="row">layer {number}{mark}{module}</th>'


def _share(path: PathSelection | None) -> str:
    if path is None:
        return '<td class="middle">–</td>'
    state = "alive" if path.alive else "dead"
    text = _percent(path.relative)
    detail = (
        f"{path.path}, {state}: γ {path.effective_parameters:.1f} of {path.parameters}, "
        f"δ {path.precision:.3g}, removal {path.removal:+.1f} nats"
    )
    return (
        f'<td class="heat" style="--share:{path.relative:.3f}" title="{escape(detail)}">'
        f"{text if path.alive else f'({text})'}</td>"
    )


def _error(value: float | None) -> str:
    if value is None:
        return "<td>–</td>"
    text = "0" if value == 0 else f"{value:.0e}" if value < EXACT else f"{value:.2g}"
    return f'<td class="exact">{text}</td>' if value < EXACT else f"<td>{text}</td>"


def _percent(share: float) -> str:
    if share == 0 or share >= 0.0995:
        return f"{100 * share:.0f} %"
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"
