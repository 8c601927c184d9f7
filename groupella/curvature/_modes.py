"""How the likelihood's curvature and the data are summed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exact:
    """All columns of the likelihood's root: K−1 backward passes for K classes."""


@dataclass(frozen=True)
class MonteCarlo:
    """m random combinations of the columns: m backward passes, unbiased output factors."""

    m: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"mc needs at least one sample, got {self.m}.")


@dataclass(frozen=True)
class Subset:
    """n of the data, or all where there are fewer, standing for all of them.

    From a pair of tensors n are drawn at random; from an iterable of batches the first n are taken
    and the rest is counted only, so shuffle it.
    """

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"subset needs at least one datum, got {self.n}.")


Mode = Exact | MonteCarlo


def exact() -> Exact:
    """All columns of the likelihood's root."""
    return Exact()


def mc(m: int = 1, seed: int = 0) -> MonteCarlo:
    """m random combinations of the columns; the same seed gives the same ones."""
    return MonteCarlo(m, seed)


def subset(n: int, seed: int = 0) -> Subset:
    """n of the data, standing for all of them."""
    return Subset(n, seed)
