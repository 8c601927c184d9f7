"""How fast are bases of continuous groups? Ours beside EMLP's on its own examples, in one process.

One thread; rounds go through all cases in turn, and the figure is the process CPU time. Our caches
and EMLP's stored solutions are cleared before every measurement; its compiled functions are kept,
so that only its first round pays for compilation. Both figures of EMLP are printed, and the ratio
to the better one. Bases are compared as subspaces: the largest distance is printed.

    python -m benchmarks.continuous [--rounds 5] [--json]

`--json` prints one object on the last line; what could not be measured is null.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.bases import cpu_time, load_emlp  # sets the number of threads

import numpy as np  # isort: skip

from groupella.bases import clear_cache, equivariant_basis
from groupella.groups import SCALAR, GroupSet, Symmetry, V, lorentz, orthogonal, rotations

TARGET = 20.0


@dataclass
class Case:
    """Invariants of V^power for one group."""

    name: str
    symmetry: Symmetry
    peer_group: Callable[[Any], Any]
    power: int
    has_target: bool = True
    times: list[float] = field(default_factory=list)
    peer_times: list[float] = field(default_factory=list)
    dimension: int = 0
    distance: float = float("nan")

    def __post_init__(self) -> None:
        groups = GroupSet(self.symmetry)
        self.spaces = groups.space((), 1, SCALAR), groups.space((), 1, V**self.power)
        self._rows: Any = None
        self._peer_rows: Any = None

    def ours(self) -> int:
        basis = equivariant_basis(*self.spaces, self.symmetry)
        self._rows = basis.tensor.reshape(basis.dim, -1)
        return basis.dim

    def theirs(self, emlp: tuple[Any, Any]) -> int:
        groups, reps = emlp
        vector = reps.V(self.peer_group(groups))
        self._peer_rows = np.asarray((vector**self.power).equivariant_basis()).T
        return len(self._peer_rows)

    def run(self, emlp: tuple[Any, Any] | None) -> None:
        clear_cache(disk=False)
        taken, self.dimension = cpu_time(self.ours)
        self.times.append(taken)
        if emlp is None:
            return
        emlp[1].Rep.solcache.clear()
        taken, found = cpu_time(lambda: self.theirs(emlp))
        self.peer_times.append(taken)
        if found != self.dimension:
            raise AssertionError(f"{self.name}: we find {self.dimension}, EMLP {found}")
        rest = self._peer_rows - self._peer_rows @ self._rows.T @ self._rows
        self.distance = float(np.abs(rest).max(initial=0.0))

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def warm(self) -> float | None:
        later = self.peer_times[1:] or self.peer_times
        return statistics.median(later) if later else None

    @property
    def ratio(self) -> float | None:
        return self.warm / self.seconds if self.warm else None


def cases() -> dict[str, Case]:
    return {
        "o3_v4": Case("V⁴ of O(3)", orthogonal(3), lambda g: g.O(3), 4),
        "so13_v2": Case("V² of SO(1,3)", lorentz(), lambda g: g.SO13p(), 2),
        "so13_v4": Case("V⁴ of SO(1,3)", lorentz(), lambda g: g.SO13p(), 4),
        "so3_v6": Case("V⁶ of SO(3)", rotations(3), lambda g: g.SO(3), 6, has_target=False),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.continuous", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of every case")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    options = parser.parse_args(arguments)
    made, emlp = cases(), load_emlp()
    for _ in range(max(1, options.rounds)):
        for case in made.values():
            case.run(emlp)
    print(f"{'case':<16} {'dim':>4} {'ours':>10} {'EMLP first':>12} {'then':>10}   ratio  distance")
    found: dict[str, float | None] = {}
    missed = []
    for key, case in made.items():
        line = f"{case.name:<16} {case.dimension:>4} {1e3 * case.seconds:>7.2f} ms"
        if case.warm is not None and case.ratio is not None:
            line += f" {1e3 * case.peer_times[0]:>9.0f} ms {1e3 * case.warm:>7.0f} ms"
            line += f" {case.ratio:>6.0f}×  {case.distance:.1e}"
            if case.has_target and case.ratio < TARGET:
                missed.append(case.name)
        print(line)
        found[f"{key}_ms"] = float(f"{1e3 * case.seconds:.4g}")
        found[f"{key}_emlp_ratio"] = None if case.ratio is None else float(f"{case.ratio:.4g}")
    if missed:
        print(f"less than {TARGET:.0f}× faster: {', '.join(missed)}")
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
