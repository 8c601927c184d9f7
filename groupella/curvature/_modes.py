"""How the likelihood's curvature and the data are summed.

Λ = −∂² log p(y | f) / ∂f² enters as a root S with S Sᵀ = Λ, one backward pass per column of S.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class HasCurvature(Protocol):
    """A likelihood whose curvature in the outputs f (N, K) does not depend on the targets."""

    def hessian_root(self, f: Tensor) -> Tensor:
        """S (N, K, R) with S Sᵀ = −∂² log p / ∂f²."""

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, K, m): columns whose outer products have the mean S Sᵀ."""


@dataclass(frozen=True)
class Exact:
    """All columns of the likelihood's root: K−1 backward passes for K classes."""


@dataclass(frozen=True)
class MonteCarlo:
    """`m` random combinations of the columns: m backward passes, unbiased output factors.

    The same `seed` gives the same combinations.
    """

    m: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"mc needs at least one sample, got {self.m}.")


@dataclass(frozen=True)
class Subset:
    """`n` of the data (or all, if there are fewer), scaled to represent all of them.

    From a pair of tensors n are drawn at random; from an iterable of batches the first n are taken
    and the rest is only counted, so shuffle it.
    """

    n: int
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError(f"subset needs at least one datum, got {self.n}.")


Mode = Exact | MonteCarlo
exact, mc, subset = Exact, MonteCarlo, Subset


class Columns:
    """The columns of the likelihood's root, in the chosen mode."""

    def __init__(self, likelihood: HasCurvature, mode: Mode | None) -> None:
        mode = Exact() if mode is None else mode
        if isinstance(likelihood, type) or not isinstance(likelihood, HasCurvature):
            raise TypeError(
                "likelihood must be one of groupella.evidence.likelihoods, such as Categorical() "
                f"or Gaussian(), got {likelihood!r}."
            )
        if not isinstance(mode, Exact | MonteCarlo):
            raise TypeError(f"mode must be exact() or mc(m), got {mode!r}.")
        self._likelihood, self._mode, self._generator = likelihood, mode, None
        if isinstance(mode, MonteCarlo):
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            self._generator = torch.Generator().manual_seed(mode.seed + 7919 * rank)

    def __call__(self, f: Tensor) -> Tensor:
        """(N, K, columns), already divided by √m."""
        if isinstance(self._mode, MonteCarlo):
            return self._likelihood.sample(f, self._mode.m, self._generator) / sqrt(self._mode.m)
        return self._likelihood.hessian_root(f)
