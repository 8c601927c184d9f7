"""Tables for the terminal and for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from groupella.decide import Selection, numbered, shown
from groupella.decide.claims import FREE, Consequence, Judgement

from ._content import Confusion, LayerError, ReportTable
from ._words import path_names

if TYPE_CHECKING:
    from rich.table import Table

FOUND, VERDICT = "found", "the verdict"
EXACT = 1e-4  # below it an equivariance error is rounding


def markdown(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right."""
    lines = [
        "| " + " | ".join(map(_cell, heads)) + " |",
        "| " + " | ".join(["---", *["---:"] * (len(heads) - 1)]) + " |",
    ]
    for row in rows:
        cells = [_cell(c) for c in row]
        if len(cells) != len(heads):
            raise ValueError(f"a row has {len(cells)} cells, the table {len(heads)} columns: {row}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    """One line, in which nothing ends the cell."""
    return "–" if value is None else " ".join(str(value).replace("|", "\\|").split())


def shares_table(selection: Selection) -> Table:
    """Return a table of layers × paths for the terminal; it fits 80 columns.

    A cell is the path's share in its layer's effective parameters, in brackets if it is dead.
    """
    names = path_names(selection)
    rows = []
    for number, layer in enumerate(selection.layers, 1):
        shares = {
            p.path: f"{100 * p.relative:.1f} %" if p.alive else f"({100 * p.relative:.1f} %)"
            for p in layer.paths
        }
        cells = (shares.get(name, "") for name in names)
        rows.append((numbered(number, layer.layer), layer.verdict, *cells))
    heads = ("layer", "obeys", *map(shown, names))
    note = "share of each path in its layer's effective parameters (dead paths in brackets)"
    table = _rich(ReportTable("What each layer obeys", heads, tuple(rows), note))
    table.columns[1].justify, table.columns[1].style = "left", "bold"
    return table


def errors_table(errors: Iterable[LayerError]) -> Table:
    """Return equivariance errors after training, layers × groups, for the terminal."""
    found = {(e.layer, e.group): e.after for e in errors}
    groups = tuple(dict.fromkeys(group for _, group in found))
    rows = []
    for number, layer in enumerate(dict.fromkeys(layer for layer, _ in found), 1):
        values = [found.get((layer, group)) for group in groups]
        cells = (None if v is None else f"{v:.1e}" for v in values)
        rows.append((numbered(number, layer), *cells))
    title = "Relative equivariance error of each layer"
    return _rich(ReportTable(title, ("layer", *groups), tuple(rows)))


def consequences_table(consequences: Iterable[Consequence]) -> Table:
    """Return what imposing each group on the whole network does, for the terminal."""
    return _rich(consequences_section(consequences))


def consequences_section(
    consequences: Iterable[Consequence], judgement: Judgement | None = None
) -> ReportTable:
    """Return the consequences as text; columns in which nothing was measured are left out.

    With a judgement, a column says what was found of each group.
    """
    found = list(consequences)
    columns: dict[str, list[str | None]] = {
        "group": [shown(c.name) for c in found],
        FOUND: [None if judgement is None else _outcome(c.name, judgement) for c in found],
        "accuracy": [_text(c.accuracy, ".1%") for c in found],
        "R²": [_text(c.r2, ".3f") for c in found],
        "NLL": [_text(c.nll, ".3f") for c in found],
        "parameters": [_text(c.parameters, ",d") for c in found],
        "equivariance error": [error_text(c.equivariance_error) for c in found],
        "log evidence": [_text(c.log_evidence, ".1f") for c in found],
        "note": [c.note for c in found],
    }
    kept = {head: cells for head, cells in columns.items() if any(cells) or head == "group"}
    return ReportTable(
        "Each group imposed on the whole network",
        tuple(kept),
        tuple(zip(*kept.values(), strict=True)),
        "on held-out data; log evidence: of these data given the training data, in nats; "
        "averaged: predictions averaged over the group",
    )


def confusions_section(confusion: Confusion, most: int = 10) -> ReportTable:
    """Return the most frequent mistakes as a table, for more classes than a matrix can show."""
    rows = tuple((a, b, str(n)) for a, b, n in confusion.mistakes[:most])
    return ReportTable(
        "Most frequent confusions", ("class", "taken for", "how often"), rows, f"On {confusion.on}."
    )


def error_text(value: float | None) -> str | None:
    """Return an equivariance error with two digits; one digit where only rounding is left."""
    if not value:
        return None if value is None else "0"
    return f"{value:.0e}" if value < EXACT else f"{value:.2g}"


def _outcome(name: str, judgement: Judgement) -> str | None:
    """Return what was found of a group; the network without symmetry is only compared with."""
    named = judgement.obeys
    if named is not None and (name in named or (name == FREE and not named)):
        return VERDICT
    outcomes = {finding.candidate: finding.outcome for finding in judgement.findings}
    return outcomes.get(name)


def _text(value: float | None, form: str) -> str | None:
    return None if value is None else format(value, form).replace("-", "−")


def _rich(content: ReportTable) -> Table:
    from rich.markup import escape
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=escape(content.title), caption=escape(content.note) or None)
    for i, head in enumerate(content.heads):
        left = i == 0 or head == "note"
        table.add_column(Text(head), justify="left" if left else "right", overflow="fold")
    for row in content.rows:
        table.add_row(*(Text("–" if cell is None else cell) for cell in row))
    return table
