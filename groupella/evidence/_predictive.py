"""Predictions from the Laplace posterior, and how well calibrated they are.

The network is linearised at its weights (the model under which the Gauss–Newton curvature is
exact): f(x) ~ N(f_MAP(x), Σ_f(x)), Σ_f from the Kronecker posterior. Predictions are then

- "map": p(y | f), without Σ_f;
- "probit" (MacKay 1992), for classes: p(y | f / √(1 + π/8 diag Σ_f));
- "mc": the mean of p(y | f) over draws f from N(f_MAP, Σ_f).

For a Gaussian likelihood the predictive is N(f, Σ_f + σ² I), exactly.

MacKay, "The evidence framework applied to classification networks", Neural Computation 4(5), 1992.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from groupella.curvature import evaluation

from ._evidence import Evidence
from ._jacobians import jacobian_size, output_covariance

PredictiveMethod = Literal["map", "probit", "mc"]
# Numbers held at once by the Jacobians of a batch, and data in one.
BUDGET = 1 << 25
MOST = 64


@dataclass(frozen=True)
class Quality:
    """Mean −log p of predictions, their accuracy, and their expected calibration error.

    The last two are None where targets are not classes.
    """

    nll: float
    accuracy: float | None
    ece: float | None


class Predictive:
    """Predictions of the network of `evidence`, whose curvature must have been collected."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    def outputs(self, x: Tensor) -> Tensor:
        """Return f (N, K) in float64, computed in evaluation mode."""
        network = self.evidence.network
        with torch.no_grad(), evaluation(network):
            parts = [network(part).flatten(1).double() for part in torch.split(x, 256)]
        return torch.cat(parts)

    def latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f (N, K) and its posterior covariance (N, K, K), in float64."""
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

    def mean(
        self,
        x: Tensor,
        method: PredictiveMethod = "mc",
        *,
        samples: int = 200,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the predicted mean of the targets, (N, K); parameters as in `probabilities`."""
        return self.evidence.likelihood.mean(self._draws(x, method, samples, generator)).mean(0)

    def probabilities(
        self,
        x: Tensor,
        method: PredictiveMethod = "probit",
        *,
        samples: int = 200,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return class probabilities (N, K), or those of each binary output.

        Parameters
        ----------
        x
            Inputs of the network.
        method
            "map", "probit" or "mc"; see the top of this module.
        samples, generator
            Number of draws of "mc", and where they come from.

        Raises
        ------
        TypeError
            If the targets of the likelihood are not classes.
        """
        self._check_classes("probabilities(x)")
        return self.mean(x, method, samples=samples, generator=generator)

    def normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (N, K) and covariance (N, K, K) of the targets of a Gaussian likelihood."""
        noise = self.evidence.noise
        if noise is None:
            raise TypeError("normal(x) is for a Gaussian likelihood; use probabilities(x)")
        f, covariance = self.latent(x)
        return f, covariance + noise**2 * torch.eye(f.shape[1]).to(f)

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
        """Return NLL, accuracy and calibration on inputs x and targets y.

        Other parameters are as in `probabilities`; `bins` are those of `calibration_error`. A
        Gaussian likelihood has its closed form for every method but "map".
        """
        likelihood = self.evidence.likelihood
        if likelihood.log_noise is not None and method != "map":
            mean, covariance = self.normal(x)
            root = torch.linalg.cholesky(covariance)
            residual = (y.to(mean).reshape(mean.shape) - mean).unsqueeze(-1)
            white = torch.linalg.solve_triangular(root, residual, upper=False).squeeze(-1)
            logdet = 2.0 * root.diagonal(dim1=1, dim2=2).log().sum(1)
            constant = mean.shape[1] * math.log(2.0 * math.pi)
            nll = 0.5 * (white.square().sum(1) + logdet + constant).mean()
            return Quality(float(nll), None, None)
        draws = self._draws(x, method, samples, generator)

        def log_p(f: Tensor, y: Tensor) -> Tensor:
            return likelihood.log_likelihood(f[None], y[None])

        each = torch.vmap(torch.vmap(log_p), in_dims=(0, None))(draws, y)
        nll = math.log(len(draws)) - float(each.logsumexp(0).mean())
        p = likelihood.mean(draws).mean(0)
        accuracy = likelihood.accuracy(p, y)
        if accuracy is None:
            return Quality(nll, None, None)
        if y.numel() == p.numel():  # binary outputs: two classes each
            p, y = torch.stack([1 - p, p], -1).reshape(-1, 2), (y > 0.5).long().reshape(-1)
        return Quality(nll, accuracy, calibration_error(p, y, bins))

    def _check_classes(self, what: str) -> None:
        likelihood = self.evidence.likelihood
        if not likelihood.has_classes:
            raise TypeError(
                f"{what} needs targets that are classes, {type(likelihood).__name__} has none; use "
                + ("mean(x, 'mc')" if likelihood.log_noise is None else "normal(x)")
            )

    def _draws(
        self, x: Tensor, method: str, samples: int, generator: torch.Generator | None
    ) -> Tensor:
        """Outputs (draws, N, K) whose mean prediction is that of `method`."""
        if method not in ("map", "probit", "mc"):
            raise ValueError(f"method must be 'map', 'probit' or 'mc', got {method!r}")
        if method == "map":
            return self.outputs(x)[None]
        if method == "probit":
            self._check_classes("method='probit'")
        f, covariance = self.latent(x)
        if method == "probit":
            variance = covariance.diagonal(dim1=1, dim2=2)
            return (f / (1.0 + math.pi / 8.0 * variance).sqrt())[None]
        # A root of positive semi-definite matrices, singular ones included.
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
        noise = torch.randn(samples, *f.shape, dtype=f.dtype, device=f.device, generator=generator)
        return f + torch.einsum("nkl,mnl->mnk", root, noise)


def calibration_error(probabilities: Tensor, y: Tensor, bins: int = 15) -> float:
    """Return the expected calibration error: mean |accuracy − confidence| over bins of confidence.

    Parameters
    ----------
    probabilities, y
        Class probabilities (N, K) and labels (N,).
    bins
        Number B of bins of equal width: bin i holds confidences in (i/B, (i+1)/B] and is weighted
        by its number of data.
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
