"""Which methods, tasks and seeds a scale of the comparison has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ._methods import METHODS
from ._protocol import PeerCase
from ._tasks import TASKS

# Seeds on which thresholds and rates were chosen, by family of tasks.
TUNING = {
    "linear": (900,),
    "sets": (900, 901),
    "sequences": (900, 901),
    "digits": (900,),
    "digits16": (),  # thresholds are those of digits
    "deep": (900, 901),
}


@dataclass(frozen=True)
class Peers:
    """All methods on all tasks that they apply to, with each seed."""

    seeds: Sequence[int]

    def cases(self, seed: int = 0) -> list[PeerCase]:
        """The cases; `seed` is added to every seed."""
        return [
            PeerCase(method.name, task, seed + s)
            for s in self.seeds
            for task in TASKS
            for method in METHODS.values()
            if method.applies(task)
        ]


PRESETS = {"quick": Peers((0,)), "hour": Peers(range(3)), "paper": Peers(range(20))}
SCALES = {name: name for name in PRESETS}
