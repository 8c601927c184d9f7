"""Likelihoods log p(y | f) of network outputs f (N, K), and roots of their curvature.

Curvature needs Λ = −∂² log p(y | f) / ∂f², which for all likelihoods here does not depend on y, as
a root: `hessian_root(f)` (N, K, R) with Σ_r S_r S_rᵀ = Λ, one backward pass per column r.
`sample(f, m)` gives m random combinations of the columns, S ε with random signs ε; their outer
products have the mean Λ. (Labels sampled from the model, the usual Monte-Carlo Fisher, have the
same mean but a larger variance when the model is confident, and no gradient through the sampling.)
"""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_LOWEST = -1e4


@runtime_checkable
class Likelihood(Protocol):
    """What training and curvature ask of a likelihood."""

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        """Σ_n log p(y_n | f_n), a scalar."""

    def hessian_root(self, f: Tensor) -> Tensor:
        """S (N, K, R) with S Sᵀ = −∂² log p / ∂f²."""

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, K, m): columns whose outer products have the mean S Sᵀ."""


def _outputs(f: Tensor, name: str) -> Tensor:
    if f.ndim < 2:
        raise ValueError(
            f"{name} expects network outputs of shape (batch, outputs), got {tuple(f.shape)}."
        )
    return f.flatten(1)


def random_signs(root: Tensor, m: int, generator: torch.Generator | None) -> Tensor:
    """S ε: m combinations of the columns of root (N, K, R) with independent random signs."""
    n, _, r = root.shape
    bits = torch.randint(0, 2, (n, r, m), generator=generator, device="cpu")
    return root @ (2 * bits - 1).to(root)


def softmax_root(log_p: Tensor) -> Tensor:
    """The K−1 column root of diag(p) − p pᵀ, closed form: log_p (N, K) → (N, K, K−1).

    The Cholesky factor of a multinomial covariance: with tails q_j = Σ_{i>j} p_i,
    L_jj = √(p_j q_j / q_{j−1}) and L_ij = −p_i √(p_j / (q_{j−1} q_j)) for i > j. Classes are sorted
    by ascending probability, so that no tail vanishes before its head, and all is done with
    logarithms, so that confident outputs give neither NaN nor an infinite gradient.
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


class Categorical(nn.Module):
    """Class labels y (N,) with logits f (N, K)."""

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(f, y, reduction="sum")

    def hessian_root(self, f: Tensor) -> Tensor:
        if f.ndim != 2 or f.shape[1] < 2:
            raise ValueError(
                f"Categorical expects logits of shape (batch, classes ≥ 2), got {tuple(f.shape)}."
            )
        return softmax_root(f.log_softmax(1))

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        return random_signs(self.hessian_root(f), m, generator)


class Bernoulli(nn.Module):
    """Independent binary labels y (N, K) in {0, 1} with logits f (N, K)."""

    def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
        return -F.binary_cross_entropy_with_logits(f, y.to(f).reshape(f.shape), reduction="sum")

    def hessian_root(self, f: Tensor) -> Tensor:
        f = _outputs(f, "Bernoulli")
        return torch.diag_embed((0.5 * (F.logsigmoid(f) + F.logsigmoid(-f))).exp())

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        return random_signs(self.hessian_root(f), m, generator)


class Gaussian(nn.Module):
    """Real targets y (N, K) with mean f (N, K) and a learned standard deviation exp(log_noise)."""

    def __init__(self, noise: float = 1.0, *, learned: bool = True) -> None:
        super().__init__()
        if not noise > 0:
            raise ValueError(
                f"The noise is a standard deviation and must be positive, got {noise}."
            )
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise)), requires_grad=learned)

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
        f = _outputs(f, "Gaussian")
        n, k = f.shape
        eye = torch.eye(k, dtype=f.dtype, device=f.device) * (-self.log_noise.to(f)).exp()
        return eye.expand(n, k, k)

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        return random_signs(self.hessian_root(f), m, generator)
