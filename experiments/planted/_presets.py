"""Which cases are run: settings of the benchmark, and presets of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ._deep import DeepCase
from ._linear import Fibre, LinearCase
from ._result import CANDIDATES
from ._runner import Case
from ._select import SelectCase
from ._select_tasks import TASKS, has_mnist

PLANTS = (
    ("p4m", "p4m", "p4m"),
    ("p4m", "p4", "trivial"),
    ("p4", "p4", "z2"),
    ("flips", "z2", "trivial"),
    ("p4m", "flips", "flips"),
)


@dataclass(frozen=True)
class Grid:
    """Every number of data with every seed, for every plant; `noise` as in the case."""

    sizes: tuple[int, ...]
    seeds: Sequence[int]
    noise: float


@dataclass(frozen=True)
class Tasks:
    """Every task with every seed and number of data, None for as many as the task has.

    Those of MNIST where $GROUPELLA_DATA has it.
    """

    names: tuple[str, ...]
    seeds: Sequence[int]
    sizes: tuple[int | None, ...] = (None,)


@dataclass(frozen=True)
class Planted:
    """Settings of the benchmark: which cases of each part there are.

    deep, start: pyramids, from random weights or from the teacher's
    linear, regular: layers with a scalar fibre on 8×8, with the regular one on 4×4
    select: tasks of `groupella select`
    """

    deep: tuple[Grid, ...] = ()
    linear: tuple[Grid, ...] = ()
    regular: tuple[Grid, ...] = ()
    select: Tasks | None = None
    start: Literal["random", "teacher"] = "random"

    def cases(self, seed: int = 0) -> list[Case]:
        """All of them, with `seed` added to their seeds."""
        return [*self._deep(seed), *self._linear(seed), *self._select(seed)]

    def _deep(self, first: int) -> Iterator[Case]:
        for grid in self.deep:
            for n in grid.sizes:
                for plant in PLANTS:
                    for seed in grid.seeds:
                        yield DeepCase(plant, n, first + seed, grid.noise, self.start)

    def _linear(self, first: int) -> Iterator[Case]:
        parts: tuple[tuple[tuple[Grid, ...], Fibre, int], ...] = (
            (self.regular, "regular", 4),
            (self.linear, "trivial", 8),
        )
        for grids, fibre, side in parts:
            for grid in grids:
                for planted in CANDIDATES.names:
                    for n in grid.sizes:
                        for seed in grid.seeds:
                            yield LinearCase(planted, n, first + seed, side, fibre, grid.noise)

    def _select(self, first: int) -> Iterator[Case]:
        tasks = self.select or Tasks((), ())
        there = any(name.startswith("mnist-") for name in tasks.names) and has_mnist()
        for seed, n, name in itertools.product(tasks.seeds, tasks.sizes, tasks.names):
            if there or not name.startswith("mnist-"):
                yield SelectCase(name, first + seed, n)


FIVE = range(5)
FRESH = range(500, 505)
LINEAR = Grid((100, 1000), range(20), 0.1)
# Without the truths that other tasks of the kind have; on a seed that no choice was made on.
SELECT = Tasks(
    tuple(
        name
        for name in TASKS
        if name not in ("textures-p4m", "footprints-z2", "sets-cyclic8")
        and (name == "mnist-p4" or not name.startswith("mnist-"))
    ),
    (131,),
)
FEW = tuple(n for n in TASKS if n.startswith(("shapes-", "textures-", "sequences-", "sets-")))
PRESETS: dict[str, Planted] = {
    # Scalar linear teachers, one seed of deep ones, and one of most tasks of `select`: each part
    # takes minutes on two cores.
    "quick": Planted(deep=(Grid((1500,), (0,), 0.0),), linear=(LINEAR,), select=SELECT),
    # The same with three seeds of deep ones.
    "hour": Planted(deep=(Grid((1500,), range(3), 0.0),), linear=(LINEAR,), select=SELECT),
    # All parts, mostly on five seeds, against n and noise. Hours.
    "full": Planted(
        deep=(
            Grid((5000,), FIVE, 0.0),
            Grid((1500,), (0,), 0.0),
            Grid((5000,), (0,), 0.1),
        ),
        linear=(
            Grid((25, 50, 100, 300, 1000), FIVE, 0.1),
            Grid((100, 1000), FIVE, 0.3),
            Grid((100, 1000), FIVE, 1.0),
        ),
        regular=(Grid((100, 1000, 10_000), FIVE, 0.1),),
        select=Tasks(tuple(TASKS), range(131, 136)),
    ),
    # Linear teachers from too few data to many, on seeds that no choice was made on.
    "noisy": Planted(
        linear=tuple(Grid((10, 30, 100, 300, 1000, 3000), FRESH, s) for s in (0.1, 1.0, 3.0))
    ),
    # Tasks of `select` with too few data to be sure: what do its probabilities mean?
    "few": Planted(select=Tasks(FEW, range(120, 122), (100, 300))),
    # The deep cases of `quick`, started from the teacher's weights; on three seeds; and those on a
    # seed that no choice was made on.
    "basin": Planted(deep=(Grid((1500,), (0,), 0.0),), start="teacher"),
    "small": Planted(deep=(Grid((1500,), range(3), 0.0),)),
    "fresh": Planted(deep=(Grid((5000, 1500), (5,), 0.0),)),
}
# The scales of `groupella reproduce`, as presets of the benchmark.
SCALES = {"quick": "quick", "hour": "hour", "paper": "full"}
