"""Tables for people and for documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._content import LayerError

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
    for layer in dict.fromkeys(e.layer for e in found):
        values = [by_key.get((layer, g)) for g in groups]
        table.add_row(layer, *("–" if v is None else f"{v:.1e}" for v in values))
    return table
