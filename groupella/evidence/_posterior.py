"""Gaussian posteriors of the weights, seen through the linearised network.

f(x) ~ N(f_MAP(x), Σ_f(x)) with Σ_f = J (H + D)⁻¹ Jᵀ, J the Jacobian of the outputs at x, D the
prior precisions, and H the Gauss–Newton curvature of the training data: as Kronecker factors,
independent between parameters, or exactly. With A = SᵀJ D^−½ of the training data (Λ = S Sᵀ) and
a = D^−½ J(x)ᵀ, the exact one is

    Σ_f = aᵀ (1 + AᵀA)⁻¹ a = aᵀa − aᵀAᵀ (1 + AAᵀ)⁻¹ A a,

from a matrix of all weights, or of all data times outputs, whichever is smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from groupella.curvature import KroneckerBlock

from ._evidence import Evidence
from ._jacobians import jacobian_columns, numbers_held, output_covariance
from ._spectrum import NonFiniteError

# Numbers held at once by the Jacobians of a batch, and data in one.
BUDGET = 1 << 25
MOST = 64
MOST_BYTES = 2 * 2**30  # of the Jacobian of all training data


class Posterior(Protocol):
    """What predictions need of a posterior."""

    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs f (N, K) and their covariance (N, K, K), in float64."""


class FactoredPosterior:
    """A posterior with given Kronecker factors.

    Parameters without factors are constants: those of the last layer alone are a posterior of it.

    Parameters
    ----------
    network
        The network at its weights.
    blocks, precisions
        Curvature and prior precision of each parameter.
    scale
        A factor of the curvature.
    """

    def __init__(
        self,
        network: nn.Module,
        blocks: Mapping[str, KroneckerBlock],
        precisions: Mapping[str, float],
        scale: float = 1.0,
    ) -> None:
        self.network, self.blocks = network, blocks
        self.precisions, self.scale = precisions, scale

    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs f (N, K) and their covariance (N, K, K), in float64."""
        held = numbers_held(self.network, x[:1], self.blocks)
        size = min(MOST, max(1, BUDGET // max(held, 1)))
        parts = [
            output_covariance(self.network, part, self.blocks, self.precisions, self.scale)
            for part in torch.split(x, size)
        ]
        return torch.cat([f for f, _ in parts]), torch.cat([c for _, c in parts])


class KroneckerPosterior:
    """The posterior with Kronecker factors, for networks of any size.

    Parameters
    ----------
    evidence
        Network, prior and curvature, which must have been collected.
    """

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def factored(self) -> FactoredPosterior:
        """The posterior as it is now: it no longer changes with the evidence."""
        evidence = self.evidence
        precisions = evidence.prior.precision_of_parameters()
        return FactoredPosterior(
            evidence.network, evidence.blocks, precisions, evidence.noise_scale
        )

    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs f (N, K) and their covariance (N, K, K), in float64."""
        return self.factored.covariance(x)


class ExactPosterior:
    """The posterior with exact Gauss–Newton curvature, for small networks or few data.

    Parameters with neither a prior nor a gradient are constants: an evidence with `ignore=`
    has the posterior of a subnetwork, such as the last layer.

    Parameters
    ----------
    evidence
        Network, likelihood and prior. It need not have observed anything.
    x
        The inputs of the training data.

    Raises
    ------
    ValueError
        If the Jacobian of all data would take more than 2 GiB.
    NonFiniteError
        If outputs or gradients overflow.
    """

    def __init__(self, evidence: Evidence, x: Tensor) -> None:
        self.evidence = evidence
        trained = {n: p.numel() for n, p in evidence.network.named_parameters() if p.requires_grad}
        precisions = evidence.prior.precision_of_parameters()
        self._scales = {n: precisions[n] ** -0.5 for n in trained if n in precisions}
        self._weights = sum(trained[n] for n in self._scales)
        rows = torch.cat([a.flatten(0, 1) for _, a in self._batches(x, fitted=True)])
        self._dual = len(rows) < self._weights
        self._rows = rows if self._dual else None
        matrix = rows @ rows.T if self._dual else rows.T @ rows
        matrix.diagonal().add_(1.0)
        self._root, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed) or not bool(torch.isfinite(self._root).all()):
            raise NonFiniteError(
                "the curvature is not positive or not finite: activations or gradients overflow, "
                "or a precision is too small for them"
            )

    def covariance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs f (N, K) and their covariance (N, K, K), in float64."""
        outputs, covariances = [], []
        for f, a in self._batches(x, fitted=False):
            n, k, _ = a.shape
            inside = a.flatten(0, 1) if self._rows is None else a.flatten(0, 1) @ self._rows.T
            z = torch.linalg.solve_triangular(self._root, inside.T, upper=False)
            z = z.T.reshape(n, k, -1)
            covariances.append(z @ z.mT if self._rows is None else a @ a.mT - z @ z.mT)
            outputs.append(f.double())
        return torch.cat(outputs), torch.cat(covariances)

    def _batches(self, x: Tensor, *, fitted: bool) -> list[tuple[Tensor, Tensor]]:
        """Outputs (N, K) and rows (N, R, weights) of S J D^−½, or of J D^−½, batch by batch."""
        root: Callable[[Tensor], Tensor] = self.evidence.likelihood.hessian_root if fitted else _all
        found: list[tuple[Tensor, Tensor]] = []
        for part in torch.split(x, MOST):
            f, columns = jacobian_columns(self.evidence.network, part, self._scales, root)
            if fitted and not found:
                needed = 8 * len(x) * f.shape[1] * self._weights
                if needed > MOST_BYTES:
                    raise ValueError(
                        f"the Jacobian of {len(x)} data with {f.shape[1]} outputs in "
                        f"{self._weights} weights would take {needed / 2**30:.0f} GiB; use fewer "
                        "data, an evidence that ignores layers, or KroneckerPosterior"
                    )
            rows = [
                torch.cat([s * c[n].flatten(1).double() for n, s in self._scales.items()], 1)
                for c in columns
            ]
            found.append((f, torch.stack(rows, 1)))
        return found


def _all(f: Tensor) -> Tensor:
    """Every output by itself."""
    return torch.eye(f.shape[1], dtype=f.dtype, device=f.device).expand(len(f), -1, -1)
