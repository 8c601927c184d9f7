"""Thresholds of the methods without a published criterion, from seeds outside the comparison.

    python -m groupella.experiments.peers.tune [DIRECTORY [TASK …]]

prints, for each such method and family of tasks, its present threshold, the most favourable one on
the tuning seeds and the verdicts there. Tasks are all, or those whose names begin with one of the
words given; `_thresholds.json` is written when they are all. Cases that are finished in the
directory are not repeated.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from groupella._files import write_text
from groupella.experiments.planted import run_all

from ._methods import METHODS
from ._presets import TUNING
from ._protocol import PeerCase, family, judged, tuned_threshold
from ._tasks import FAMILIES, TASKS
from ._thresholds import TABLE


def tune(directory: Path, tasks: tuple[str, ...] = ("",)) -> dict[str, dict[str, float]]:
    """Return the thresholds with most right less wrong verdicts, by method and family of tasks.

    Parameters
    ----------
    directory
        Where cases are saved.
    tasks
        Beginnings of the names of tasks.
    """
    tuned = [m for m in METHODS.values() if m.criterion == "tuned"]
    cases = [
        PeerCase(method.name, task, seed)
        for task in TASKS
        if task.startswith(tasks)
        for seed in TUNING[family(task)]
        for method in tuned
        if method.applies(task)
    ]
    results = run_all(cases, directory, progress=False)
    found: dict[str, dict[str, float]] = {}
    for method in tuned:
        for kind in FAMILIES:
            mine = [
                r
                for case, r in zip(cases, results, strict=True)
                if case.method == method.name and family(case.task) == kind
            ]
            if mine:
                best = float(f"{tuned_threshold(mine):.3g}")
                found.setdefault(method.name, {})[kind] = best
                kinds = [k for r in mine for k in judged(r, best).details["outcomes"]]
                counts = ", ".join(f"{kinds.count(k)} {k}" for k in sorted(set(kinds)))
                now = method.threshold(mine[0].details["task"])
                print(f"{method.name}, {kind}: {now:g}, most favourable {best:g} ({counts})")
    return found


if __name__ == "__main__":
    place, *words = sys.argv[1:] or ["runs/peers-tuning"]
    thresholds = tune(Path(place), tuple(words) or ("",))
    if not words:
        write_text(TABLE, json.dumps(thresholds, indent=1) + "\n")
