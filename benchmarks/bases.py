"""How fast are exact bases? Ours beside escnn (kernels) and EMLP (dense maps), in one process.

Everything runs on one thread. Rounds go through all cases in turn, so that ours and a peer's
measurements of one case interleave; the figure is the median of the process CPU time. Every
measurement is cold: our caches are cleared and escnn gets a new space and an empty store. Groups
and representations are made beforehand for all, and escnn keeps its Clebsch–Gordan coefficients on
disk. A peer that takes seconds is measured once.

    python -m benchmarks.bases [--rounds 5] [--json]

`--json` prints one object on the last line; what could not be measured is null.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
os.environ.update(dict.fromkeys(THREADS, "1"), GROUPELLA_CACHE="off")
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import numpy as np  # noqa: E402

from groupella.bases import clear_cache, equivariant_basis, kernel_basis  # noqa: E402
from groupella.groups import (  # noqa: E402
    FeatureSpace,
    GroupSet,
    Symmetry,
    octahedral,
    p4,
    p4m,
    permutations,
)
from groupella.groups.gate import load_gspaces, load_nn  # noqa: E402

SIDES = (4, 8, 16, 32)


@dataclass
class Case:
    """One question to all libraries; each answer is the dimension it found."""

    name: str
    ours: Callable[[], int]
    peer: Callable[[], int] | None = None
    peer_name: str = ""
    peer_rounds: int | None = None
    target: float | None = None
    times: list[float] = field(default_factory=list)
    peer_times: list[float] = field(default_factory=list)
    dimension: int = 0
    peer_dimension: int = 0

    def run(self, number: int) -> None:
        clear_cache(disk=False)
        taken, self.dimension = cpu_time(self.ours)
        self.times.append(taken)
        if self.peer and (self.peer_rounds is None or number < self.peer_rounds):
            taken, self.peer_dimension = cpu_time(self.peer)
            self.peer_times.append(taken)

    @property
    def seconds(self) -> float:
        return statistics.median(self.times)

    @property
    def peer_seconds(self) -> float | None:
        return statistics.median(self.peer_times) if self.peer_times else None

    @property
    def ratio(self) -> float | None:
        return self.peer_seconds / self.seconds if self.peer_seconds else None


def cpu_time(action: Callable[[], int]) -> tuple[float, int]:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        start = time.process_time()
        answer = action()
        return time.process_time() - start, answer


def dense(space: FeatureSpace, symmetry: Symmetry) -> Callable[[], int]:
    """The basis as a sparse matrix, not only its labels."""
    return lambda: int(equivariant_basis(space, space, symmetry).matrix.shape[0])


def kernels(space: FeatureSpace, symmetry: Symmetry) -> Callable[[], int]:
    return lambda: len(kernel_basis(space, space, symmetry, 3).tensor)


def escnn_kernels(make: str, convolution: str) -> Callable[[], int]:
    """A convolution layer of one regular field, 3 to a side: escnn's basis is made with it."""
    nn, gspaces = load_nn(), load_gspaces()
    store = importlib.import_module("escnn.nn.modules.basismanager.basisexpansion_singleblock")
    arguments = (4,) if make == "flipRot2dOnR2" else ()
    getattr(gspaces, make)(*arguments).regular_repr  # noqa: B018

    def run() -> int:
        store._stored_filters.clear()
        space = getattr(gspaces, make)(*arguments)
        fields = nn.FieldType(space, [space.regular_repr])
        layer = getattr(nn, convolution)(fields, fields, 3, bias=False, initialize=False)
        return int(layer.weights.numel())

    return run


def load_emlp() -> tuple[Any, Any] | None:
    """EMLP's groups and representations, if it is installed."""
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            groups: Any = importlib.import_module("emlp.groups")
            reps: Any = importlib.import_module("emlp.reps")
    except ImportError as error:
        print(f"EMLP is not here ({error}): its ratio is null")
        return None
    return groups, reps


def emlp_maps(space: FeatureSpace, symmetry: Symmetry) -> Callable[[], int] | None:
    """Hom(V, V) of the group that the same matrices generate; None without EMLP."""
    emlp = load_emlp()
    if emlp is None:
        return None
    groups, reps = emlp
    matrices = [space.action(g).matrix().toarray() for g in space.generators(symmetry)]

    class Generated(groups.Group):  # type: ignore[misc]
        def __init__(self) -> None:
            self.discrete_generators = np.stack(matrices)
            super().__init__()

    def run() -> int:
        vector = reps.V(Generated())
        return int(np.asarray((vector >> vector).equivariant_basis()).shape[1])

    return run


def cases() -> dict[str, Case]:
    made: dict[str, Case] = {}
    space = GroupSet(p4m()).space((8, 8), 1)
    made["kernel_p4m"] = Case(
        "3×3 kernels, p4m regular",
        kernels(space, p4m()),
        escnn_kernels("flipRot2dOnR2", "R2Conv"),
        "escnn",
        target=0.020,
    )
    voxels = GroupSet(octahedral()).space((8, 8, 8), 1)
    made["kernel_octahedral"] = Case(
        "3×3×3 kernels, octahedral regular",
        kernels(voxels, octahedral()),
        escnn_kernels("octaOnR3", "R3Conv"),
        "escnn",
        peer_rounds=1,
        target=2.0,
    )
    groups = GroupSet(p4())
    for side in SIDES:
        space = groups.space((side, side), 1)
        made[f"dense_p4_{side}x{side}"] = Case(
            f"dense maps, p4 regular on {side}×{side}",
            dense(space, p4()),
            emlp_maps(space, p4()) if side == 4 else None,
            "EMLP",
            peer_rounds=1,
            target={16: 0.3, 32: 3.0}.get(side),
        )
    symmetry = permutations(100)
    made["s100"] = Case(
        "dense maps, S₁₀₀ on a set",
        dense(GroupSet(symmetry).space((100,), 1), symmetry),
        target=0.050,
    )
    return made


def report(made: dict[str, Case]) -> None:
    print(f"{'case':<36} {'dim':>6} {'ours':>11} {'target':>9}   peer")
    for case in made.values():
        goal = f"{1e3 * case.target:.0f} ms" if case.target else ""
        line = f"{case.name:<36} {case.dimension:>6} {1e3 * case.seconds:>8.2f} ms {goal:>9}"
        if case.peer_seconds and case.ratio:
            line += f"   {case.peer_name} {1e3 * case.peer_seconds:.0f} ms for"
            line += f" {case.peer_dimension} dimensions, {case.ratio:,.0f}×"
        print(line)
    print("\ngrowth with the number of index pairs (p4, one regular field):")
    for side in SIDES:
        pairs = (4 * side * side) ** 2
        seconds = made[f"dense_p4_{side}x{side}"].seconds
        print(f"  {side:>2}×{side:<2} {pairs:>10,} pairs {1e9 * seconds / pairs:8.1f} ns a pair")


def growth(made: dict[str, Case]) -> float:
    """The exponent of the pairs from 16×16 to 32×32, where constant costs no longer matter."""
    small, large = (made[f"dense_p4_{side}x{side}"].seconds for side in SIDES[-2:])
    return math.log(large / small) / math.log(16)


def results(made: dict[str, Case]) -> dict[str, float | None]:
    found: dict[str, float | None] = {
        "kernel_p4m_ms": 1e3 * made["kernel_p4m"].seconds,
        "kernel_p4m_first_ms": 1e3 * made["kernel_p4m"].times[0],
        "kernel_p4m_escnn_ratio": made["kernel_p4m"].ratio,
        "kernel_octahedral_s": made["kernel_octahedral"].seconds,
        "kernel_octahedral_escnn_ratio": made["kernel_octahedral"].ratio,
        "emlp_ratio": made["dense_p4_4x4"].ratio,
        "s100_ms": 1e3 * made["s100"].seconds,
        "growth_exponent": growth(made),
    }
    found |= {
        f"dense_p4_{side}x{side}_s": made[f"dense_p4_{side}x{side}"].seconds for side in SIDES
    }
    return {name: None if v is None else float(f"{v:.4g}") for name, v in found.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.bases", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=5, help="measurements of every case")
    parser.add_argument("--json", action="store_true", help="one object on the last line")
    options = parser.parse_args(arguments)
    made = cases()
    for number in range(max(1, options.rounds)):
        for case in made.values():
            case.run(number)
    report(made)
    missed = [case.name for case in made.values() if case.target and case.seconds > case.target]
    if missed:
        print(f"above target: {', '.join(missed)}")
    if options.json:
        print(json.dumps(results(made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
