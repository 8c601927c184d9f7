"""How wide intervals must be, from residuals of held-out data.

Let r = |y − f| / sd be the standardised residuals of n held-out data. That of a new datum which is
exchangeable with them lies below the ⌈(n+1) level⌉-th smallest with probability at least `level`,
however the targets are distributed (split conformal prediction). A Gaussian quantile is right for
Gaussian residuals only: under heavy tails, the variance that fits all data makes intervals of 50 %
too wide. Few data know nothing of the farthest tails: beyond the largest residual, the quantile
grows as that of a Gaussian does, and is not below it.

Lei et al., "Distribution-free predictive inference for regression", JASA 113(523), 2018.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

MOST = 999  # residuals that are kept of each output: their ranks are then thousandths
ROUNDING = 1e-9


def residual_table(ratios: Tensor) -> Tensor:
    """Return the sorted residuals (m, K), at most 999 of each output, of residuals (n, K).

    Of more, those that stand at the ranks ⌈(n+1) k/1000⌉.
    """
    n = len(ratios)
    ordered = ratios.sort(0).values
    if n <= MOST:
        return ordered
    ranks = (
        (n + 1) * torch.arange(1, MOST + 1, dtype=torch.float64) / (MOST + 1) - ROUNDING
    ).ceil()
    return ordered[ranks.long().to(ordered.device) - 1]


def conformal_quantile(table: Tensor, level: float) -> Tensor:
    """Return the residual (K,) of each output that new data exceed with probability 1 − `level`.

    Parameters
    ----------
    table
        Sorted residuals (m, K).
    level
        Between 0 and 1.
    """
    m = len(table)
    rank = math.ceil((m + 1) * level - ROUNDING)
    if rank <= m:
        return table[max(rank, 1) - 1]
    gaussian = normal_quantile(level)
    return (table[-1] * (gaussian / normal_quantile(m / (m + 1)))).clamp(min=gaussian)


def normal_quantile(level: float) -> float:
    """Return z with P(|standard normal| ≤ z) = level."""
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)))
