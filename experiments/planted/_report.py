"""Counts of right layers and of wrong symmetries, as a table, a figure and a summary.

A fraction k/n is given with its Wilson interval at 95 %: with z = 1.96,

    (k/n + z²/2n ± z √( k(n−k)/n³ + z²/4n² )) / (1 + z²/n).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ._outcome import Counts, Outcome

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

Z = 1.959964
HEADINGS = ("part", "n", "noise", "layers right", "wrong symmetry", "dropped", "CPU s")


def wilson(k: int, n: int) -> tuple[float, float]:
    """The Wilson interval of k successes in n trials; (0, 1) without trials."""
    if n == 0:
        return 0.0, 1.0
    centre = k / n + Z * Z / (2 * n)
    half = Z * math.sqrt(k * (n - k) / n**3 + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def fraction(k: int, n: int) -> float | None:
    return k / n if n else None


def headline(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures that have a target, with their counts."""
    parts = {
        name: Counts.of(o for o in outcomes if o.part.startswith(name))
        for name in ("linear", "deep", "data", "basin")
    }
    # Students that start from the teacher's weights tell where errors come from; no more.
    everything = Counts.of(o for o in outcomes if o.part != "basin")
    summary: dict[str, Any] = {
        "linear_right": fraction(parts["linear"].right, parts["linear"].layers),
        "deep_right": fraction(parts["deep"].right, parts["deep"].layers),
        "wrong_symmetry": fraction(everything.wrong, everything.layers),
    }
    for name in ("data", "basin"):
        if parts[name].layers:
            summary[f"{name}_right"] = fraction(parts[name].right, parts[name].layers)
    summary["counts"] = {
        name: {
            "layers": c.layers,
            "right": c.right,
            "wrong_symmetry": c.wrong,
            "dropped": c.dropped,
        }
        for name, c in parts.items()
        if c.layers or c.dropped
    }
    return summary


def conditions(outcomes: Iterable[Outcome]) -> dict[tuple[str, int, float], list[Outcome]]:
    """Outcomes by part, number of data and noise."""
    found: dict[tuple[str, int, float], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        found[outcome.part, outcome.n, outcome.noise].append(outcome)
    return dict(sorted(found.items()))


def summary(outcomes: Sequence[Outcome], preset: str) -> dict[str, Any]:
    """Everything worth keeping: headline, conditions with intervals, failures, dropped plants."""
    rows = []
    for (part, n, noise), members in conditions(outcomes).items():
        counts = Counts.of(members)
        rows.append(
            {
                "part": part,
                "n": n,
                "noise": noise,
                "layers": counts.layers,
                "right": counts.right,
                "right_interval": [round(v, 4) for v in wilson(counts.right, counts.layers)],
                "wrong_symmetry": counts.wrong,
                "wrong_interval": [round(v, 4) for v in wilson(counts.wrong, counts.layers)],
                "dropped": counts.dropped,
                "cpu_seconds": round(sum(o.seconds for o in members), 1),
            }
        )
    return {
        "preset": preset,
        **headline(outcomes),
        "conditions": rows,
        "by_group": _by_group(outcomes),
        "not_right": [line for o in outcomes for line in _lines(o, not_right=True)],
        "dropped": [line for o in outcomes for line in _lines(o, not_right=False)],
    }


def table(outcomes: Sequence[Outcome]) -> Table:
    """One row a condition."""
    from rich.table import Table as RichTable

    result = RichTable(title="Planted symmetries")
    for heading in HEADINGS:
        result.add_column(heading, justify="left" if heading == "part" else "right")
    for cells in _cells(outcomes):
        result.add_row(*cells)
    return result


def markdown_table(outcomes: Sequence[Outcome]) -> str:
    """The same as Markdown."""
    from groupella.report import markdown

    return markdown(list(HEADINGS), list(_cells(outcomes)))


def _cells(outcomes: Sequence[Outcome]) -> Iterator[list[str]]:
    for (part, n, noise), members in conditions(outcomes).items():
        counts = Counts.of(members)
        yield [
            part,
            str(n),
            f"{100 * noise:g} %",
            _share(counts.right, counts.layers),
            _share(counts.wrong, counts.layers),
            str(counts.dropped),
            f"{sum(o.seconds for o in members):.0f}",
        ]


def figure(outcomes: Sequence[Outcome]) -> Figure:
    """Right layers and wrong symmetries against n: a line for every part and noise."""
    from matplotlib.figure import Figure as MatplotlibFigure

    lines: dict[tuple[str, float], list[tuple[int, Counts]]] = defaultdict(list)
    for (part, n, noise), members in conditions(outcomes).items():
        lines[part, noise].append((n, Counts.of(members)))
    result = MatplotlibFigure(figsize=(9, 3.6), layout="constrained")
    axes = result.subplots(1, 2, sharex=True)
    titles = ("most restrictive true group", "wrong symmetry imposed")
    for panel, title, pick in zip(axes, titles, ("right", "wrong"), strict=True):
        for (part, noise), points in lines.items():
            kept = [(n, c) for n, c in points if c.layers]
            if not kept:
                continue
            share = [getattr(c, pick) / c.layers for _, c in kept]
            limits = [wilson(getattr(c, pick), c.layers) for _, c in kept]
            errors = [
                [max(0.0, s - low) for s, (low, _) in zip(share, limits, strict=True)],
                [max(0.0, high - s) for s, (_, high) in zip(share, limits, strict=True)],
            ]
            panel.errorbar(
                [n for n, _ in kept],
                share,
                yerr=errors,
                marker="o",
                capsize=3,
                label=f"{part}, noise {100 * noise:g} %",
            )
        panel.set_xscale("log")
        panel.set_ylim(-0.03, 1.03)
        panel.set_xlabel("n")
        panel.set_title(title)
        panel.grid(alpha=0.3)
    axes[0].set_ylabel("fraction of layers")
    axes[0].legend(fontsize=8)
    return result


def _share(k: int, n: int) -> str:
    low, high = wilson(k, n)
    return f"{k} of {n} ({100 * low:.0f}–{100 * high:.0f} %)" if n else "–"


def _by_group(outcomes: Iterable[Outcome]) -> dict[str, dict[str, dict[str, int]]]:
    """part → planted member → verdict → how often."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for o in outcomes:
        for planted, verdict, counts in zip(o.planted, o.verdicts, o.counted, strict=True):
            if counts:
                row = found.setdefault(o.part, {}).setdefault(planted, {})
                row[verdict] = row.get(verdict, 0) + 1
    return found


def _lines(outcome: Outcome, not_right: bool) -> list[str]:
    lines = []
    for layer, counts in enumerate(outcome.counted):
        where = f"{outcome.key}, layer {layer + 1}: planted {outcome.planted[layer]}"
        if not_right and counts and not outcome.right[layer]:
            remark = ", a wrong symmetry" if outcome.wrong[layer] else ""
            lines.append(f"{where}, found {outcome.verdicts[layer]}{remark}")
        elif not not_right and not counts:
            lines.append(f"{where}, not identifiable (found {outcome.verdicts[layer]})")
    return lines
