"""Likelihoods log p(y | f) of network outputs f (N, K), and roots of their curvature.

Curvature needs Λ = −∂² log p(y | f) / ∂f² as a root: S (N, K, R) with Σ_r S_r S_rᵀ = Λ, one
backward pass per column r. Λ must not depend on y, as in every generalised linear model with its
natural link.

A likelihood is one subclass of `Likelihood` with three methods, `log_likelihood`, `hessian_root`
and `mean`; `fit`, `Evidence` and `Predictive` need nothing else. The other methods have defaults.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LOWEST = -1e4


class Likelihood(nn.Module):
    """Base class of all likelihoods.

    Attributes
    ----------
    has_classes
        Whether targets are classes: then `mean` gives their probabilities, and `accuracy` is
        defined.
    log_noise
        log σ where the targets are y = f + σ ε with Gaussian ε, else None. The evidence learns it
        together with the precisions. Other parameters of a likelihood are trained like weights.
    scale
        The size of the targets: σ is not learned below 10⁻⁶ of it.
    """

    has_classes: ClassVar[bool] = False
    log_noise: nn.Parameter | None
    scale: float = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("log_noise", None)

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        """Return Σ_n log p(y_n | f_n), a scalar that is differentiable in f (N, K)."""
        raise NotImplementedError

    def hessian_root(self, f: Tensor) -> Tensor:
        """Return S (N, K, R) with S Sᵀ = −∂² log p / ∂f²."""
        raise NotImplementedError

    def mean(self, f: Tensor) -> Tensor:
        """Return E[y | f] in the shape of f (..., K): for classes, their probabilities."""
        raise NotImplementedError

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        """Return m random columns (N, K, m) whose outer products have the mean S Sᵀ.

        They are S ε with independent random signs ε. (Labels sampled from the model, the usual
        Monte-Carlo Fisher, have the same mean but a larger variance when the model is confident,
        and no gradient through the sampling.)
        """
        root = self.hessian_root(f)
        bits = torch.randint(0, 2, (len(root), root.shape[2], m), generator=generator, device="cpu")
        return root @ (2 * bits - 1).to(root)

    def accuracy(self, mean: Tensor, y: Tensor) -> float | None:
        """Return the share of targets that `mean` predicts right; None without classes."""
        return None

    def check_targets(self, y: Tensor, outputs: Sequence[int], indices: Tensor) -> None:
        """Raise unless the likelihood can take targets y for network outputs of shape `outputs`.

        Parameters
        ----------
        y
            Targets of a batch, one per row.
        outputs
            Shape of the network's outputs for this batch.
        indices
            The number of each example in the data set, for messages.

        Raises
        ------
        ValueError, TypeError
            Say what was expected, what came and in which example.
        """
        check_finite(y, indices, "y")
        if y.numel() != math.prod(outputs):
            raise ValueError(
                f"y has shape {tuple(y.shape)}, the network's outputs {tuple(outputs)}; "
                f"{type(self).__name__} needs one target per output"
            )


class Categorical(Likelihood):
    """Class labels y (N,) with logits f (N, K)."""

    has_classes = True

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(f, y, reduction="sum")

    def hessian_root(self, f: Tensor) -> Tensor:
        if f.ndim != 2 or f.shape[1] < 2:
            raise ValueError(
                f"Categorical expects logits of shape (batch, classes ≥ 2), got {tuple(f.shape)}."
            )
        return softmax_root(f.log_softmax(1))

    def mean(self, f: Tensor) -> Tensor:
        return f.softmax(-1)

    def accuracy(self, mean: Tensor, y: Tensor) -> float:
        return float((mean.argmax(1) == y).double().mean())

    def check_targets(self, y: Tensor, outputs: Sequence[int], indices: Tensor) -> None:
        if y.is_floating_point() or y.dtype == torch.bool:
            raise TypeError(f"class labels must be integers (int64), got {y.dtype}")
        if y.ndim != 1:
            raise ValueError(f"class labels must have shape (n,), got {tuple(y.shape)}")
        classes = outputs[1]
        bad = (y < 0) | (y >= classes)
        if bool(bad.any()):
            raise ValueError(
                f"label {int(y[bad][0])} of example {int(indices[bad.cpu()][0])} is out of range; "
                f"the network has {classes} outputs, so labels are 0 … {classes - 1}"
            )


class Bernoulli(Likelihood):
    """Independent binary labels y (N, K) in {0, 1} with logits f (N, K)."""

    has_classes = True

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(f, y.to(f).reshape(f.shape), reduction="sum")

    def hessian_root(self, f: Tensor) -> Tensor:
        f = flat_outputs(f, "Bernoulli")
        return torch.diag_embed((0.5 * (F.logsigmoid(f) + F.logsigmoid(-f))).exp())

    def mean(self, f: Tensor) -> Tensor:
        return f.sigmoid()

    def accuracy(self, mean: Tensor, y: Tensor) -> float:
        return float(((mean > 0.5) == (y.reshape(mean.shape) > 0.5)).double().mean())

    def check_targets(self, y: Tensor, outputs: Sequence[int], indices: Tensor) -> None:
        super().check_targets(y, outputs, indices)
        bad = ((y < 0) | (y > 1)).reshape(len(y), -1).any(1)
        if bool(bad.any()):
            raise ValueError(f"y of example {int(indices[bad.cpu()][0])} is outside [0, 1]")


class Gaussian(Likelihood):
    """Real targets y (N, K) with mean f (N, K) and standard deviation exp(log_noise).

    Parameters
    ----------
    noise
        Standard deviation at the start. By default 1, or the spread of the targets if `fit` learns
        their units, too.
    learned
        Whether training changes it.
    """

    log_noise: nn.Parameter

    def __init__(self, noise: float | None = None, *, learned: bool = True) -> None:
        super().__init__()
        self._given = noise is not None or not learned
        noise = 1.0 if noise is None else noise
        if not noise > 0:
            raise ValueError(
                f"The noise is a standard deviation and must be positive, got {noise}."
            )
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise)), requires_grad=learned)

    def start_at(self, noise: float) -> None:
        """Set the scale of the targets and, once, unless one was given, the standard deviation."""
        self.scale = noise
        if not self._given:
            self._given = True
            with torch.no_grad():
                self.log_noise.fill_(math.log(noise))

    @property
    def noise(self) -> Tensor:
        """The standard deviation."""
        return self.log_noise.exp()

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        log_noise = self.log_noise.to(f)
        squares = (f - y.to(f).reshape(f.shape)).square().sum()
        constant = math.log(2 * math.pi)
        return -0.5 * (squares * (-2 * log_noise).exp() + f.numel() * (2 * log_noise + constant))

    def hessian_root(self, f: Tensor) -> Tensor:
        n, k = flat_outputs(f, "Gaussian").shape
        eye = torch.eye(k, dtype=f.dtype, device=f.device) * (-self.log_noise.to(f)).exp()
        return eye.expand(n, k, k)

    def mean(self, f: Tensor) -> Tensor:
        return f


def softmax_root(log_p: Tensor) -> Tensor:
    """Return the K−1 column root of diag(p) − p pᵀ in closed form: log_p (N, K) → (N, K, K−1).

    The Cholesky factor of a multinomial covariance: with tails q_j = Σ_{i>j} p_i,
    L_jj = √(p_j q_j / q_{j−1}) and L_ij = −p_i √(p_j / (q_{j−1} q_j)) for i > j. Classes are sorted
    by ascending probability, so that no tail vanishes before its head. Working with logarithms
    keeps confident outputs free of NaN and infinite gradients.
    """
    k = log_p.shape[1]
    lp, order = log_p.clamp(min=_LOWEST).sort(dim=1)
    tails = lp.flip(1).logcumsumexp(1).flip(1)
    head, tail = tails[:, :-1], tails[:, 1:]
    diagonal = 0.5 * (lp[:, :-1] + tail - head)
    below = (lp[:, :, None] + (diagonal - tail)[:, None, :]).clamp(max=0.0)
    row = torch.arange(k, device=lp.device)[:, None]
    column = torch.arange(k - 1, device=lp.device)[None, :]
    root = torch.where(row > column, -below.exp(), below.new_zeros(()))
    root = root + torch.where(row == column, diagonal.exp()[:, None, :], below.new_zeros(()))
    return torch.zeros_like(root).scatter(1, order[:, :, None].expand_as(root), root)


def likelihood_of(kind: str) -> Likelihood:
    """Return the likelihood of targets that are "classes", "regression" or "multilabel"."""
    kinds: dict[str, type[Likelihood]] = {
        "classes": Categorical,
        "regression": Gaussian,
        "multilabel": Bernoulli,
    }
    return kinds[kind]()


def flat_outputs(f: Tensor, name: str) -> Tensor:
    """Return f as (N, K); raise for outputs without a batch axis."""
    if f.ndim < 2:
        raise ValueError(
            f"{name} expects network outputs of shape (batch, outputs), got {tuple(f.shape)}."
        )
    return f.flatten(1)


def check_finite(values: Tensor, indices: Tensor, name: str) -> None:
    """Raise `ValueError` if a row of `values` is not finite, with its number in the data set."""
    if not values.is_floating_point():
        return
    bad = ~torch.isfinite(values).reshape(len(values), -1).all(1)
    if bool(bad.any()):
        where = indices[bad.cpu()]
        raise ValueError(
            f"{name} contains NaN or infinity in {len(where)} example(s), "
            f"first in example {int(where[0])}"
        )
