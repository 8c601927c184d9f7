"""How wide intervals must be, from residuals of held-out data.

Let r = |y − f| / sd be the standardised residuals of n held-out data. Under heavy tails, the
variance that fits all data makes Gaussian intervals of 50 % too wide. So r/s is taken to be the
size of a Student t variable with ν degrees of freedom, ν and s > 0 as likely as can be, unless a
Gaussian (ν = ∞) is about as likely. Two numbers are better known than a quantile of n data, whose
coverage has a standard deviation of 5 points at 50 % where n = 100.

The best s for a given ν is the fixed point of s² = mean((ν + 1) r² / (ν + r²/s²)) (Lange et al.,
"Robust statistical modeling using the t distribution", JASA 84(408), 1989).
"""

from __future__ import annotations

import math

import torch
from scipy.special import stdtrit
from torch import Tensor

DEGREES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0)
SURE = 2.0  # nats by which a t distribution must be more likely than a Gaussian
ROUNDS = 60


def fitted_tails(ratios: Tensor) -> Tensor:
    """Return ν and s of each output, (2, K), for standardised residuals (n, K)."""
    columns = [_fitted(column) for column in ratios.double().unbind(1)]
    return torch.tensor(columns, dtype=torch.float64).T.contiguous()


def tail_quantile(tails: Tensor, level: float) -> Tensor:
    """Return the residual (K,) of each output that new data exceed with probability 1 − `level`.

    Parameters
    ----------
    tails
        ν and s, (2, K), as from `fitted_tails`.
    level
        Between 0 and 1.
    """
    degrees, scale = tails.double().unbind(0)
    widths = torch.tensor([_quantile(float(d), level) for d in degrees], dtype=torch.float64)
    return widths.to(scale) * scale


def _quantile(degrees: float, level: float) -> float:
    return (
        normal_quantile(level) if degrees == math.inf else float(stdtrit(degrees, 0.5 + level / 2))
    )


def _fitted(residuals: Tensor) -> tuple[float, float]:
    """ν and s: a Gaussian, unless a t distribution is surely more likely."""
    gaussian = residuals.square().mean().sqrt().clamp(min=1e-300)
    best, found = SURE + _likelihood(residuals, gaussian, None), (math.inf, float(gaussian))
    for degrees in DEGREES:
        scale = _scale(residuals, degrees)
        likely = _likelihood(residuals, scale, degrees)
        if likely > best:
            best, found = likely, (degrees, float(scale))
    return found


def _scale(residuals: Tensor, degrees: float) -> Tensor:
    """The most likely scale of a t distribution with so many degrees of freedom."""
    squares = residuals.square()
    scale = squares.median().clamp(min=1e-300)
    for _ in range(ROUNDS):
        scale = ((degrees + 1) * squares / (degrees + squares / scale)).mean().clamp(min=1e-300)
    return scale.sqrt()


def _likelihood(residuals: Tensor, scale: Tensor, degrees: float | None) -> float:
    """The log-likelihood of the residuals, in nats, but for a constant."""
    z = (residuals / scale).square()
    if degrees is None:
        each = -0.5 * z - 0.5 * math.log(2 * math.pi)
    else:
        half = 0.5 * (degrees + 1)
        norm = math.lgamma(half) - math.lgamma(0.5 * degrees) - 0.5 * math.log(math.pi * degrees)
        each = norm - half * torch.log1p(z / degrees)
    return float((each - scale.log()).sum())


def normal_quantile(level: float) -> float:
    """Return z with P(|standard normal| ≤ z) = level."""
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.float64)))
