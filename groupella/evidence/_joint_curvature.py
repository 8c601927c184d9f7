"""The Gauss–Newton matrix of several weights together, H = Σ_n J_nᵀ Λ_n J_n.

With Λ_n = S_n S_nᵀ in orthogonal columns, H is the Gram matrix of the rows (S_n)_rᵀ J_n. Where a
network is certain of an example, most columns of S_n nearly vanish: with 64 classes, half of the
rows make up all but a hundred-thousandth of Σ tr Λ_n.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from groupella.curvature import evaluation

from ._jacobians import jacobian_columns
from ._spectrum import NonFiniteError
from .likelihoods import Likelihood

ROWS = 2**24  # numbers of a Jacobian held at once
AT_ONCE = 256  # data
STRIPS = 4


def joint_curvature(
    network: nn.Module,
    likelihood: Likelihood,
    sizes: Mapping[str, int],
    x: Tensor,
    left_out: float = 0.0,
) -> Tensor:
    """Return H of the parameters in `sizes`, in their order: (weights, weights) float64.

    The smallest columns of all S_n are left out, up to the share `left_out` of Σ tr Λ_n.
    """
    weights = sum(sizes.values())
    h = torch.zeros(weights, weights, dtype=torch.float64)
    if not weights:
        return h
    device = next(p.device for p in network.parameters())
    # Strips of the upper triangle; the lower one mirrors it.
    starts = range(0, weights, -(-weights // STRIPS))
    needed = _ranks(network, likelihood, x, left_out, device)
    # Batch examples that need similar numbers of rows: the first sets the number of passes.
    order = needed.argsort(descending=True, stable=True)
    order = order[: int((needed > 0).sum())]
    while len(order):
        most = int(needed[order[0]])
        chosen = order[: min(AT_ONCE, max(1, ROWS // (most * weights)))]
        order = order[len(chosen) :]
        batch, rank = x[chosen].to(device), needed[chosen].to(device)

        def root(f: Tensor, most: int = most) -> Tensor:
            columns = likelihood.hessian_root(f)
            return _principal(columns)[:, :, :most] if left_out else columns

        _, columns = jacobian_columns(network, batch, sizes, root)
        rows = []
        for number, column in enumerate(columns):
            alive = int((rank > number).sum())  # the first ones: ranks fall
            rows.append(torch.cat([column[n][:alive].reshape(alive, -1) for n in sizes], 1))
        jacobian = torch.cat(rows).cpu().double()
        for start in starts:
            strip = slice(start, start + starts.step)
            h[strip, start:] += jacobian[:, strip].T @ jacobian[:, start:]
    return h.triu() + h.triu(1).T


@torch.no_grad()
def _ranks(
    network: nn.Module, likelihood: Likelihood, x: Tensor, left_out: float, device: torch.device
) -> Tensor:
    """For every datum, the number of columns of S that are not left out."""
    squares: list[Tensor] = []
    with evaluation(network):
        for batch in torch.split(x, AT_ONCE):
            root = likelihood.hessian_root(network(batch.to(device)).flatten(1))
            if not bool(torch.isfinite(root).all()):
                raise NonFiniteError("the outputs of the network, or their curvature, overflow")
            if left_out:  # as many matrices of R × R as can be held at once
                parts = torch.split(root, max(1, ROWS // (8 * root.shape[2] ** 2)))
                squares += [torch.linalg.eigvalsh(_gram(part)).cpu() for part in parts]
    if not left_out:
        return torch.full((len(x),), root.shape[2])
    found = torch.cat(squares).clamp(min=0.0)
    smallest = found.flatten().sort()
    gone = int((smallest.values.cumsum(0) <= left_out * found.sum()).sum())
    of_datum = smallest.indices[:gone] // found.shape[1]
    return found.shape[1] - torch.bincount(of_datum, minlength=len(x))


def _principal(root: Tensor) -> Tensor:
    """Orthogonal columns (N, K, R), the largest first, with the same S Sᵀ."""
    _, axes = torch.linalg.eigh(_gram(root))
    columns: Tensor = root.double() @ axes.flip(2)
    return columns.to(root.dtype)


def _gram(root: Tensor) -> Tensor:
    """Sᵀ S, whose eigenvalues are the squares of the principal columns."""
    s = root.double()
    return s.mT @ s
