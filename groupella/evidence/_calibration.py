"""How well the confidence of class predictions agrees with how often they are right."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Reliability:
    """Predictions sorted into bins of equal width by their confidence, empty bins left out.

    Attributes
    ----------
    confidence, accuracy
        Mean confidence and share of right predictions of each bin.
    count
        Number of predictions in each bin.
    """

    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]

    @property
    def error(self) -> float:
        """The expected calibration error: the mean of |accuracy − confidence| over predictions."""
        bins = zip(self.confidence, self.accuracy, self.count, strict=True)
        return sum(n * abs(a - c) for c, a, n in bins) / sum(self.count)


def reliability(probabilities: Tensor, y: Tensor, bins: int = 15) -> Reliability:
    """Return how often predictions of each confidence are right, for a reliability diagram.

    Parameters
    ----------
    probabilities, y
        Class probabilities (N, K) and labels (N,).
    bins
        Number B of bins of equal width: bin i holds confidences in (i/B, (i+1)/B].
    """
    if probabilities.ndim != 2 or y.shape != probabilities.shape[:1] or not len(y):
        raise ValueError(
            f"expected probabilities (N, K) and labels (N,), got {tuple(probabilities.shape)} "
            f"and {tuple(y.shape)}"
        )
    confidence, predicted = probabilities.double().max(1)
    right = (predicted == y).double()
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    sums = torch.zeros(3, bins, dtype=torch.float64, device=place.device)
    sums.index_add_(1, place, torch.stack([confidence, right, torch.ones_like(right)]))
    total_confidence, total_right, count = sums[:, sums[2] > 0]
    return Reliability(
        tuple((total_confidence / count).tolist()),
        tuple((total_right / count).tolist()),
        tuple(round(n) for n in count.tolist()),
    )


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error: mean |accuracy − confidence| over bins of confidence.

    Parameters are those of `reliability`; each bin is weighted by its number of data.
    """
    return reliability(probabilities, y, bins).error
