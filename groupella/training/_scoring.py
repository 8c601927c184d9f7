"""What a search asks of predictions: of classes, of real targets, of several labels.

f (n, K) are outputs of a network for n held-out data, (M, n, K) those for data moved by M elements
of a group. Predictions are calibrated on the data as they are, before any averaging: by a
temperature, or by the noise σ of real targets. A calibration after averaging could undo it.

| kind       | log-likelihood of a datum     | averaged over a group          |
| ---------- | ----------------------------- | ------------------------------ |
| classes    | log softmax(f/T)_y            | of the mean probabilities      |
| multilabel | Σ_k log Bernoulli(y_k; f_k/T) | of the mean probabilities      |
| regression | Σ_k log N(y_k; f_k, σ_k)      | of the mean of the predictions |
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from groupella.decide.claims import Consequence
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from groupella.nn.standardise import common_scale

TEMPERATURES = np.geomspace(0.2, 8.0, 61)
SMALLEST_NOISE = 1e-3  # in units of the targets' standard deviation


class Scoring(ABC):
    """How predictions of one kind of targets are scored.

    `unit` is the calibration of outputs that nothing is known about.
    """

    unit = 1.0

    def __init__(self, outputs: int, y: Tensor | None = None) -> None:
        self.outputs = outputs

    @abstractmethod
    def likelihood(self, f: Tensor | None = None, y: Tensor | None = None) -> Likelihood:
        """Return the likelihood to train with; with predictions, one fitted to them."""

    @abstractmethod
    def calibrated(self, f: Tensor, y: Tensor) -> Tensor:
        """Return the calibration, a temperature or σ per output, that suits the targets best."""

    @abstractmethod
    def by_target(self, f: Tensor, y: Tensor, calibration: Tensor) -> Tensor:
        """Return the log-likelihood of each target, (n, K); of classes there is one, (n, 1)."""

    def scores(self, f: Tensor, y: Tensor, calibration: Tensor) -> Tensor:
        """Return the log-likelihood of each datum, (n,)."""
        return self.by_target(f, y, calibration).sum(1)

    def guess(self, train: Tensor, held: Tensor) -> Tensor:
        """Return the scores (n,) of a guess that ignores the inputs, at its best calibration.

        Networks are scored at theirs. A guess that is not would be beaten by a network that knows
        nothing, where classes that are rare in training are common among the held-out data. One
        that is always right is certain at a temperature of 0.
        """
        f = self.chance(train, held)[1]
        if self.quality(f, held) == 1.0:
            return torch.zeros(len(held), dtype=torch.double)
        return self.scores(f, held, self.calibrated(f, held))

    @abstractmethod
    def averaged(self, moved: Tensor, calibration: Tensor) -> Tensor:
        """Return outputs (n, K) that stand for the predictions averaged over motions.

        They are calibrated: score them with the calibration `neutral`.
        """

    @abstractmethod
    def neutral(self, calibration: Tensor) -> Tensor:
        """Return the calibration of averaged predictions."""

    @abstractmethod
    def signature(self, f: Tensor) -> Tensor:
        """Return numbers (n, …) by which predictions for unusual inputs can be told."""

    @abstractmethod
    def predictions(self, f: Tensor) -> Tensor:
        """Return probabilities, or real predictions."""

    @abstractmethod
    def chance(self, train: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores (n,) and the outputs (n, K) of a guess that ignores the inputs."""

    def leftover(self, f: Tensor, y: Tensor, calibration: Tensor, beyond: Tensor) -> Tensor:
        """Return how much each target asks for what `beyond` adds to the outputs f, (n,).

        The score s_i = ∂ log p(y_i | f_i + β·beyond_i)/∂β at β = 0 over the root of the information
        I, the mean of −∂²/∂β². Where the mean of these is t, the best β > 0 gains about t²/2 nats a
        datum.
        """
        beta = torch.zeros(len(y), dtype=torch.double, requires_grad=True)
        likely = self.scores(f + beta[:, None] * beyond, y, calibration)
        (score,) = torch.autograd.grad(likely.sum(), beta, create_graph=True)
        (second,) = torch.autograd.grad(score.sum(), beta)
        information = -second.mean()
        scale = information.sqrt() if information > 0 else torch.tensor(math.inf)
        return score.detach() / scale

    def leftover_each(self, f: Tensor, y: Tensor, calibration: Tensor, beyond: Tensor) -> Tensor:
        """Return the same for each output alone, (n, K), each in a unit of its own."""
        f = f.detach().requires_grad_()
        (slope,) = torch.autograd.grad(self.scores(f, y, calibration).sum(), f)
        return slope * beyond

    measure = "accuracy"  # the field of a `Consequence` that `quality` fills

    def quality(self, f: Tensor, y: Tensor) -> float:
        """Return the share of right predictions, or R²."""
        found = self.likelihood().accuracy(self.predictions(f), y)
        assert found is not None
        return found

    def labels(self, y: Tensor) -> Tensor:
        """Return the class of each datum, or zeros where there are none."""
        return torch.zeros(len(y), dtype=torch.long)

    def row(self, name: str, f: Tensor, y: Tensor) -> Consequence:
        """Return how good predictions are; log-likelihoods are those of the network as it is."""
        nll = -float(self.scores(f, y, self.neutral(self.calibrated(f, y))).mean())
        return Consequence(name, nll=nll, **{self.measure: self.quality(f, y)})  # type: ignore[arg-type]

    def _temperature(self, f: Tensor, y: Tensor) -> Tensor:
        """The temperature at which predictions are most probable.

        A network that is too sure of itself gains by anything that makes it less so, also by
        averaging over a group that the labels do not obey; at the best temperature only information
        counts.
        """
        tried = torch.from_numpy(TEMPERATURES)
        return tried[int(np.argmax([float(self.scores(f, y, t).mean()) for t in tried]))]


class ClassScoring(Scoring):
    """Classes y (n,) with logits f."""

    def likelihood(self, f: Tensor | None = None, y: Tensor | None = None) -> Likelihood:
        return Categorical()

    def calibrated(self, f: Tensor, y: Tensor) -> Tensor:
        return self._temperature(f, y)

    def by_target(self, f: Tensor, y: Tensor, calibration: Tensor) -> Tensor:
        return (f / calibration).log_softmax(1).gather(1, y[:, None])

    def averaged(self, moved: Tensor, calibration: Tensor) -> Tensor:
        return torch.logsumexp((moved / calibration).log_softmax(2), 0) - math.log(len(moved))

    def neutral(self, calibration: Tensor) -> Tensor:
        return torch.ones((), dtype=torch.double)

    def signature(self, f: Tensor) -> Tensor:
        # In order of size too: an unusual input shows in how sure the network is, whatever of.
        log_p = f.log_softmax(1)
        return torch.cat([log_p, log_p.sort(1).values], 1)

    def predictions(self, f: Tensor) -> Tensor:
        return f.softmax(1)

    def chance(self, train: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        # Each class is counted once more than it occurs.
        counts = torch.bincount(train, minlength=self.outputs).double() + 1
        f = (counts / counts.sum()).log()
        return f[held], f.expand(len(held), -1)

    def labels(self, y: Tensor) -> Tensor:
        return y


class LabelsScoring(Scoring):
    """Several labels y (n, K) of 0 and 1 with logits f."""

    def likelihood(self, f: Tensor | None = None, y: Tensor | None = None) -> Likelihood:
        return Bernoulli()

    def calibrated(self, f: Tensor, y: Tensor) -> Tensor:
        return self._temperature(f, y)

    def by_target(self, f: Tensor, y: Tensor, calibration: Tensor) -> Tensor:
        loss = F.binary_cross_entropy_with_logits(f / calibration, y.to(f), reduction="none")
        return -loss

    def averaged(self, moved: Tensor, calibration: Tensor) -> Tensor:
        cooled = moved / calibration
        return torch.logsumexp(F.logsigmoid(cooled), 0) - torch.logsumexp(F.logsigmoid(-cooled), 0)

    def neutral(self, calibration: Tensor) -> Tensor:
        return torch.ones((), dtype=torch.double)

    def signature(self, f: Tensor) -> Tensor:
        return torch.cat([F.logsigmoid(f), F.logsigmoid(f.abs())], 1)

    def predictions(self, f: Tensor) -> Tensor:
        return f.sigmoid()

    def chance(self, train: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        ones = train.double().sum(0) + 1
        f = (ones / (len(train) + 2 - ones)).log().expand(len(held), -1)
        return self.scores(f, held, self.neutral(f)), f


class RealScoring(Scoring):
    """Real targets y (n, K) with means f and Gaussian noise.

    Scores are densities of targets in the unit of the targets `y` that are given first, their
    standard deviation: they do not depend on the units of the data. Without, targets are
    standardised already.
    """

    def __init__(self, outputs: int, y: Tensor | None = None) -> None:
        super().__init__(outputs)
        self.mean = torch.zeros(1, dtype=torch.float64)
        if y is not None:
            self.mean, self.unit = common_scale([y.flatten(1)])

    def likelihood(self, f: Tensor | None = None, y: Tensor | None = None) -> Likelihood:
        if f is None or y is None:
            return Gaussian(self.unit, learned=False)
        return Gaussian(float(self.calibrated(f, y).square().mean().sqrt()), learned=False)

    def calibrated(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).square().mean(0).sqrt().clamp(min=SMALLEST_NOISE * self.unit)

    def by_target(self, f: Tensor, y: Tensor, calibration: Tensor) -> Tensor:
        z = (y - f) / calibration
        noise = (calibration / self.unit).log()
        return -(0.5 * z.square() + noise + 0.5 * math.log(2 * math.pi))

    def averaged(self, moved: Tensor, calibration: Tensor) -> Tensor:
        return moved.mean(0)

    def neutral(self, calibration: Tensor) -> Tensor:
        return calibration

    def signature(self, f: Tensor) -> Tensor:
        f = (f - self.mean.to(f)) / self.unit
        return torch.cat([f, f.square()], 1)

    def predictions(self, f: Tensor) -> Tensor:
        return f

    def chance(self, train: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        f = train.double().mean(0).expand(len(held), -1)
        spread = train.double().std(0, unbiased=False).clamp(min=SMALLEST_NOISE * self.unit)
        return self.scores(f, held.double(), spread), f

    def guess(self, train: Tensor, held: Tensor) -> Tensor:
        # The best constant: one outlier moves the mean of the training targets.
        f = held.double().mean(0).expand(len(held), -1)
        return self.scores(f, held.double(), self.calibrated(f, held))

    measure = "r2"

    def quality(self, f: Tensor, y: Tensor) -> float:
        return r_squared(f, y)


def r_squared(f: Tensor, y: Tensor) -> float:
    """Return the mean of R² over targets.

    Parameters
    ----------
    f, y
        Predictions and targets, (n, K). A target that does not vary counts as 0, or as 1 where it
        is met exactly.
    """
    y = y.double()
    rest, whole = (y - f).square().sum(0), (y - y.mean(0)).square().sum(0)
    constant = whole <= 1e-12 * y.square().sum(0)
    found = torch.where(constant, (rest == 0).double(), 1 - rest / whole.clamp(min=1e-300))
    return float(found.mean())


class Weighted(Likelihood):
    """A likelihood whose data have weights: targets (n, K + 1), the last column the weight.

    For training only: its curvature would need the weights too.
    """

    def __init__(self, scoring: Scoring) -> None:
        super().__init__()
        self.scoring, self.plain = scoring, scoring.likelihood()
        self.has_classes = self.plain.has_classes  # type: ignore[misc]

    @staticmethod
    def pack(y: Tensor, weights: Tensor) -> Tensor:
        """Return targets with their weights."""
        return torch.cat([y.reshape(len(y), -1).float(), weights.float()[:, None]], 1)

    def _unpacked(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = packed[:, :-1], packed[:, -1]
        return (y[:, 0].long() if isinstance(self.scoring, ClassScoring) else y), weights

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        (targets, weights), unit = self._unpacked(y), self.scoring.unit
        return (weights.to(f) * self.scoring.scores(f, targets, f.new_full((), unit))).sum()

    def mean(self, f: Tensor) -> Tensor:
        return self.plain.mean(f)

    def accuracy(self, mean: Tensor, y: Tensor) -> float | None:
        return self.plain.accuracy(mean, self._unpacked(y)[0])

    def check_targets(self, y: Tensor, outputs: object, indices: Tensor) -> None:
        targets, _ = self._unpacked(y)
        self.plain.check_targets(targets, outputs, indices)  # type: ignore[arg-type]


SCORINGS: dict[str, type[Scoring]] = {
    "classes": ClassScoring,
    "regression": RealScoring,
    "multilabel": LabelsScoring,
}
