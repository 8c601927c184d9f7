"""The evidence from the side of the data: n·K × n·K matrices instead of one of all weights.

With J the Jacobian of the outputs, Λ = S Sᵀ the curvature of the likelihood in them and δ_g the
precision of prior group g, the determinant lemma turns the Occam factor of all weights into

    log |1 + D^−½ H D^−½| = log |1 + K|,      K = Σ_g K_g / δ_g,      K_g = Sᵀ J_g J_gᵀ S,

which has every correlation between weights, groups and overlapping paths, whatever their number of
weights. For a shared linear map with inputs a and output gradients g at positions s,

    K[(n, r), (m, q)] = Σ_{s, s′} (a_ns · a_ms′) (g_nrs · g_mqs′),

or a product of Jacobians Σ_s g_nrs a_nsᵀ, whichever is cheaper. The slope of the evidence in
log δ_g is ½ (γ_g − δ_g ‖w_g‖²) with γ_g = tr (1 + K)⁻¹ K_g / δ_g.

In blocks of data, log |1 + K| ≤ Σ_b log |1 + K_bb| (Fischer): every block pays its own complexity,
and the evidence is a lower bound (Immer et al. 2023, "Stochastic marginal likelihood gradients
using neural tangent kernels").

The *linearised* evidence (Antorán et al. 2022, "Adapting the linearised Laplace model evidence for
modern deep learning") is that of the model f(w₀) + J (w − w₀) at its own optimum for every δ, as
trained weights are not at the optimum of each. There w_g = J_gᵀ α/δ_g with α = ∂ log p/∂f, so it is
found by Newton's method on α, as in Gaussian-process classification (Rasmussen & Williams 2006,
algorithm 3.1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge

from groupella.curvature import check_used, evaluation, listening

from ._evidence import Evidence
from ._fit_of_data import data_fit
from ._jacobians import Listener, Use, loose_jacobians
from ._prior import PriorGroup
from ._spectrum import NonFiniteError
from .likelihoods import Likelihood

MOST_BYTES = 4 * 2**30
AT_ONCE = 256  # data in a forward pass
SETTLED = 1e-2  # nats
NEWTON_STEPS = 50
NEWTON_SETTLED = 1e-9  # nats a step gains


@dataclass(frozen=True)
class KernelEvidence:
    """log p(D) in nats, taken apart.

    Attributes
    ----------
    log_likelihood, penalty, log_volume : float
        log p(D | w), ½ Σ δ‖w‖² and −½ log |1 + K|; the first two at the optimum of the linear model
        if `linearised`.
    precisions, effective_parameters, gradient : mapping
        For each prior group that is not constant: δ, γ, and the slope of the evidence in log δ.
    is_bound : bool
        Whether the data were taken in several blocks, so that the evidence is a lower bound.
    converged : bool
        Whether at most 0.01 nats are left to gain in the precisions.
    """

    log_likelihood: float
    penalty: float
    log_volume: float
    precisions: Mapping[str, float]
    effective_parameters: Mapping[str, float]
    gradient: Mapping[str, float]
    is_bound: bool
    converged: bool

    @property
    def log_evidence(self) -> float:
        return self.log_likelihood - self.penalty + self.log_volume


def kernel_evidence(
    evidence: Evidence,
    data: tuple[Tensor, Tensor],
    subset: int | None = None,
    block: int | None = None,
    *,
    linearised: bool = False,
    steps: int = 0,
    seed: int = 0,
) -> KernelEvidence:
    """Return the evidence with exact Gauss–Newton curvature, for any number of weights.

    Nothing is changed, the precisions of the prior included. Parameters that do not require a
    gradient are constants, without prior and curvature. Memory is 8·G·n·b·R² bytes for G groups,
    blocks of b data and R columns of the Hessian's root (K − 1 for K classes).

    Parameters
    ----------
    evidence : Evidence
        Network, likelihood and prior. It need not have observed anything.
    data : (x, y)
        Tensors. The fit is taken on all of them.
    subset : int, optional
        Take curvature on this many random data, which stand for all. By default, on all.
    block : int, optional
        Number of data in a block. By default one block: the exact value.
    linearised : bool
        Take fit and weights at the optimum of the linearised model. Needs all data in one block.
    steps : int
        Maximum number of MacKay updates of the precisions; 0 keeps the current ones.
    seed : int
        Random seed of the subset and of the blocks.

    Raises
    ------
    ValueError
        If the matrices would take more than 4 GiB, the outputs do not depend on a parameter, or
        `linearised` is asked for with a subset or blocks.
    NonFiniteError
        If outputs or curvature overflow.
    """
    for name, value in (("subset", subset), ("block", block)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, or None for all data; got {value}")
    x, y = data
    n = len(x) if subset is None else min(subset, len(x))
    size = n if block is None else min(block, n)
    if linearised and (n, size) != (len(x), len(x)):
        raise ValueError("the linearised evidence needs all data in one block")
    groups = _Groups.of(evidence)
    order = torch.arange(n)
    if n < len(x) or size < n:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:n]
    network, likelihood = evidence.network, evidence.likelihood
    device = next((p.device for p in network.parameters()), x.device)
    root = _identity if linearised else likelihood.hessian_root
    blocks = [
        _kernels(network, root, groups, x[chosen].to(device)) for chosen in torch.split(order, size)
    ]
    # One block of a subset stands for all data; a sum over blocks is a sum over parts of them.
    several = len(blocks) > 1
    inside, outside = (1.0, len(x) / n) if several else (len(x) / n, 1.0)

    def volume(precisions: Tensor) -> tuple[float, Tensor]:
        found = [_volume(k, precisions / inside) for k in blocks]
        total = outside * sum(v for v, _ in found)
        return total, outside * torch.stack([g for _, g in found]).sum(0)

    prior = evidence.prior
    start = prior.log_precision.detach().cpu()[groups.places]
    if linearised:
        linear = _Linear(network, likelihood, groups, blocks[0], (x, y))
        at = linear.at
    else:
        pairs = zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
        moved = [(a.to(device), b.to(device)) for a, b in pairs]
        fit = data_fit(network, likelihood, moved).log_likelihood(likelihood)

        def at(log_precision: Tensor) -> _Point:
            value, gammas = volume(log_precision.exp())
            return _Point(log_precision, fit, groups.norms, value, gammas)

    point, left = _best(at, start, prior.learned.cpu()[groups.places], prior.bounds, steps)
    names = [g.name for g in groups.live]
    deltas = point.log_precision.exp()
    return KernelEvidence(
        log_likelihood=point.fit,
        penalty=0.5 * float((deltas * point.norms).sum()),
        log_volume=point.volume,
        precisions=dict(zip(names, deltas.tolist(), strict=True)),
        effective_parameters=dict(zip(names, point.gammas.tolist(), strict=True)),
        gradient=dict(zip(names, point.slope.tolist(), strict=True)),
        is_bound=several,
        converged=left < SETTLED,
    )


@dataclass(frozen=True)
class _Groups:
    """Prior groups that are not constant, their places in the prior, ‖w_g‖², and the group of
    every trained parameter."""

    live: list[PriorGroup]
    places: list[int]
    norms: Tensor
    owner: dict[str, int]

    @classmethod
    def of(cls, evidence: Evidence) -> _Groups:
        trained = {n: p for n, p in evidence.network.named_parameters() if p.requires_grad}
        live = [g for g in evidence.prior if any(n in trained for n in g.parameters)]
        places = [evidence.prior.index(g.name) for g in live]
        owner = {n: i for i, g in enumerate(live) for n in g.parameters if n in trained}
        norms = torch.zeros(len(live), dtype=torch.float64)
        for name, i in owner.items():
            norms[i] += float(trained[name].detach().double().square().sum())
        return cls(live, places, norms, owner)


@dataclass(frozen=True)
class _Point:
    """Fit, ‖w_g‖², −½ log |1 + K| and γ_g at log-precisions."""

    log_precision: Tensor
    fit: float
    norms: Tensor
    volume: float
    gammas: Tensor

    @property
    def slope(self) -> Tensor:
        """∂ log p(D) / ∂ log δ."""
        return 0.5 * (self.gammas - self.log_precision.exp() * self.norms)


def _best(
    at: Callable[[Tensor], _Point],
    log_precision: Tensor,
    learned: Tensor,
    bounds: tuple[float, float],
    steps: int,
) -> tuple[_Point, float]:
    """MacKay's δ ← γ/‖w‖², after the first step half-way in log δ, and what is left to gain."""
    low, high = map(math.log, bounds)
    for step in range(steps + 1):
        point = at(log_precision)
        target = (point.gammas.clamp(min=1e-300) / point.norms.clamp(min=1e-300)).log()
        moving = learned & (point.gammas > 1e-12)
        away = torch.where(moving, target.clamp(low, high) - log_precision, 0.0)
        left = float((point.slope * away).abs().sum())
        if left < SETTLED or step == steps:
            break
        log_precision = log_precision + (1.0 if step == 0 else 0.5) * away
    return point, left


def _identity(f: Tensor) -> Tensor:
    return torch.eye(f.shape[1], dtype=f.dtype, device=f.device).expand(len(f), -1, -1)


def _kernels(
    network: nn.Module, root: Callable[[Tensor], Tensor], groups: _Groups, x: Tensor
) -> Tensor:
    """K_g of one block of data: (groups, n·R, n·R) float64."""
    f, columns, uses, loose = _gradients(network, root, x, groups.owner)
    rows = len(f) * len(columns)
    needed = 8 * len(groups.live) * rows**2
    if needed > MOST_BYTES:
        raise ValueError(
            f"the kernel matrices of {len(f)} data with {len(columns)} columns each would take "
            f"{needed / 2**30:.0f} GiB for {len(groups.live)} groups; choose a smaller `block`"
        )
    found = torch.zeros(len(groups.live), rows, rows, dtype=torch.float64)
    for name, places in uses.items():
        kernel = _kernel(places, [[column[i] for i, _ in places] for column in columns])
        found[groups.owner[name]] += kernel.cpu()
    for name, gradients in loose.items():
        j = gradients.double().reshape(rows, -1)
        found[groups.owner[name]] += (j @ j.T).cpu()
    return found


_Places = list[tuple[int, Use]]


def _gradients(
    network: nn.Module, root: Callable[[Tensor], Tensor], x: Tensor, owner: Mapping[str, int]
) -> tuple[Tensor, list[list[Tensor]], dict[str, _Places], dict[str, Tensor]]:
    """Outputs; for every column of the root, the gradient at every use of a map; uses by weight;
    and the gradients (n, R, …) of parameters that have no map."""
    listener = Listener(network, owner)
    hearing = listening(network, cast(Any, listener), False)
    with torch.enable_grad(), evaluation(network), hearing:
        f = network(x).flatten(1)
    uses: dict[str, _Places] = {}
    for i, use in enumerate(listener.uses):
        uses.setdefault(use.name, []).append((i, use))
    edges: Sequence[GradientEdge] = [use.edge for use in listener.uses]
    columns = root(f.detach()).detach()
    if not bool(torch.isfinite(columns).all()):
        raise NonFiniteError("the outputs of the network, or their curvature, overflow")
    unheard, loose = listener.unheard(), {}
    if unheard:
        with evaluation(network):
            check_used(network, unheard, x)
            loose = loose_jacobians(network, unheard, x, columns)
    found = []
    for column in columns.unbind(2):
        gradients: tuple[Tensor, ...] = ()
        if edges:
            gradients = torch.autograd.grad(
                f, edges, grad_outputs=column, retain_graph=True, allow_unused=True
            )
        found.append(
            [
                torch.zeros(use.shape, dtype=f.dtype, device=f.device) if g is None else g
                for use, g in zip(listener.uses, gradients, strict=True)
            ]
        )
    return f.detach(), found, uses, loose


def _kernel(places: _Places, columns: list[list[Tensor]]) -> Tensor:
    """J Jᵀ of one weight: (n·R, n·R) with the columns of a datum together.

    A weight that is used several times has the positions of all its uses.
    """
    inputs, outputs = [], []
    for k, (_, use) in enumerate(places):
        g = torch.cat([use.shared_map.outputs(column[k])[:, None] for column in columns], 1)
        g, a = g.double().flatten(0, 1), use.inputs.detach().double()
        blocks = max(g.shape[1], a.shape[1])
        inputs.append(a.expand(-1, blocks, -1, -1))
        outputs.append(g.expand(-1, blocks, -1, -1))
    a, g = torch.cat(inputs, 2), torch.cat(outputs, 2)
    n, blocks, positions, d_in = a.shape
    rows, d_out = len(g), g.shape[-1]
    r = rows // n
    # Numbers of multiplications a block.
    grams = n * positions**2 * (n * d_in + n * r * r * d_out)
    jacobians = rows * d_in * d_out * (rows + positions)
    if jacobians <= grams:
        wide = a[:, None].expand(-1, r, -1, -1, -1).reshape(rows, blocks, positions, d_in)
        j = torch.einsum("nbso,nbsi->nboi", g, wide).flatten(1)
        return j @ j.T
    total = torch.zeros(rows, rows, dtype=torch.float64, device=g.device)
    # A position at a time (there are few where this is cheaper): the Gram matrices of all pairs of
    # positions would be positions² as large as the result.
    for b, s in itertools.product(range(blocks), range(positions)):
        gram_a = a[:, b, s] @ a[:, b].flatten(0, 1).T
        gram_g = g[:, b, s] @ g[:, b].flatten(0, 1).T
        product = gram_a.view(n, 1, n, 1, positions) * gram_g.view(n, r, n, r, positions)
        total += product.sum(-1).view(rows, rows)
    return total


def _volume(kernels: Tensor, precisions: Tensor) -> tuple[float, Tensor]:
    """−½ log |1 + Σ K_g/δ_g|, and γ of every group."""
    matrix = torch.einsum("gij,g->ij", kernels, 1 / precisions)
    matrix.diagonal().add_(1.0)
    lower = _cholesky(matrix)
    inverse = torch.cholesky_inverse(lower)
    gammas = torch.einsum("gij,ij->g", kernels, inverse) / precisions
    return -float(lower.diagonal().log().sum()), gammas


def _cholesky(matrix: Tensor) -> Tensor:
    lower: Tensor
    lower, failed = torch.linalg.cholesky_ex(matrix)
    if int(failed) or not bool(torch.isfinite(lower).all()):
        raise NonFiniteError(
            "the kernel matrix is not positive or not finite: activations or gradients overflow, "
            "or a precision is too small for them"
        )
    return lower


class _Linear:
    """The evidence of the linearised model at its own optimum."""

    def __init__(
        self,
        network: nn.Module,
        likelihood: Likelihood,
        groups: _Groups,
        kernels: Tensor,
        data: tuple[Tensor, Tensor],
    ) -> None:
        self.likelihood, self.kernels, self.groups = likelihood, kernels, groups
        device = next((p.device for p in network.parameters()), data[0].device)
        weights = [p for n, p in network.named_parameters() if n in groups.owner]
        with torch.enable_grad(), evaluation(network):
            f = network(data[0].to(device)).flatten(1)
            # J w₀ as the derivative of w₀ · Jᵀu in u.
            u = torch.zeros_like(f, requires_grad=True)
            back = torch.autograd.grad(f, weights, u, create_graph=True)
            total = torch.stack(
                [(b * w.detach()).sum() for b, w in zip(back, weights, strict=True)]
            ).sum()
            (along,) = torch.autograd.grad(total, u)
        self.offset = (f - along).detach().cpu().double()
        self.y = data[1].cpu()
        self.alpha = torch.zeros_like(self.offset)

    def _likelihood(self, f: Tensor) -> tuple[float, Tensor, Tensor]:
        """log p, its gradient in f (n, K) and the root S (n, K, R)."""
        with torch.enable_grad():
            f = f.detach().requires_grad_(True)
            value = self.likelihood.log_likelihood(f, self.y)
            (slope,) = torch.autograd.grad(value, f)
        with torch.no_grad():
            root = self.likelihood.hessian_root(f.detach()).double()
        return float(value.detach()), slope, root

    def at(self, log_precision: Tensor) -> _Point:
        """Newton's method on α, with halved steps where the objective would fall."""
        precisions = log_precision.exp()
        kernel = torch.einsum("gij,g->ij", self.kernels, 1 / precisions)
        shape = self.offset.shape

        def measured(alpha: Tensor) -> tuple[float, Tensor, Tensor, float]:
            moved = kernel @ alpha.flatten()
            value, slope, root = self._likelihood(self.offset + moved.view(shape))
            return value - 0.5 * float(alpha.flatten() @ moved), slope, root, value

        objective, slope, root, fit = measured(self.alpha)
        for _ in range(NEWTON_STEPS):
            half = _rooted(kernel, root)
            inner = _sandwich(half, root)
            inner.diagonal().add_(1.0)
            lower = _cholesky(inner)
            # α′ = b − S (1 + SᵀKS)⁻¹ SᵀK b with b = Λ (f − offset) + ∂ log p/∂f.
            moved = (kernel @ self.alpha.flatten()).view(shape)
            b = torch.einsum("nkr,nlr,nl->nk", root, root, moved) + slope
            solved = torch.cholesky_solve((half.T @ b.flatten())[:, None], lower)
            target = b - torch.einsum("nkr,nr->nk", root, solved.view(len(root), -1))
            step, found = 1.0, None
            while step > 1e-4:
                trial = self.alpha + step * (target - self.alpha)
                found = measured(trial)
                if found[0] >= objective:
                    break
                step *= 0.5
            if found is None or found[0] < objective + NEWTON_SETTLED:
                break
            self.alpha = trial
            objective, slope, root, fit = found
        rooted = torch.stack([_sandwich(_rooted(k, root), root) for k in self.kernels])
        volume, gammas = _volume(rooted, precisions)
        flat = self.alpha.flatten()
        norms = torch.einsum("i,gij,j->g", flat, self.kernels, flat) / precisions.square()
        return _Point(log_precision, fit, norms, volume, gammas)


def _rooted(kernel: Tensor, root: Tensor) -> Tensor:
    """K S: (n·K, n·R) for S (n, K, R) of every datum."""
    n, k, r = root.shape
    return torch.einsum("imk,mkr->imr", kernel.view(n * k, n, k), root).reshape(n * k, n * r)


def _sandwich(half: Tensor, root: Tensor) -> Tensor:
    """Sᵀ (K S): (n·R, n·R)."""
    n, k, r = root.shape
    return torch.einsum("nkr,nkj->nrj", root, half.view(n, k, n * r)).reshape(n * r, n * r)
