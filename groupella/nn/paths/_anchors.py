"""Anchor functions: weights over points as sums of a few bumps.

    s(p) = Σ_j u_j φ_j(p),     φ_j(p) = exp(−ω² |p − z_j|²)

with values u, positions z and a lengthscale ω (in units of one site). There are half as many
anchors as points, rounded up; they begin on a checkerboard, the points with an even coordinate sum.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groupella.nn._constant import Exact


class Grid:
    """The points of a window or lattice and the anchors among them; both float64 (n, d)."""

    def __init__(self, shape: Sequence[int]) -> None:
        points = list(itertools.product(*map(range, shape)))
        self.points = Exact(_coordinates(points))
        self.anchors = Exact(_coordinates([p for p in points if sum(p) % 2 == 0]))

    @property
    def count(self) -> int:
        """The number of anchors, M."""
        return self.anchors.shape[0]

    def positions(self, learn: bool) -> nn.Parameter | None:
        """The anchors as a parameter, where they are to be learned."""
        if not learn:
            return None
        return nn.Parameter(torch.from_numpy(self.anchors.array).to(torch.get_default_dtype()))

    def functions(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        """φ, (points, M)."""
        return torch.exp(-omega.square() * self._squared(omega, positions))

    def tangents(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        """∂φ/∂ω, (points, M)."""
        squared = self._squared(omega, positions)
        return -2 * omega * squared * torch.exp(-omega.square() * squared)

    def _squared(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        anchors = self.anchors.like(omega) if positions is None else positions
        return (self.points.like(omega).unsqueeze(1) - anchors).square().sum(2)


def new_omega(omega: float) -> nn.Parameter:
    """A lengthscale parameter."""
    if not np.isfinite(omega) or omega < 0:
        raise ValueError(f"the lengthscale omega must be finite and not negative, got {omega}")
    return nn.Parameter(torch.tensor(float(omega)))


def _coordinates(points: Sequence[tuple[int, ...]]) -> npt.NDArray[np.float64]:
    return np.array(points, dtype=np.float64).reshape(len(points), -1)
