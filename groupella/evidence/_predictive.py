"""Predictions from the Laplace posterior.

The network is linearised at its weights (the model under which the Gauss–Newton curvature is
exact): f(x) ~ N(f_MAP(x), s Σ_f(x)), Σ_f from a posterior and s a scale. Predictions are then

- "map": p(y | f), without Σ_f;
- "probit" (MacKay 1992), for classes: p(y | f / √(1 + π/8 v)), v the variance of each output;
- "mc": the mean of p(y | f) over draws f from N(f_MAP, s Σ_f);
- "calibrated", for classes: p(y | f / (T √(1 + π/8 u))), u = max(0, v̄(x)/q − 1), with v̄ the mean
  variance of the outputs, q its 95 % quantile on held-out data (or the largest), and T ≥ 1 a
  temperature.

For a Gaussian likelihood the predictive is N(f, s Σ_f + T σ² I), exactly. Its intervals are those
of a Gaussian until held-out data show how wide they must be: targets have heavier tails than that.

Why "calibrated". A classifier that fits its training data has next to no curvature left (Λ ≈ 0), so
that its posterior is nearly its prior, with variances of f in the hundreds, whichever way the
curvature is computed; held-out data refute them. How the variance differs *between* inputs is
informative nonetheless: it tells strange inputs from usual ones. So only what exceeds the variance
of held-out data counts, in units of it. (Dividing f by v̄/q itself helps more on inputs that are
very strange, and makes predictions worse on noise that the network can cope with.) Usual
predictions stay those of "map", at a temperature if held-out data surely ask for one, as one
tempers a posterior (Wenzel et al. 2020).

MacKay, "The evidence framework applied to classification networks", Neural Computation 4(5), 1992.
Wenzel et al., "How good is the Bayes posterior in deep neural networks really?", ICML 2020.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from groupella.curvature import evaluation

from ._calibration import calibration_error
from ._evidence import Evidence
from ._posterior import KroneckerPosterior, Posterior
from ._tails import fitted_tails, normal_quantile, tail_quantile
from .likelihoods import Likelihood

PredictiveMethod = Literal["map", "probit", "mc", "calibrated"]
SAMPLES = 256
SCALES = (0.0, *(10 ** (k / 4) for k in range(-20, 5)))
COLDEST, HOTTEST = 1 / 16, 1024.0  # temperatures
USUAL = 0.95  # quantile of the variance of held-out data
FREE = 2e-3  # nats per example that calibration may cost
SURE = 2.0  # nats that a temperature must gain in all: half of a likelihood ratio at 5 %
WORSE = 0.005  # calibration error that calibration may cost


@dataclass(frozen=True)
class Quality:
    """Mean −log p of predictions, their accuracy, and their expected calibration error.

    The last two are None where targets are not classes.
    """

    nll: float
    accuracy: float | None
    ece: float | None


class Predictive:
    """Predictions of the network of `evidence`.

    Parameters
    ----------
    evidence
        Network and likelihood.
    posterior
        Where the covariance of the outputs comes from; by default
        `KroneckerPosterior(evidence)`, for which the curvature must have been collected.
    scale
        The factor s of the covariance; see `calibrated`. None: not known, which counts as 1 where a
        covariance is asked for.
    temperature, usual, tails
        T, q, and of the |y − f| / sd of held-out data the ν and s of a t distribution for each
        output (2, K), which `calibrated` sets.
    """

    def __init__(
        self,
        evidence: Evidence,
        posterior: Posterior | None = None,
        *,
        scale: float | None = None,
        temperature: float = 1.0,
        usual: float | None = None,
        tails: Tensor | None = None,
    ) -> None:
        if scale is not None and not 0 <= scale < math.inf:
            raise ValueError(f"scale must be a number from 0 on, or None; got {scale!r}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"temperature must be positive, got {temperature!r}")
        self.evidence = evidence
        self.posterior: Posterior = KroneckerPosterior(evidence) if posterior is None else posterior
        self.scale, self.temperature, self.usual = scale, temperature, usual
        self.tails = tails

    def calibrated(self, x: Tensor, y: Tensor) -> Predictive:
        """Return predictions calibrated on data that the network was not trained on.

        Classes are then predicted by "calibrated". The temperature is that of `fitted_temperature`;
        q is the largest variance instead of the 95 % quantile if that costs more than 0.002 nats
        per example or 0.005 in calibration error on these data. Real targets get the temperature of
        the noise and the scale, from 10⁻⁵ to 10 or 0, that suit these data best, and intervals as
        wide as these data ask for; other targets a scale.

        Parameters
        ----------
        x, y
            Inputs and targets that the network was not trained on.
        """
        f, covariance = self.posterior.covariance(x)
        likelihood, make = self.evidence.likelihood, partial(Predictive, self.evidence)
        if not likelihood.has_classes:
            fitted = {s: self._tempered(f, s * covariance, y) for s in SCALES}
            limit = min(fitted.values())[0] + FREE
            scale = max(s for s, (loss, _) in fitted.items() if loss <= limit)
            found = make(self.posterior, scale=scale, temperature=fitted[scale][1])
            if likelihood.log_noise is not None:
                sd = found._with_noise(scale * covariance).diagonal(dim1=1, dim2=2).sqrt()
                found.tails = fitted_tails((y.to(f).reshape(f.shape) - f).abs() / sd)
            return found
        variance = self._variance(f, covariance).mean(1).clamp(min=1e-300)
        found = make(
            self.posterior,
            temperature=fitted_temperature(likelihood, f, y),
            usual=float(variance.quantile(USUAL)),
        )
        plain, softer = (
            _assessed(likelihood, one[None], y)
            for one in (f / found.temperature, found._softened(f, covariance))
        )
        assert softer.ece is not None
        assert plain.ece is not None
        if softer.nll > plain.nll + FREE or softer.ece > plain.ece + WORSE:
            found.usual = float(variance.max())
        return found

    def _tempered(self, f: Tensor, covariance: Tensor, y: Tensor) -> tuple[float, float]:
        """The least mean −log p(y) over temperatures of the noise, and the temperature."""
        if self.evidence.likelihood.log_noise is None:
            return self._nll(f, covariance, y, 1.0), 1.0
        return _least(lambda t: self._nll(f, covariance, y, t), COLDEST)

    def _softened(self, f: Tensor, covariance: Tensor) -> Tensor:
        """Outputs whose predictions are those of "calibrated"."""
        assert self.usual is not None
        excess = (self._variance(f, covariance).mean(1) / self.usual - 1.0).clamp(min=0.0)
        return f / (self.temperature * (1.0 + math.pi / 8.0 * excess).sqrt()).unsqueeze(1)

    def variance(self, x: Tensor) -> Tensor:
        """Return v̄(x) (N,), the mean variance of the outputs as far as the likelihood sees it."""
        return self._variance(*self.posterior.covariance(x)).mean(1)

    def outputs(self, x: Tensor) -> Tensor:
        """Return f (N, K) in float64, computed in evaluation mode."""
        network = self.evidence.network
        with torch.no_grad(), evaluation(network):
            parts = [network(part).flatten(1).double() for part in torch.split(x, 256)]
        return torch.cat(parts)

    def latent(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return f (N, K) and its covariance s Σ_f (N, K, K), in float64."""
        f, covariance = self.posterior.covariance(x)
        return f, covariance if self.scale is None else self.scale * covariance

    def mean(
        self,
        x: Tensor,
        method: PredictiveMethod | None = None,
        *,
        samples: int = SAMPLES,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return the predicted mean of the targets, (N, K); parameters as in `probabilities`."""
        draws = self._draws(x, self._method(method), samples, generator)
        return self.evidence.likelihood.mean(draws).mean(0)

    def probabilities(
        self,
        x: Tensor,
        method: PredictiveMethod | None = None,
        *,
        samples: int = SAMPLES,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Return class probabilities (N, K), or those of each binary output.

        Parameters
        ----------
        x
            Inputs of the network.
        method
            "map", "probit", "mc" or "calibrated"; see the top of this module. By default
            "calibrated" after `calibrated`, "mc" if the scale is known, else "map".
        samples, generator
            Number of draws of "mc". Without a generator they are quasi-random and the same for
            every input, so that predictions depend on the input alone.

        Raises
        ------
        TypeError
            If the targets of the likelihood are not classes.
        """
        self._check_classes("probabilities(x)")
        return self.mean(x, method, samples=samples, generator=generator)

    def normal(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean (N, K) and covariance (N, K, K) of the targets of a Gaussian likelihood."""
        if self.evidence.noise is None:
            raise TypeError("normal(x) is for a Gaussian likelihood; use probabilities(x)")
        f, covariance = self.latent(x)
        return f, self._with_noise(covariance)

    def _with_noise(self, covariance: Tensor) -> Tensor:
        """The covariance of the targets, from that of the outputs."""
        noise = self.evidence.noise
        assert noise is not None
        own = torch.eye(covariance.shape[-1]).to(covariance)
        return covariance + self.temperature * noise**2 * own

    def interval(self, x: Tensor, level: float = 0.9) -> tuple[Tensor, Tensor]:
        """Return bounds (N, K) within which each target lies with probability `level`.

        For a Gaussian likelihood. After `calibrated`, they are as wide as held-out data ask for,
        for each output by itself; before, as those of a Gaussian.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level!r}")
        mean, covariance = self.normal(x)
        sd = covariance.diagonal(dim1=1, dim2=2).sqrt()
        if self.tails is None:
            width = normal_quantile(level) * sd
        else:
            width = tail_quantile(self.tails, level).to(sd) * sd
        return mean - width, mean + width

    def quality(
        self,
        x: Tensor,
        y: Tensor,
        method: PredictiveMethod | None = None,
        *,
        samples: int = SAMPLES,
        generator: torch.Generator | None = None,
        bins: int = 15,
    ) -> Quality:
        """Return NLL, accuracy and calibration on inputs x and targets y.

        Other parameters are as in `probabilities`; `bins` are those of `calibration_error`. A
        Gaussian likelihood has its closed form for every method but "map".
        """
        likelihood = self.evidence.likelihood
        if likelihood.log_noise is not None and method != "map":
            f, covariance = self.latent(x)
            return Quality(self._nll(f, covariance, y, self.temperature), None, None)
        draws = self._draws(x, self._method(method), samples, generator)
        return _assessed(likelihood, draws, y, bins)

    def _method(self, method: PredictiveMethod | None) -> str:
        if method is not None:
            return method
        return "calibrated" if self.usual is not None else "mc" if self.scale else "map"

    def _nll(self, f: Tensor, covariance: Tensor, y: Tensor, temperature: float) -> float:
        """Mean −log p(y) for f ~ N(f, covariance)."""
        likelihood, noise = self.evidence.likelihood, self.evidence.noise
        if noise is None:
            return _nll_of_draws(likelihood, _sampled(f, covariance, SAMPLES, None), y)
        own = temperature * noise**2 * torch.eye(f.shape[1]).to(f)
        root = torch.linalg.cholesky(covariance + own)
        residual = (y.to(f).reshape(f.shape) - f).unsqueeze(-1)
        white = torch.linalg.solve_triangular(root, residual, upper=False).squeeze(-1)
        logdet = 2.0 * root.diagonal(dim1=1, dim2=2).log().sum(1)
        constant = f.shape[1] * math.log(2.0 * math.pi)
        return 0.5 * float((white.square().sum(1) + logdet + constant).mean())

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
        if method not in get_args(PredictiveMethod):
            names = ", ".join(map(repr, get_args(PredictiveMethod)))
            raise ValueError(f"method must be one of {names}, got {method!r}")
        if method == "map":
            return self.outputs(x)[None]
        if method != "mc":
            self._check_classes(f"method={method!r}")
        f, covariance = self.latent(x)
        if method == "mc":
            return _sampled(f, covariance, samples, generator)
        if method == "calibrated":
            if self.usual is None:
                raise ValueError("method='calibrated' needs held-out data: call calibrated(x, y)")
            return self._softened(f, covariance)[None]
        variance = self._variance(f, covariance)
        return (f @ _seen(self.evidence.likelihood, f) / (1.0 + math.pi / 8.0 * variance).sqrt())[
            None
        ]

    def _variance(self, f: Tensor, covariance: Tensor) -> Tensor:
        """The variance (N, K) of each output, as far as the likelihood sees it.

        Directions that it does not see, such as the sum of all logits, have no curvature and the
        variance of the prior: they must not soften predictions.
        """
        blind = _blind(self.evidence.likelihood, f)
        seen = 1.0 - blind.square().sum(1)
        # The diagonal of (1 − BBᵀ) Σ (1 − BBᵀ), for few columns of B.
        mixed = covariance @ blind
        both = blind @ (blind.mT @ mixed)
        variance = covariance.diagonal(dim1=1, dim2=2) + ((both - 2 * mixed) * blind).sum(2)
        return variance / seen.square()


def fitted_temperature(likelihood: Likelihood, f: Tensor, y: Tensor) -> float:
    """Return the temperature T ≥ 1 at which predictions p(y | f/T) of classes suit y best.

    It is 1 unless another gains two nats in all and costs at most 0.005 in calibration error, so
    that predictions at it are not worse than those at 1.

    Parameters
    ----------
    likelihood
        Of classes, or of several labels.
    f, y
        Outputs (N, K) for data that the network was not trained on, and their targets.

    References
    ----------
    Guo et al., "On calibration of modern neural networks", ICML 2017.
    """
    loss, found = _softest(likelihood, f, y)
    plain, softer = (_assessed(likelihood, f[None] / t, y) for t in (1.0, found))
    assert plain.ece is not None
    assert softer.ece is not None
    sure = len(y) * (plain.nll - loss) > SURE
    return found if sure and softer.ece <= plain.ece + WORSE else 1.0


def _softest(likelihood: Likelihood, f: Tensor, y: Tensor) -> tuple[float, float]:
    """The least mean −log p(y | f/T) over T ≥ 1, and T.

    Class predictions only become softer: sharper ones are wrong for strange inputs.
    """
    return _least(lambda t: _nll_of_draws(likelihood, f[None] / t, y), 1.0)


def _least(loss: Callable[[float], float], coldest: float) -> tuple[float, float]:
    """The least loss over temperatures, and the temperature."""
    found = minimize_scalar(
        lambda log_t: loss(math.exp(log_t)),
        bounds=(math.log(coldest), math.log(HOTTEST)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return float(found.fun), math.exp(found.x)


def _assessed(likelihood: Likelihood, draws: Tensor, y: Tensor, bins: int = 15) -> Quality:
    """The quality of predictions by draws (draws, N, K)."""
    nll = _nll_of_draws(likelihood, draws, y)
    p = likelihood.mean(draws).mean(0)
    accuracy = likelihood.accuracy(p, y)
    if accuracy is None:
        return Quality(nll, None, None)
    if y.numel() == p.numel():  # binary outputs: two classes each
        p, y = torch.stack([1 - p, p], -1).reshape(-1, 2), (y > 0.5).long().reshape(-1)
    return Quality(nll, accuracy, calibration_error(p, y, bins))


def _seen(likelihood: Likelihood, f: Tensor) -> Tensor:
    """The projection (K, K) onto the outputs on which p(y | f) depends."""
    blind = _blind(likelihood, f)
    return torch.eye(len(blind)).to(blind) - blind @ blind.T


def _blind(likelihood: Likelihood, f: Tensor) -> Tensor:
    """An orthonormal basis (K, R) of the outputs on which p(y | f) does not depend."""
    root = likelihood.hessian_root(torch.zeros_like(f[:1]))[0]
    values, vectors = torch.linalg.eigh(root @ root.T)
    basis: Tensor = vectors[:, values <= 1e-9 * values[-1]]
    return basis


def _sampled(
    f: Tensor, covariance: Tensor, samples: int, generator: torch.Generator | None
) -> Tensor:
    """Draws (samples, N, K) from N(f, covariance)."""
    # The symmetric root of positive semi-definite matrices, singular ones included.
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.mT
    if generator is None:
        engine: Any = torch.quasirandom.SobolEngine(f.shape[1], True, 0)  # type: ignore[no-untyped-call]
        points = engine.draw(samples, dtype=torch.float64).clamp(1e-9, 1 - 1e-9)
        noise = torch.special.ndtri(points).to(f)[:, None]
    else:
        noise = torch.randn(samples, *f.shape, dtype=f.dtype, device=f.device, generator=generator)
    return f + torch.einsum("nkl,mnl->mnk", root, noise.expand(-1, len(f), -1))


def _nll_of_draws(likelihood: Likelihood, draws: Tensor, y: Tensor) -> float:
    """Mean −log of the mean of p(y | f) over draws (draws, N, K)."""

    def log_p(f: Tensor, y: Tensor) -> Tensor:
        return likelihood.log_likelihood(f[None], y[None])

    each = torch.vmap(torch.vmap(log_p), in_dims=(0, None))(draws, y)
    return math.log(len(draws)) - float(each.logsumexp(0).mean())
