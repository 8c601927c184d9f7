"""Tables for people and for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from groupella.decide import Selection

from ._content import LayerError
from ._words import numbered, shown

if TYPE_CHECKING:
    from rich.table import Table


def markdown(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; the first column is left-aligned, the others right."""
    lines = [
        "| " + " | ".join(heads) + " |",
        "| " + " | ".join(["---", *["---:"] * (len(heads) - 1)]) + " |",
    ]
    for row in rows:
        cells = ["–" if c is None else str(c).replace("|", "\\|") for c in row]
        if len(cells) != len(heads):
            raise ValueError(f"a row has {len(cells)} cells, the table {len(heads)} columns: {row}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def shares_table(selection: Selection) -> Table:
    """Layers × paths: the share of each path, in brackets where it is dead. Fits 80 columns."""
    from rich.table import Table as RichTable

    names = list(dict.fromkeys(p.path for s in selection.layers for p in s.paths))
    table = RichTable(
        title="What each layer obeys",
        caption="share of each path in its layer's effective parameters (dead ones in brackets)",
    )
    table.add_column("layer")
    table.add_column("obeys", style="bold")
    for name in names:
        table.add_column(shown(name), justify="right")
    for number, layer in enumerate(selection.layers, 1):
        found = {p.path: p for p in layer.paths}
        cells = []
        for name in names:
            path = found.get(name)
            share = "" if path is None else f"{100 * path.relative:.1f} %"
            cells.append(share if path is None or path.alive else f"({share})")
        table.add_row(numbered(number, layer.layer), layer.verdict, *cells)
    return table


def errors_table(errors: Iterable[LayerError]) -> Table:
    """Equivariance errors, layers × groups, after training."""
    from rich.table import Table as RichTable

    found = list(errors)
    groups = list(dict.fromkeys(e.group for e in found))
    table = RichTable(title="Relative equivariance error of each layer")
    table.add_column("layer")
    for group in groups:
        table.add_column(group, justify="right")
    by_key = {(e.layer, e.group): e.after for e in found}
    for number, layer in enumerate(dict.fromkeys(e.layer for e in found), 1):
        values = [by_key.get((layer, g)) for g in groups]
        name = numbered(number, layer)
        table.add_row(name, *("–" if v is None else f"{v:.1e}" for v in values))
    return table
