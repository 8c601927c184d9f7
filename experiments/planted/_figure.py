"""The figure of the benchmark: what was found against n, and how reliable its probabilities are.

In the last panel a point stands for the cases whose verdict was said with about the same
probability: that probability against the share that is right, with its Wilson interval. Calibrated
probabilities lie on the diagonal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._report import calibration, conditions, wilson
from ._result import CaseResult, Counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COUNTED = {"right": "most restrictive true group", "wrong": "wrong symmetry imposed"}


def figure(results: Sequence[CaseResult]) -> Figure:
    """Right layers and wrong symmetries against n, and the reliability of probabilities."""
    from matplotlib.figure import Figure as MatplotlibFigure

    drawn = MatplotlibFigure(figsize=(13, 3.8), layout="constrained")
    right, wrong, reliability = drawn.subplots(1, 3)
    for panel, pick in ((right, "right"), (wrong, "wrong")):
        _against_n(panel, results, pick)
    right.set_ylabel("fraction of layers")
    right.legend(fontsize=8)
    _reliability(reliability, results)
    return drawn


def _against_n(panel: Any, results: Iterable[CaseResult], pick: str) -> None:
    lines: dict[tuple[str, float], list[tuple[int, Counts]]] = defaultdict(list)
    for (part, n, noise), members in conditions(results).items():
        lines[part, noise].append((n, Counts.of(members)))
    for (part, noise), points in lines.items():
        kept = [(n, getattr(c, pick), c.layers) for n, c in points if c.layers]
        if kept:
            label = f"{part}, noise {100 * noise:g} %" if noise else part
            _shares(panel, [n for n, _, _ in kept], [(k, of) for _, k, of in kept], label)
    panel.set_xscale("log")
    panel.set_xlabel("n")
    panel.set_title(COUNTED[pick])


def _reliability(panel: Any, results: Iterable[CaseResult]) -> None:
    by_part: dict[str, list[CaseResult]] = defaultdict(list)
    for result in results:
        by_part[result.part].append(result)
    panel.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    for part, members in by_part.items():
        found = calibration(members)
        if found["bins"]:
            said = [b["probability"] for b in found["bins"]]
            shares = [(b["right"], b["cases"]) for b in found["bins"]]
            _shares(panel, said, shares, f"{part}, calibration error {found['error']:.3f}")
    panel.set_xlabel("probability of the verdict")
    panel.set_title("how often that verdict is right")
    if panel.get_legend_handles_labels()[0]:
        panel.legend(fontsize=8, loc="lower left")


def _shares(
    panel: Any, places: Sequence[float], counts: Sequence[tuple[int, int]], label: str
) -> None:
    """k of n, with Wilson intervals."""
    shares = [k / n for k, n in counts]
    limits = [wilson(k, n) for k, n in counts]
    errors = [
        [max(0.0, s - low) for s, (low, _) in zip(shares, limits, strict=True)],
        [max(0.0, high - s) for s, (_, high) in zip(shares, limits, strict=True)],
    ]
    panel.errorbar(places, shares, yerr=errors, marker="o", capsize=3, label=label)
    panel.set_ylim(-0.03, 1.03)
    panel.grid(alpha=0.3)
