"""The evidence with the exact Gauss–Newton curvature, where a network is small enough for it.

    log p(D) ≈ log p(D | w) − ½ Σ_g δ_g ‖w_g‖² − ½ log |1 + D^−½ H D^−½|,   H = Σ_n J_nᵀ Λ_n J_n,

D = diag δ, with every correlation between weights and between groups. Kronecker factors have the
trace of H and a flatter spectrum, so they overstate the Occam factor, by hundreds of nats where the
network has hundreds of effective parameters: more than what many a path is worth. Two networks
that differ by a few nats are told apart by this evidence only.

The effective parameters of a group are γ_g = P_g − tr_g (1 + D^−½ H D^−½)⁻¹, and MacKay's fixed
point δ_g = γ_g/‖w_g‖² holds as it does for factors. Groups with very many weights (the free path of
a wide layer) stay with their Kronecker blocks, independent of the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from groupella.likelihoods import Likelihood

from ._evidence import Evidence
from ._fit_of_data import data_fit, evaluation
from ._jacobians import jacobian_columns
from ._prior import PriorGroup
from ._spectrum import NonFiniteError

ROWS = 2**24  # numbers of a Jacobian held at once
AT_ONCE = 256  # data
STRIPS = 4
LARGEST_GROUP = 2048
MOST_JOINT_WEIGHTS = 20_000  # four matrices of 3.2 GB
SETTLED = 1e-2  # nats


@dataclass(frozen=True)
class ExactEvidence:
    """log p(D) in nats, taken apart, at the best precisions for the present weights and noise.

    factored: the groups that stayed with their Kronecker blocks.
    converged: whether no more than 0.01 nats were left to gain in the precisions.
    """

    log_likelihood: float
    penalty: float
    log_volume: float
    precisions: Mapping[str, float]
    effective_parameters: Mapping[str, float]
    factored: tuple[str, ...]
    converged: bool

    @property
    def log_evidence(self) -> float:
        return self.log_likelihood - self.penalty + self.log_volume


def exact_evidence(
    evidence: Evidence,
    data: tuple[Tensor, Tensor],
    *,
    subset: int | None = None,
    largest: int = LARGEST_GROUP,
    smallest: float = 1e-5,
    steps: int = 20,
    seed: int = 0,
) -> ExactEvidence:
    """The evidence of a network as it is; nothing is changed, the precisions of the prior included.

    Parameters that do not require a gradient are constants, without prior and curvature.

    data: a pair (x, y) of tensors; the fit is taken on all of them, the curvature on a random
        `subset` that stands for all (None: all).
    largest: groups of more weights than this stay with their Kronecker blocks, which the evidence
        must have observed.
    smallest: eigenvalues of a datum's Λ up to this share of the largest of all data are left out.
        Of 64 classes, whose probabilities are mostly small, 28 directions are left by default at
        0.03 nats of 500; 0 keeps them all.
    steps: at most so many of MacKay's, from the prior's precisions; 0 keeps those.
    """
    if subset is not None and subset < 1:
        raise ValueError(f"subset must be at least 1, or None for all data; got {subset}")
    if not 0.0 <= smallest < 1.0:
        raise ValueError(f"smallest must be at least 0 and below 1; got {smallest}")
    network, likelihood, prior = evidence.network, evidence.likelihood, evidence.prior
    live = _live(evidence)
    joint = [g for g in live if g.size <= largest]
    factored = [g for g in live if g.size > largest]
    if factored and not evidence.is_observed:
        raise RuntimeError(
            f"{factored[0].name} has {factored[0].size} weights, more than largest={largest}, and "
            "its factored curvature is not known: call evidence.collect(data) first"
        )
    trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
    sizes = {n: trained[n].numel() for g in joint for n in g.parameters if n in trained}
    weights = sum(sizes.values())
    if weights > MOST_JOINT_WEIGHTS:
        raise ValueError(
            f"the exact curvature of {weights} weights together would take "
            f"{4 * 8 * weights**2 / 1e9:.0f} GB; choose `largest` so that at most "
            f"{MOST_JOINT_WEIGHTS} are left"
        )
    x, y = data
    used = x
    if subset is not None and subset < len(x):
        generator = torch.Generator().manual_seed(seed)
        used = x[torch.randperm(len(x), generator=generator)[:subset]]
    h = len(x) / len(used) * _joint_curvature(network, likelihood, sizes, used, smallest)
    device = next((p.device for p in network.parameters()), x.device)
    pairs = zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
    moved = [(a.to(device), b.to(device)) for a, b in pairs]
    fitted = data_fit(network, likelihood, moved).log_likelihood(likelihood)

    names = [g.name for g in live]
    places = [prior.index(n) for n in names]
    norms = [
        sum(
            float(trained[n].detach().double().square().sum()) for n in g.parameters if n in trained
        )
        for g in live
    ]
    owners = {n: live.index(g) for g in joint for n in g.parameters}
    owner = [owners[n] for n, size in sizes.items() for _ in range(size)]
    problem = _Precisions(
        h=h,
        owner=torch.tensor(owner, dtype=torch.long),
        spectrum={
            live.index(g): evidence.spectrum.eigenvalues[prior.index(g.name)].cpu()
            for g in factored
        },
        norms=torch.tensor(norms, dtype=torch.float64),
        learned=prior.learned.cpu()[places],
        bounds=prior.bounds,
    )
    found = problem.best(prior.log_precision.detach().cpu()[places], steps)
    return ExactEvidence(
        log_likelihood=fitted,
        penalty=0.5 * float((found.log_precision.exp() * problem.norms).sum()),
        log_volume=found.volume,
        precisions=dict(zip(names, found.log_precision.exp().tolist(), strict=True)),
        effective_parameters=dict(zip(names, found.gammas.tolist(), strict=True)),
        factored=tuple(g.name for g in factored),
        converged=found.left < SETTLED,
    )


def joint_size(evidence: Evidence, largest: int = LARGEST_GROUP) -> int:
    """How many weights `exact_evidence` would take together; `MOST_JOINT_WEIGHTS` is its limit."""
    return sum(g.size for g in _live(evidence) if g.size <= largest)


def _live(evidence: Evidence) -> list[PriorGroup]:
    """Groups that are not constant, and their sizes without what is."""
    constants = evidence.constants
    numel = {n: p.numel() for n, p in evidence.network.named_parameters()}
    found = []
    for group in evidence.prior:
        size = sum(numel[n] for n in group.parameters if n not in constants)
        if size:
            found.append(replace(group, size=size))
    return found


@dataclass(frozen=True)
class _Point:
    """Volume and γ at log-precisions, and what may be left to gain in them, in nats."""

    log_precision: Tensor
    volume: float
    gammas: Tensor
    left: float


@dataclass(frozen=True)
class _Precisions:
    """The evidence as a function of the precisions.

    owner: which group each row of `h` belongs to; spectrum: eigenvalues of the other groups.
    """

    h: Tensor
    owner: Tensor
    spectrum: Mapping[int, Tensor]
    norms: Tensor
    learned: Tensor
    bounds: tuple[float, float]

    def best(self, log_precision: Tensor, steps: int) -> _Point:
        """MacKay's steps, after the first half-way (in log δ) lest they alternate."""
        low, high = map(math.log, self.bounds)
        for step in range(steps + 1):
            volume, gammas = self.at(log_precision)
            target = (gammas.clamp(min=1e-300) / self.norms.clamp(min=1e-300)).log()
            moving = self.learned & (gammas > 1e-12)
            target = torch.where(moving, target.clamp(low, high), log_precision)
            away = target - log_precision
            # The evidence is concave in log δ with slope ½ (γ − δ‖w‖²), and best before `target`.
            slope = 0.5 * (gammas - log_precision.exp() * self.norms)
            left = float((slope * away).abs().sum())
            if left < SETTLED or step == steps:
                break
            log_precision = target if step == 0 else log_precision + 0.5 * away
        return _Point(log_precision, volume, gammas, left)

    def at(self, log_precision: Tensor) -> tuple[float, Tensor]:
        """−½ log |1 + D^−½ H D^−½|, and γ of every group."""
        scale = (-0.5 * log_precision[self.owner]).exp()
        matrix = scale[:, None] * self.h * scale
        matrix.diagonal().add_(1.0)
        root, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed) or not bool(torch.isfinite(root).all()):
            raise NonFiniteError(
                "the exact curvature is not positive or not finite: activations or gradients "
                "overflow, or a precision is too small for them"
            )
        volume = -float(root.diagonal().log().sum())
        shares = 1.0 - torch.cholesky_inverse(root).diagonal()
        gammas = torch.zeros_like(log_precision).index_add_(0, self.owner, shares)
        for i, values in self.spectrum.items():
            delta = log_precision[i].exp()
            volume -= 0.5 * float(torch.log1p(values / delta).sum())
            gammas[i] = (values / (values + delta)).sum()
        return volume, gammas


def _joint_curvature(
    network: nn.Module,
    likelihood: Likelihood,
    sizes: Mapping[str, int],
    x: Tensor,
    smallest: float = 0.0,
) -> Tensor:
    """H of the parameters that `sizes` names, one after the other: (weights, weights) float64."""
    weights = sum(sizes.values())
    h = torch.zeros(weights, weights, dtype=torch.float64)
    if not weights:
        return h
    device = next(p.device for p in network.parameters())
    # Strips of the upper triangle, of which the lower one is the image.
    starts = range(0, weights, -(-weights // STRIPS))

    with torch.no_grad(), evaluation(network):
        squares = torch.cat(
            [
                _principal(likelihood.hessian_root(network(batch.to(device)).flatten(1)))
                .square()
                .sum(1)
                .cpu()
                for batch in torch.split(x, AT_ONCE)
            ]
        )
    needed = (squares > smallest * squares.max()).sum(1)
    # Data that need like numbers of rows together: the first of a batch says how many passes.
    order = needed.argsort(descending=True, stable=True)
    order = order[: int((needed > 0).sum())]
    while len(order):
        most = int(needed[order[0]])
        chosen = order[: min(AT_ONCE, max(1, ROWS // (most * weights)))]
        order = order[len(chosen) :]
        batch, rank = x[chosen].to(device), needed[chosen].to(device)

        def root(f: Tensor, most: int = most) -> Tensor:
            return _principal(likelihood.hessian_root(f))[:, :, :most]

        _, columns = jacobian_columns(network, batch, sizes, root)
        rows = []
        for number, column in enumerate(columns):
            unknown = [n for n in sizes if n not in column]
            if unknown:
                raise ValueError(
                    f"{unknown[0]} is not the weight of a linear map that the network uses, so "
                    "its exact curvature is not known"
                )
            alive = int((rank > number).sum())  # the first ones: ranks fall
            rows.append(torch.cat([column[n][:alive].reshape(alive, -1) for n in sizes], 1))
        jacobian = torch.cat(rows).cpu().double()
        for start in starts:
            strip = slice(start, start + starts.step)
            h[strip, start:] += jacobian[:, strip].T @ jacobian[:, start:]
    return h.triu() + h.triu(1).T


def _principal(root: Tensor) -> Tensor:
    """Orthogonal columns (N, K, R), the largest first, with the same S Sᵀ."""
    s = root.double()
    _, axes = torch.linalg.eigh(s.mT @ s)
    columns: Tensor = s @ axes.flip(2)
    return columns.to(root.dtype)
