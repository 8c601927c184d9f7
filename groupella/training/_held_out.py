"""Uncertainty of the network that a search hands over, from the data that were held out before.

The network is trained on all data, so that none are left to calibrate it on. But a network like it
was trained on a part of them and predicted the rest. What those predictions say of temperature and
noise holds for both. The variance v̄ is in units of each network's own curvature. So the quantile q
of usual inputs (see `groupella.evidence.Predictive`) is that of the final network on its training
data, times how much larger q of the first network was on held-out data than on its training data.
The covariance of real outputs is scaled so that both networks are as uncertain of their own data:
nothing shows how much the final one has gained by the rest. Intervals are as many standard
deviations wide as the held-out data of the first network asked for.

The posterior is that of the last layer: it costs a forward pass, is small enough to be stored with
the network, and tells strange inputs nearly as well as that of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from groupella.evidence import (
    Evidence,
    Predictive,
    Reliability,
    fitted_temperature,
    reliability,
)
from groupella.evidence.likelihoods import Likelihood
from groupella.networks import InvariantNet, fold

from ._candidates import observed, outputs
from ._fit import Fit
from ._scoring import Scoring

MOST = 200  # data of which variances are computed
MOST_NUMBERS = 5_000_000  # of their covariances, but of 50 data at least
MOST_FEATURES = 8192  # of a last layer: its input factor then takes 256 MiB
USUAL = 0.95
LAST = "head."  # what the parameters of the last layer are called


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Data that were held out, and the network that was trained on the others.

    Attributes
    ----------
    fit
        The training of that network.
    train, held
        Indices of the data that it was trained on, and of the others.
    x, y
        All data.
    scoring
        How predictions are scored.
    """

    fit: Fit
    train: Tensor
    held: Tensor
    x: Tensor
    y: Tensor
    scoring: Scoring

    @cached_property
    def outputs(self) -> Tensor:
        """Outputs (n, K) for the held-out data."""
        return outputs(self.fit.network, self.x[self.held])

    @property
    def targets(self) -> Tensor:
        """The targets of the held-out data."""
        return self.y[self.held]

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the targets; real ones have the noise that held-out data show.

        Training data show less: the network has learned some of it.
        """
        return self.scoring.likelihood(self.outputs, self.targets)

    @cached_property
    def temperature(self) -> float:
        """The temperature of class predictions; 1 for real targets."""
        if not self.likelihood.has_classes:
            return 1.0
        return fitted_temperature(self.likelihood, self.outputs, self.targets)

    @property
    def reliability(self) -> Reliability | None:
        """How often predictions at that temperature are right; None where there are no classes."""
        if self.targets.ndim != 1:
            return None
        return reliability((self.outputs / self.temperature).softmax(1), self.targets)

    def predictive(self, network: InvariantNet) -> Predictive | None:
        """Return calibrated predictions of a network like this one, trained on all data.

        None if their last layers have too many features.
        """
        own = self.fit.network
        assert isinstance(own, InvariantNet)
        if max(_features(one) for one in (own, network)) > MOST_FEATURES:
            return None
        evidence = self._observed(own, self.train)
        first = Predictive(evidence).calibrated(self.x[self.held], self.targets)
        everything = torch.arange(len(self.y))
        last = Predictive(
            self._observed(network, everything),
            scale=first.scale,
            temperature=first.temperature,
            tails=first.tails,
        )
        known = self._usual(first, self.train), self._usual(last, everything)
        if first.usual is not None:
            last.usual = max(first.usual / known[0], 1.0) * known[1]
        elif first.scale:
            last.scale = first.scale * known[0] / known[1]
        return last

    def _observed(self, network: InvariantNet, indices: Tensor) -> Evidence:
        data = self.x[indices], self.y[indices]
        folded = fold(network)
        others = [n for n, _ in folded.named_parameters() if not n.startswith(LAST)]
        return observed(folded, data, self.fit, self.likelihood, others)

    def _usual(self, predictive: Predictive, indices: Tensor) -> float:
        """The variance that few of these data exceed."""
        most = min(MOST, max(MOST_NUMBERS // self.scoring.outputs**2, 50))
        some = indices[:: max(len(indices) // most, 1)][:most]
        return max(float(predictive.variance(self.x[some]).quantile(USUAL)), 1e-300)


def _features(network: InvariantNet) -> int:
    """The number of inputs of the last layer."""
    weights = [p for n, p in network.named_parameters() if n.startswith(LAST)]
    return max(p.numel() for p in weights) // min(p.numel() for p in weights)
