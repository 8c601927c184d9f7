"""Predictions from the Laplace posterior, and how well calibrated they are.

The network is linearised at its weights (the model under which the Gauss–Newton curvature is
exact): f(x) ~ N(f_MAP(x), Σ_f(x)), Σ_f from the Kronecker posterior. For class probabilities,

- "map" ignores Σ_f: softmax(f);
- "probit" (MacKay) softens each logit by its variance: softmax(f / √(1 + π/8 diag Σ_f));
- "mc" averages the softmax over draws from N(f, Σ_f).

For a Gaussian likelihood the predictive is N(f, Σ_f + σ² I), exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian

from ._evidence import Evidence
from ._fit_of_data import evaluation
from ._jacobians import jacobian_size, output_covariance

PredictiveMethod = Literal["map", "probit", "mc"]
# Numbers held at once by the Jacobians of a batch, and data in one.
BUDGET = 1 << 25
MOST = 64


@dataclass(frozen=True)
class Quality:
    """Of predictions on data: mean −log p, share of right classes, expected calibration error."""

    nll: float
    accuracy: float | None
    ece: float | None


class Predictive:
    """Predictions of the network of `evidence`, whose curvature must have been collected."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    def outputs(self, x: Tensor) -> Tensor:
        """f (N, K) in float64, in evaluation mode."""
        network = self.evidence.network
        with torch.no_grad(), evaluation(network):
            parts = [network(part).flatten(1).double() for part in torch.split(x, 256)]
        return torch.cat(parts)

    def latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """f (N, K) and its posterior covariance (N, K, K), in float64."""
        evidence = self.evidence
        blocks = evidence.blocks
        precisions = evidence.prior.precision_of_parameters()
        outputs = self.outputs(x[:1]).shape[1]
        size = min(MOST, max(1, BUDGET // max(jacobian_size(blocks, outputs), 1)))
        parts = [
            output_covariance(evidence.network, part, blocks, precisions, evidence.noise_scale)
            for part in torch.split(x, size)
        ]
        return torch.cat([f for f, _ in parts]), torch.cat([c for _, c in parts])

    def probabilities(
        self,
        x: Tensor,
        method: PredictiveMethod = "probit",
        *,
        samples: int = 200,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Class probabilities (N, K), or those of each binary output for `Bernoulli`."""
        likelihood = self.evidence.likelihood
        if not isinstance(likelihood, Categorical | Bernoulli):
            raise TypeError(
                "probabilities are for Categorical and Bernoulli likelihoods; for a Gaussian one "
                "use normal(x)"
            )
        if method not in ("map", "probit", "mc"):
            raise ValueError(f"method must be 'map', 'probit' or 'mc', got {method!r}")
        squash = _softmax if isinstance(likelihood, Categorical) else torch.sigmoid
        if method == "map":
            return squash(self.outputs(x))
        f, covariance = self.latent(x)
        if method == "probit":
            variance = covariance.diagonal(dim1=1, dim2=2)
            return squash(f / (1.0 + math.pi / 8.0 * variance).sqrt())
        draws = torch.randn(samples, *f.shape, dtype=f.dtype, device=f.device, generator=generator)
        moved = torch.einsum("nkl,mnl->mnk", _root(covariance), draws)
        return squash(f + moved).mean(0)

    def normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (N, K) and covariance (N, K, K) of the targets under a Gaussian likelihood."""
        likelihood = self.evidence.likelihood
        if not isinstance(likelihood, Gaussian):
            raise TypeError("normal(x) is for a Gaussian likelihood; use probabilities(x)")
        f, covariance = self.latent(x)
        variance = math.exp(2.0 * float(likelihood.log_noise.detach()))
        eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        return f, covariance + variance * eye

    def quality(
        self,
        x: Tensor,
        y: Tensor,
        method: PredictiveMethod = "probit",
        *,
        samples: int = 200,
        generator: torch.Generator | None = None,
        bins: int = 15,
    ) -> Quality:
        """NLL, accuracy and calibration on (x, y)."""
        likelihood = self.evidence.likelihood
        if isinstance(likelihood, Gaussian):
            return Quality(_gaussian_nll(self, x, y, method), None, None)
        p = self.probabilities(x, method, samples=samples, generator=generator)
        if isinstance(likelihood, Bernoulli):
            y = y.to(p).reshape(p.shape)
            hit = ((p > 0.5) == (y > 0.5)).double()
            tiny = torch.finfo(p.dtype).tiny
            log_p = y * p.clamp(min=tiny).log() + (1 - y) * (1 - p).clamp(min=tiny).log()
            pair = torch.stack([1 - p, p], -1).reshape(-1, 2)
            error = calibration_error(pair, (y > 0.5).long().reshape(-1), bins)
            return Quality(-float(log_p.sum(1).mean()), float(hit.mean()), error)
        chosen = p.gather(1, y[:, None]).clamp(min=torch.finfo(p.dtype).tiny)
        accuracy = float((p.argmax(1) == y).double().mean())
        return Quality(-float(chosen.log().mean()), accuracy, calibration_error(p, y, bins))


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Expected calibration error: mean |accuracy − confidence| over equal bins of confidence.

    probabilities (N, K), y (N,); bin i of B holds confidences in (i/B, (i+1)/B], weighed by its
    number of data.
    """
    if probabilities.ndim != 2 or y.shape != probabilities.shape[:1]:
        raise ValueError(
            f"expected probabilities (N, K) and labels (N,), got {tuple(probabilities.shape)} "
            f"and {tuple(y.shape)}"
        )
    confidence, predicted = probabilities.double().max(1)
    right = (predicted == y).double()
    place = (confidence * bins).ceil().long().clamp(1, bins) - 1
    gap = torch.zeros(bins, dtype=torch.float64, device=place.device)
    gap.index_add_(0, place, right - confidence)
    return float(gap.abs().sum() / len(y))


def _softmax(f: Tensor) -> Tensor:
    return f.softmax(-1)


def _root(covariance: Tensor) -> Tensor:
    """A square root of positive semi-definite matrices, singular ones included."""
    values, vectors = torch.linalg.eigh(covariance)
    root: Tensor = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
    return root


def _gaussian_nll(predictive: Predictive, x: Tensor, y: Tensor, method: PredictiveMethod) -> float:
    likelihood = predictive.evidence.likelihood
    assert isinstance(likelihood, Gaussian)
    if method == "map":
        mean = predictive.outputs(x)
        variance = math.exp(2.0 * float(likelihood.log_noise.detach()))
        eye = torch.eye(mean.shape[1], dtype=mean.dtype, device=mean.device)
        covariance = (variance * eye).expand(len(mean), -1, -1)
    else:
        mean, covariance = predictive.normal(x)
    residual = (y.to(mean).reshape(mean.shape) - mean).unsqueeze(-1)
    root = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(root, residual, upper=False).squeeze(-1)
    logdet = 2.0 * root.diagonal(dim1=1, dim2=2).log().sum(1)
    constant = mean.shape[1] * math.log(2.0 * math.pi)
    return float((0.5 * (white.square().sum(1) + logdet + constant)).mean())
