"""Statistics of held-out data: paired differences of scores, and samples told apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences with its standard error, and the class that loses most.

    Of several targets, the one that loses most, as if all lost as much.

    worst_z is the sum of that class's differences over the root of the sum of their squares. Of a
    distribution that is symmetric about 0 it is below −z with a probability of at most exp(−z²/2),
    however few data there are (Efron 1969); a t statistic of few data that all lose the same is not
    so bounded.
    """

    mean: float
    error: float
    worst: float = 0.0
    worst_error: float = 0.0
    worst_z: float = 0.0

    @classmethod
    def of(
        cls,
        one: FloatArray,
        other: FloatArray,
        classes: npt.NDArray[Any],
        blocks: npt.NDArray[Any] | None = None,
        by_target: FloatArray | None = None,
    ) -> Difference:
        """Of `one` − `other`, datum by datum; those of one block, such as copies, are no news.

        by_target: the difference of each of several targets, (n, K), which then are what `classes`
        are otherwise.
        """
        gap = one - other
        block = np.arange(len(gap)) if blocks is None else np.unique(blocks, return_inverse=True)[1]
        worst, worst_error, worst_z, least = 0.0, 0.0, 0.0, math.inf
        groups = [(gap[classes == label], block[classes == label]) for label in np.unique(classes)]
        if by_target is not None:
            groups = [(by_target.shape[1] * column, block) for column in by_target.T]
        for mine, among in groups:
            parts = _sums(mine, among)
            if len(parts) < 5:
                continue
            error = _standard_error(mine, among)
            score = float(mine.mean()) / max(error, 1e-12)
            if mine.mean() < 0 and score < least:
                worst, worst_error, least = float(mine.mean()), error, score
                worst_z = float(parts.sum() / np.linalg.norm(parts))
        return cls(float(gap.mean()), _standard_error(gap, block), worst, worst_error, worst_z)

    def surely_above(self, bound: float, z: float) -> bool:
        return self.mean - z * self.error > bound

    def surely_below(self, bound: float, z: float) -> bool:
        return self.mean + z * self.error < bound

    def probability_above(self, bound: float) -> float:
        return NormalDist().cdf((self.mean - bound) / max(self.error, 1e-12))


def largest_z(scores: FloatArray, blocks: npt.NDArray[Any] | None = None) -> float:
    """Return Σ s / √(Σ s²) of the column of `scores` (n, K) where it is largest, at least 0.

    Data of one block count as one. Columns to which fewer than 5 contribute are left out.
    """
    block = np.arange(len(scores)) if blocks is None else blocks
    sums = np.stack([_sums(column, block) for column in scores.T])
    sums = sums[(sums != 0).sum(1) >= 5]
    return max([0.0, *(float(row.sum() / np.linalg.norm(row)) for row in sums)])


def told_apart(one: FloatArray, other: FloatArray, folds: int = 5, ridge: float = 0.1) -> float:
    """Return how often a linear classifier tells row i of `one` from row i of `other`.

    A two-sample test by a classifier (Lopez-Paz & Oquab 2017), by ridge regression on rows that it
    was not fitted to: 0.5 where both are distributed alike.
    """
    n = len(one)
    folds = min(folds, n)
    if folds < 2:
        return 0.5
    rows = np.concatenate([one, other])
    rows = (rows - rows.mean(0)) / (rows.std(0) + 1e-9)
    signs = np.repeat([1.0, -1.0], n)
    part = np.tile(np.arange(n) % folds, 2)
    gram = rows @ rows.T
    scores = np.zeros(2 * n)
    for k in range(folds):
        fit, left = part != k, part == k
        inner = gram[np.ix_(fit, fit)]
        shrunk = inner + (ridge * np.trace(inner) / len(inner) + 1e-9) * np.eye(len(inner))
        scores[left] = gram[np.ix_(left, fit)] @ np.linalg.solve(shrunk, signs[fit])
    return float((scores * signs > 0).mean() + 0.5 * (scores == 0).mean())


def _standard_error(values: FloatArray, block: npt.NDArray[Any]) -> float:
    """Of the mean of values that are independent between blocks only."""
    sums = _sums(values - values.mean(), block)
    if len(sums) < 2:
        return math.inf
    return float(np.linalg.norm(sums) * math.sqrt(len(sums) / (len(sums) - 1)) / len(values))


def _sums(values: FloatArray, block: npt.NDArray[Any]) -> FloatArray:
    """The sum over each block that has values."""
    _, mine = np.unique(block, return_inverse=True)
    return np.bincount(mine, weights=values).astype(np.float64)
