"""Counts of right, wrong and undecided layers, as a table and a summary.

A fraction k/n is given with its Wilson interval at 95 %: with z = 1.96,

    (k/n + z²/2n ± z √( k(n−k)/n³ + z²/4n² )) / (1 + z²/n).

Linear cases have probabilities, too. They are calibrated when, of the cases whose most probable
member has the probability p, a fraction p is right; the expected calibration error (ECE) is the
mean of the difference over bins of p, weighted by their numbers of cases.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupella._files import write_text
from groupella._schema import write_json
from groupella.runs.record import versions

from ._result import CaseResult, Counts
from ._select import SELECT_COLUMNS, Tally, gain, select_cells

if TYPE_CHECKING:
    from rich.table import Table

Z = 1.959964
COLUMNS = ("part", "n", "noise", "layers right", "wrong symmetry", "undecided", "dropped", "CPU s")
BINS = (0.0, 0.5, 0.7, 0.9, 0.99, 1.0)
PARTS = ("linear", "deep", "basin")


def wilson(k: int, n: int) -> tuple[float, float]:
    """The Wilson interval of k successes in n trials; (0, 1) without trials."""
    if n == 0:
        return 0.0, 1.0
    centre = k / n + Z * Z / (2 * n)
    half = Z * math.sqrt(k * (n - k) / n**3 + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def headline(results: Sequence[CaseResult]) -> dict[str, Any]:
    """The figures that have a target, with their counts."""
    parts = {name: Counts.of(r for r in results if r.part.startswith(name)) for name in PARTS}
    # Students that start from the teacher's weights only tell where errors come from.
    everything = Counts.of(r for r in results if r.part not in ("basin", "select"))
    found: dict[str, Any] = {
        f"{name}_right": _fraction(parts[name].right, parts[name].layers)
        for name in PARTS
        if name != "basin" or parts[name].layers
    }
    found["wrong_symmetry"] = _fraction(everything.wrong, everything.layers)
    found["undecided"] = _fraction(everything.undecided, everything.layers)
    error = calibration(r for r in results if r.part != "select")["error"]
    if error is not None:
        found["calibration_error"] = error
    selected = [r for r in results if r.part == "select"]
    if selected:
        # Without the other parts there is nothing else to say.
        found = {**(found if everything.layers else {}), **select_headline(selected)}
    found["counts"] = {
        **found.get("counts", {}),
        **_counts(parts),
    }
    return found


def _counts(parts: Mapping[str, Counts]) -> dict[str, Any]:
    return {
        name: {
            "layers": c.layers,
            "right": c.right,
            "wrong_symmetry": c.wrong,
            "undecided": c.undecided,
            "dropped": c.dropped,
        }
        for name, c in parts.items()
        if c.layers or c.dropped
    }


def select_headline(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Verdicts of `select` and of the grid, counted, with the gain over the plain network."""
    ours, grid = Tally.of(results), Tally.of(results, grid=True)
    gains = [g for g in map(gain, results) if g is not None]
    n = len(results)
    return {
        **asdict(ours),
        "grid_right": grid.right,
        "grid_wrong": grid.wrong,
        "accuracy_vs_plain": round(sum(gains) / len(gains), 4) if gains else None,
        "select_calibration_error": calibration(results)["error"],
        "intervals": {
            "right": _interval(ours.right, n),
            "wrong": _interval(ours.wrong, n),
            "grid_right": _interval(grid.right, n),
            "grid_wrong": _interval(grid.wrong, n),
        },
        "cpu_seconds": {
            name: round(sum(r.details[f"{name}_seconds"] for r in results))
            for name in ("select", "grid", "final", "plain")
        },
        "counts": {"select": {"cases": n, **asdict(ours)}},
    }


def _interval(k: int, n: int) -> list[float]:
    return [round(v, 4) for v in wilson(k, n)]


def calibration(results: Iterable[CaseResult]) -> dict[str, Any]:
    """Reliability of the most probable member, decided or not, and the calibration error."""
    pairs = []
    for r in results:
        chances = r.details.get("probabilities")
        if chances and all(r.counted):
            best = max(chances, key=chances.__getitem__)
            pairs.append((chances[best], best == r.planted[0]))
    bins, error = [], 0.0
    for low, high in pairwise(BINS):
        inside = [(p, fine) for p, fine in pairs if low < p <= high]
        if inside:
            said = sum(p for p, _ in inside) / len(inside)
            right = sum(fine for _, fine in inside)
            error += abs(len(inside) * said - right) / len(pairs)
            bins.append(
                {
                    "bin": [low, high],
                    "cases": len(inside),
                    "probability": round(said, 4),
                    "right": right,
                    "right_interval": _interval(right, len(inside)),
                }
            )
    return {"bins": bins, "error": round(error, 4) if pairs else None}


def conditions(results: Iterable[CaseResult]) -> dict[tuple[str, int, float], list[CaseResult]]:
    """Results by part, number of data and noise."""
    found: dict[tuple[str, int, float], list[CaseResult]] = defaultdict(list)
    for result in results:
        found[result.part, result.n, result.noise].append(result)
    return dict(sorted(found.items()))


def summary(results: Sequence[CaseResult], preset: str) -> dict[str, Any]:
    """Everything worth keeping: headline, conditions with intervals, failures, dropped plants."""
    rows = []
    for (part, n, noise), members in conditions(results).items():
        counts = Counts.of(members)
        rows.append(
            {
                "part": part,
                "n": n,
                "noise": noise,
                "layers": counts.layers,
                "right": counts.right,
                "right_interval": _interval(counts.right, counts.layers),
                "wrong_symmetry": counts.wrong,
                "wrong_interval": _interval(counts.wrong, counts.layers),
                "undecided": counts.undecided,
                "dropped": counts.dropped,
                "cpu_seconds": round(sum(r.seconds for r in members), 1),
            }
        )
    selected = [r for r in results if r.part == "select"]
    return {
        "preset": preset,
        **headline(results),
        "conditions": rows,
        "calibration": calibration(r for r in results if r.part != "select"),
        **({"select": select_summary(selected)} if selected else {}),
        "by_group": _by_group(results),
        "not_right": [line for r in results for line in _lines(r, not_right=True)],
        "dropped": [line for r in results for line in _lines(r, not_right=False)],
    }


def select_summary(results: Sequence[CaseResult]) -> dict[str, Any]:
    """The cases of `select`, and the reliability of its probabilities."""
    return {
        "calibration": calibration(results),
        "cases": [
            {
                "key": r.key,
                "truth": r.planted[0],
                "verdict": r.verdicts[0],
                "n": r.n,
                **{k: v for k, v in r.details.items() if k != "true_members"},
            }
            for r in results
        ],
    }


def select_table(results: Sequence[CaseResult]) -> str:
    """The cases of `select` as a Markdown table, and the reliability of its probabilities."""
    from groupella.report import markdown

    selected = [r for r in results if r.part == "select"]
    found = markdown(list(SELECT_COLUMNS), select_cells(selected))
    bins = [
        [
            f"{b['bin'][0]:g} to {b['bin'][1]:g}",
            str(b["cases"]),
            f"{b['probability']:.3f}",
            _share(b["right"], b["cases"]),
        ]
        for b in calibration(selected)["bins"]
    ]
    if bins:
        headings = ["probability", "cases", "mean", "right"]
        found = f"{found.strip()}\n\n{markdown(headings, bins)}"
    return found


def write_summary(
    directory: Path, results: Sequence[CaseResult], preset: str, title: str
) -> dict[str, Any]:
    """Write summary.json and summary.md, with the versions that made them; return the content."""
    content = {**summary(results, preset), "versions": versions()}
    parts = [f"# {title}", markdown_table(results)]
    if any(r.part == "select" for r in results):
        parts.append(select_table(results))
    for heading in ("not_right", "dropped"):
        if content[heading]:
            lines = "\n".join(f"- {line}" for line in content[heading])
            parts.append(f"{heading.replace('_', ' ').capitalize()}:\n\n{lines}")
    parts.append(", ".join(f"{name} {number}" for name, number in content["versions"].items()))
    text = write_json(content, indent=1)
    write_text(directory / "summary.json", text + "\n")
    write_text(directory / "summary.md", "\n\n".join(part.strip() for part in parts) + "\n")
    return content


def table(results: Sequence[CaseResult]) -> Table:
    """One row per condition."""
    from rich.table import Table as RichTable

    found = RichTable(title="Planted symmetries")
    for heading in COLUMNS:
        found.add_column(heading, justify="left" if heading == "part" else "right")
    for cells in _cells(results):
        found.add_row(*cells)
    return found


def markdown_table(results: Sequence[CaseResult]) -> str:
    """The same as Markdown."""
    from groupella.report import markdown

    return markdown(list(COLUMNS), list(_cells(results)))


def _cells(results: Sequence[CaseResult]) -> Iterator[list[str]]:
    for (part, n, noise), members in conditions(results).items():
        counts = Counts.of(members)
        yield [
            part,
            str(n),
            f"{100 * noise:g} %",
            _share(counts.right, counts.layers),
            _share(counts.wrong, counts.layers),
            str(counts.undecided),
            str(counts.dropped),
            f"{sum(r.seconds for r in members):.0f}",
        ]


def _fraction(k: int, n: int) -> float | None:
    return k / n if n else None


def _share(k: int, n: int) -> str:
    low, high = wilson(k, n)
    return f"{k} of {n} ({100 * low:.0f}–{100 * high:.0f} %)" if n else "–"


def _by_group(results: Iterable[CaseResult]) -> dict[str, dict[str, dict[str, int]]]:
    """part → planted member → verdict → how often."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for r in results:
        for planted, verdict, counts in zip(r.planted, r.verdicts, r.counted, strict=True):
            if counts:
                row = found.setdefault(r.part, {}).setdefault(planted, {})
                row[verdict] = row.get(verdict, 0) + 1
    return found


def _lines(result: CaseResult, not_right: bool) -> list[str]:
    lines = []
    for layer, counts in enumerate(result.counted):
        where = f"{result.key}, layer {layer + 1}: planted {result.planted[layer]}"
        if not_right and counts and not result.right[layer]:
            remark = ", a wrong symmetry" if result.wrong[layer] else ""
            lines.append(f"{where}, found {result.verdicts[layer]}{remark}")
        elif not not_right and not counts:
            lines.append(f"{where}, not identifiable (found {result.verdicts[layer]})")
    return lines
