"""A selection for people: a rich table and a matplotlib figure."""

from __future__ import annotations

import math
from io import StringIO
from typing import TYPE_CHECKING

from ._selection import LayerSelection, Selection

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

HEADINGS = ("path", "δ", "‖w‖²", "γ of P", "γ/P", "relative", "removal", "")


def table(selection: Selection) -> Table:
    """One row per path, with the layer's verdict in its first row."""
    from rich.table import Table as RichTable
    from rich.text import Text

    per_datum = selection.log_evidence / selection.n_data
    caption = (
        f"log evidence {selection.log_evidence:.1f} nats, {per_datum:.3f} per datum. "
        f"{selection.rule}"
    )
    result = RichTable(
        title="What each layer obeys", caption=caption if selection.is_measured else None
    )
    result.add_column("layer")
    result.add_column("obeys", style="bold")
    result.add_column("clear")
    for heading in HEADINGS:
        result.add_column(heading, justify="left" if heading in ("path", "") else "right")
    for layer in selection.layers:
        if not layer.paths:
            result.add_row(Text(layer.layer), Text(layer.verdict))
        for number, path in enumerate(layer.paths):
            head = (layer.layer, layer.verdict, clearness_text(layer, selection))
            result.add_row(
                *(map(Text, head) if number == 0 else ("", "", "")),
                Text(path.path),
                f"{path.precision:.3g}",
                f"{path.squared_norm:.3g}",
                f"{path.effective_parameters:.1f} of {path.parameters}",
                f"{path.normalised:.2g}",
                f"{100 * path.relative:.1f} %",
                f"{path.removal:+.1f}",
                "alive" if path.alive else "dead",
                style=None if path.alive else "dim",
            )
        result.add_section()
    return result


def shown(name: str) -> str:
    """A group or path as a reader sees it; the trivial group is "none"."""
    return "none" if name in ("trivial", "free") else name


def numbered(number: int, layer: str) -> str:
    """A layer by its number and its module's name, such as "1 · layers.0"."""
    return f"{number} · {layer}" if layer else str(number)


def clearness_text(layer: LayerSelection, selection: Selection) -> str:
    """Such as "1.4 decades from none"."""
    if layer.alternative is None or not math.isfinite(layer.clearness):
        return "no alternative"
    return f"{layer.clearness:.1f} {selection.rule.unit} from {layer.alternative}"


def text(selection: Selection, width: int = 140) -> str:
    """The table as plain text."""
    from rich.console import Console

    console = Console(file=StringIO(), width=width, no_color=True, force_terminal=False)
    console.print(table(selection))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip("\n")


def figure(selection: Selection) -> Figure:
    """Relative γ of every path in every layer, with the verdict of each layer at its right."""
    import matplotlib

    with matplotlib.rc_context({"text.parse_math": False}):  # a name may contain $
        return _figure(selection)


def _figure(selection: Selection) -> Figure:
    from matplotlib.figure import Figure as MatplotlibFigure

    columns = list(dict.fromkeys(p.path for s in selection.layers for p in s.paths))
    shares = [
        [{p.path: p.relative for p in s.paths}.get(c, math.nan) for c in columns]
        for s in selection.layers
    ]
    rows = len(shares)
    result = MatplotlibFigure(
        figsize=(2.6 + 0.9 * len(columns), 1.2 + 0.38 * rows), layout="constrained"
    )
    axes = result.add_subplot()
    image = axes.imshow(shares, cmap="viridis", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(columns)), [shown(c) for c in columns])
    layers = [numbered(i, s.layer) for i, s in enumerate(selection.layers, 1)]
    axes.set_yticks(range(rows), layers)
    axes.set_title("relative effective parameters")
    verdicts = axes.secondary_yaxis("right")
    verdicts.set_yticks(range(rows), [s.verdict for s in selection.layers])
    verdicts.tick_params(length=0)
    for row, values in enumerate(shares):
        for column, value in enumerate(values):
            if not math.isnan(value):
                colour = "black" if value > 0.6 else "white"
                axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=colour)
    result.colorbar(image, ax=axes, pad=0.12)
    return result
