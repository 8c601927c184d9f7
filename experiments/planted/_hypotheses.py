"""The evidence of y = W x + noise under the hypothesis that W lies in a member's subspace.

With orthonormal maps B_i of every increment i inside the member, W = Σ_i B_iᵀ u_i + V, where
u_i ~ N(0, s v_i) and, for the trivial member alone, V is any matrix with entries N(0, s v₀); s is
the noise variance. With G = XᵀX, C = YᵀX, R = (1 + v₀ G)⁻¹, A = B (1 ⊗ G R) Bᵀ, b = B vec(C R) and
N observed numbers in D outputs, integrating over u, V and maximising over s leave

    E = −N/2 log(2πe Q/N) − ½ log|1 + v₀ G|^D − ½ log|1 + V^½ A V^½|,
    Q = ‖Y‖² − v₀ tr(C R Cᵀ) − bᵀ (V⁻¹ + A)⁻¹ b,

which is exact, and does not change when x and y are measured in other units.

A weaker hypothesis with v_i → 0 is a stricter one, so at the best v none could ever be preferred
to what it contains. Therefore ratios have a prior: "W obeys p4 but not p4m" means that what p4m
lacks is there, and of a size like the rest. With r_i = √(v_i/v) the amplitude of an increment
relative to a common one, p(log r_i) ∝ cosh(log r_i)⁻⁴: nearly flat around 1, with a mass of order
r⁴ below a small r. Priors that vanish at the stricter hypothesis let evidence for it grow fast
(Johnson & Rossell 2010), and a true increment of 3 % still costs no more than 14 nats. v and all
v_i are at their most probable values.

Except the trivial one, members contain all translations, so A needs G R only in the mean over
translations, and one output site instead of all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.linalg as la
import scipy.sparse as sp
from scipy.optimize import minimize

FloatArray = npt.NDArray[np.float64]

POWER = 4.0
RANGE = (-25.0, 25.0)
SIGNALS = (0.9, 0.3)


@dataclass(frozen=True)
class Moments:
    """What the evidence needs of data x, y (n, D) on a torus: GᵀG = XᵀX by its eigenvectors."""

    values: FloatArray
    vectors: FloatArray
    cross: FloatArray
    power: float
    n: int
    lattice: tuple[int, ...]

    @classmethod
    def of(cls, x: FloatArray, y: FloatArray, lattice: tuple[int, ...]) -> Moments:
        """Of data scaled to a mean square of 1; all zero is left as it is."""
        x, y = (a / (math.sqrt(float(np.mean(a**2))) or 1.0) for a in (x, y))
        values, vectors = np.linalg.eigh(x.T @ x)
        cross = y.T @ x @ vectors
        return cls(values.clip(min=0.0), vectors, cross, float((y**2).sum()), len(x), lattice)

    @property
    def size(self) -> int:
        return len(self.values)

    def translated(self, weights: FloatArray) -> FloatArray:
        """Σ_j w_j q_j q_jᵀ, summed over all translations of the torus."""
        matrix = (self.vectors * weights) @ self.vectors.T
        fibre = self.size // math.prod(self.lattice)
        whole = matrix.reshape(fibre, *self.lattice, fibre, *self.lattice)
        d = len(self.lattice)
        axes = (*range(1, d + 1), *range(d + 2, 2 * d + 2))
        shifts = itertools.product(*(range(m) for m in self.lattice))
        total = sum(np.roll(whole, (*shift, *shift), axes) for shift in shifts)
        return np.asarray(total).reshape(self.size, self.size)


class Hypothesis:
    """Increments that may be there; `free` adds a matrix without a symmetry."""

    def __init__(
        self, moments: Moments, increments: Sequence[sp.csr_array], free: bool = False
    ) -> None:
        self.moments = moments
        self.free = free
        self.rows = sp.csr_array(sp.vstack(increments))
        self.sizes = [m.shape[0] for m in increments]
        d, sites = moments.size, math.prod(moments.lattice)
        columns = (np.arange(0, d, sites)[:, None] * d + np.arange(d)).reshape(-1)
        self.first = sp.csr_array(self.rows[:, columns])  # at the first output site
        self.fixed = None if free else self._projected(moments.values)

    def _projected(self, weights: FloatArray) -> FloatArray:
        """B (1 ⊗ Σ_j w_j q_j q_jᵀ) Bᵀ."""
        d = self.moments.size
        right = self.first.reshape((-1, d)) @ self.moments.translated(weights)
        found: FloatArray = self.first @ right.reshape(self.first.shape).T
        return found

    def _targets(self, weights: FloatArray) -> FloatArray:
        """B vec(C Σ_j w_j q_j q_jᵀ)."""
        found: FloatArray = self.rows @ (
            (self.moments.cross * weights) @ self.moments.vectors.T
        ).reshape(-1)
        return found

    def log_evidence(self) -> float:
        """E at the most probable variances, with the prior of their ratios."""
        m = self.moments
        count = len(self.sizes) + self.free
        whole = m.size**2 if self.free else sum(self.sizes)
        best = -math.inf
        for signal in SIGNALS:
            start = math.log(m.size / whole * signal / (1 - signal))
            found = minimize(
                self._loss,
                np.full(count + 1, start),
                jac=True,
                method="L-BFGS-B",
                bounds=[RANGE] * (count + 1),
                options={"ftol": 1e-10, "gtol": 1e-4, "maxiter": 200},
            )
            best = max(best, -float(found.fun))
        return best

    def _loss(self, parameters: FloatArray) -> tuple[float, FloatArray]:
        """−E and its gradient in (log v_i, [log v₀,] log v)."""
        logs, common = parameters[:-1], parameters[-1]
        value, gradient = self.value(logs)
        half = 0.5 * (logs - common)
        value -= POWER * float(np.log(np.cosh(half)).sum())
        slopes = 0.5 * POWER * np.tanh(half)
        return -value, np.append(slopes - gradient, -slopes.sum())

    def value(self, logs: FloatArray) -> tuple[float, FloatArray]:
        """E at given log-variances, without the prior of their ratios, and its gradient."""
        m = self.moments
        g, outputs = m.values, m.n * m.size
        v0 = math.exp(logs[-1]) if self.free else 0.0
        shrink = 1 / (1 + v0 * g)
        a = self._projected(g * shrink) if self.fixed is None else self.fixed
        b = self._targets(shrink)
        scale = np.repeat(np.exp(0.5 * logs[: len(self.sizes)]), self.sizes)
        inner = scale[:, None] * a * scale
        inner[np.diag_indices_from(inner)] += 1.0
        root = la.cholesky(inner, lower=True, check_finite=False)
        # The posterior covariance of u in units of s.
        inverse = la.lapack.dpotri(root, lower=1)[0]
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        covariance = scale[:, None] * inverse * scale
        u = covariance @ b
        powers = (m.cross**2).sum(0)
        squares = m.power - float(powers @ (v0 * shrink)) - float(b @ u)
        squares = max(squares, 1e-14 * m.power)
        volume = m.size * float(np.log1p(v0 * g).sum()) + 2 * float(np.log(root.diagonal()).sum())
        value = -0.5 * (outputs * (math.log(2 * math.pi * squares / outputs) + 1) + volume)
        parts = np.split(np.arange(len(u)), np.cumsum(self.sizes)[:-1])
        by_volume = [len(p) - float(inverse.diagonal()[p].sum()) for p in parts]
        by_squares = [-float((u[p] ** 2 / scale[p] ** 2).sum()) for p in parts]
        if self.free:
            da = self._projected(-v0 * (g * shrink) ** 2)
            db = self._targets(-v0 * g * shrink**2)
            by_volume.append(
                m.size * float((v0 * g * shrink).sum()) + float((covariance * da).sum())
            )
            by_squares.append(
                -float(powers @ (v0 * shrink**2)) - 2 * float(u @ db) + float(u @ da @ u)
            )
        gradient = -0.5 * (outputs * np.array(by_squares) / squares + np.array(by_volume))
        return value, gradient
