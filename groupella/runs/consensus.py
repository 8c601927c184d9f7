"""What several runs of one task say together: means, spreads, and the verdict that most share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from .study import table

NO_CONSENSUS = "no consensus"
# Column of the table, and its digits.
MEASURES = {
    "accuracy": ("accuracy, %", 1),
    "r2": ("R²", 3),
    "f1": ("F1", 3),
    "nll": ("NLL", 3),
    "evidence": ("−evidence", 3),
}


def consensus(found: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each task of a sweep, over its seeds.

    The consensus is the verdict of more than half of the runs, else "no consensus"; a run that is
    undecided counts among all, and its verdict can be the consensus too.

    Parameters
    ----------
    found
        What `groupella.runs.study.summary` returns; runs with the same `task` belong together.

    Returns
    -------
    list of dict
        `task`, `runs`, `verdict`, how many runs gave each of the `verdicts`, and mean and standard
        deviation (n − 1; None for one run) of what was measured.
    """
    entries = []
    for task in dict.fromkeys(row["task"] for row in found):
        mine = [row for row in found if row["task"] == task]
        counts = Counter(row["verdict"] for row in mine)
        verdict, most = counts.most_common(1)[0]
        entry: dict[str, Any] = {
            "task": task,
            "runs": len(mine),
            "verdict": verdict if 2 * most > len(mine) else NO_CONSENSUS,
            "verdicts": dict(counts.most_common()),
        }
        for name in MEASURES:
            values = [v for row in mine if (v := _measured(row, name)) is not None]
            if values:
                spread = stdev(values) if len(values) > 1 else None
                entry[name] = {"mean": fmean(values), "sd": spread}
        entries.append(entry)
    return entries


def swept(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the consensus of a sweep and all its runs, as two Markdown tables."""
    from groupella.report import markdown

    entries = consensus(found)
    measured = [name for name in MEASURES if any(name in entry for entry in entries)]
    lines = []
    for entry in entries:
        said = ", ".join(f"{verdict} {count}" for verdict, count in entry["verdicts"].items())
        cells = [_text(entry.get(name), MEASURES[name][1]) for name in measured]
        lines.append([entry["task"], entry["runs"], entry["verdict"], said, *cells])
    heads = ["task", "runs", "obeys", "verdicts", *(MEASURES[name][0] for name in measured)]
    return f"{markdown(heads, lines)}\nMean ± standard deviation over seeds.\n\n{table(found)}"


def _measured(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    value = row["scores"].get(name) if value is None else value
    return None if value is None else float(value)


def _text(value: Mapping[str, float | None] | None, digits: int) -> str | None:
    if value is None:
        return None
    mean, spread = (None if v is None else f"{v:.{digits}f}" for v in (value["mean"], value["sd"]))
    return mean if spread is None else f"{mean} ± {spread}"
