"""What curvature needs to know of a likelihood: a root of its own curvature.

Λ = −∂² log p(y | f) / ∂f² as S with S Sᵀ = Λ, one backward pass per column of S. The likelihoods
themselves are `groupella.evidence.likelihoods`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class HasCurvature(Protocol):
    """A likelihood whose curvature in the outputs f (N, K) does not depend on the targets."""

    def hessian_root(self, f: Tensor) -> Tensor:
        """S (N, K, R) with S Sᵀ = −∂² log p / ∂f²."""

    def sample(self, f: Tensor, m: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, K, m): columns whose outer products have the mean S Sᵀ."""
