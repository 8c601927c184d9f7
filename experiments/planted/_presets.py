"""Which cases a preset runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._candidates import CANDIDATES
from ._deep import DeepCase
from ._labels import LabelCase
from ._linear import LinearCase
from ._runner import Case

PLANTS = (
    ("p4m", "p4m", "p4m"),
    ("p4m", "p4", "trivial"),
    ("p4", "p4", "z2"),
    ("flips", "z2", "trivial"),
    ("p4m", "flips", "flips"),
)


def quick() -> list[Case]:
    """Scalar linear teachers and one seed of deep ones: minutes on two cores."""
    return [*(DeepCase(plant) for plant in PLANTS), *_linear((100, 1000), range(20))]


def full() -> list[Case]:
    """All parts on five seeds, against n and noise; what is said last, on one seed. Hours."""
    regular = [
        LinearCase(planted, n, seed, side=4, fibre="regular")
        for planted in CANDIDATES.names
        for n in (100, 1000, 10_000)
        for seed in range(5)
    ]
    noisy = [
        LinearCase(planted, n, seed, noise=noise)
        for noise in (0.3, 1.0)
        for planted in CANDIDATES.names
        for n in (100, 1000)
        for seed in range(5)
    ]
    deep = [DeepCase(plant, 5000, seed) for plant in PLANTS for seed in range(5)]
    return [
        *deep,
        *regular,
        *_linear((25, 50, 100, 300, 1000), range(5)),
        *noisy,
        *(DeepCase(plant) for plant in PLANTS),
        *(LabelCase(planted) for planted in CANDIDATES.names),
        *(DeepCase(plant, 5000, noise=0.1) for plant in PLANTS),
    ]


def basin() -> list[Case]:
    """The deep cases of `quick`, started from the teacher's weights."""
    return [DeepCase(plant, start="teacher") for plant in PLANTS]


def small() -> list[Case]:
    """The deep cases of `quick` on three seeds."""
    return [DeepCase(plant, seed=seed) for plant in PLANTS for seed in range(3)]


def fresh() -> list[Case]:
    """Deep cases on a seed that no choice was made on."""
    return [DeepCase(plant, n, seed=5) for n in (5000, 1500) for plant in PLANTS]


PRESETS: dict[str, Callable[[], list[Case]]] = {
    "quick": quick,
    "full": full,
    "basin": basin,
    "small": small,
    "fresh": fresh,
}


def _linear(sizes: Sequence[int], seeds: Sequence[int]) -> list[LinearCase]:
    return [LinearCase(g, n, s) for g in CANDIDATES.names for n in sizes for s in seeds]
