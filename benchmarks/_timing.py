"""Times of steps that are compared: interleaved medians, by default of CPU time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Step = Callable[[], object]


def medians(
    steps: Mapping[str, Step], repeats: int, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Median seconds of each step by the clock; one warm-up, then interleaved."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    for _ in range(repeats):
        for name, step in steps.items():
            start = clock()
            step()
            times[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in times.items()}
