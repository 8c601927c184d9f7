"""Times of steps that are compared: interleaved medians of CPU time, one process, one thread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Step = Callable[[], object]


def medians(steps: Mapping[str, Step], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each step; one warm-up, then interleaved."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            start = time.process_time()
            step()
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}
