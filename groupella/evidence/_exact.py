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
from torch import Tensor

from ._evidence import Evidence
from ._fit_of_data import data_fit
from ._joint_curvature import AT_ONCE, joint_curvature
from ._prior import PriorGroup
from ._spectrum import NonFiniteError

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
    left_out: float = 1e-5,
    steps: int = 20,
    seed: int = 0,
) -> ExactEvidence:
    """The evidence of a network as it is; nothing is changed, the precisions of the prior included.

    Parameters that do not require a gradient are constants, without prior and curvature.

    data: a pair (x, y) of tensors; the fit is taken on all of them, the curvature on a random
        `subset` that stands for all (None: all).
    largest: groups of more weights than this stay with their Kronecker blocks, which the evidence
        must have observed.
    left_out: the share of Σ tr Λ, the curvature in the outputs, that the smallest directions of all
        data may have together to be left out. Of 64 classes, whose probabilities are mostly small,
        half of the directions are; 0 keeps them all.
    steps: at most so many of MacKay's, from the prior's precisions; 0 keeps those.
    """
    if subset is not None and subset < 1:
        raise ValueError(f"subset must be at least 1, or None for all data; got {subset}")
    if not 0.0 <= left_out < 1.0:
        raise ValueError(f"left_out must be at least 0 and below 1; got {left_out}")
    groups = _groups(evidence, largest)
    x, y = data
    used = x
    if subset is not None and subset < len(x):
        generator = torch.Generator().manual_seed(seed)
        used = x[torch.randperm(len(x), generator=generator)[:subset]]
    network, likelihood = evidence.network, evidence.likelihood
    h = joint_curvature(network, likelihood, groups.sizes, used, left_out)
    problem = _problem(evidence, groups, len(x) / len(used) * h)
    found = problem.best(evidence.prior.log_precision.detach().cpu()[groups.places], steps)
    device = next((p.device for p in network.parameters()), x.device)
    pairs = zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
    moved = [(a.to(device), b.to(device)) for a, b in pairs]
    names = [g.name for g in groups.live]
    return ExactEvidence(
        log_likelihood=data_fit(network, likelihood, moved).log_likelihood(likelihood),
        penalty=0.5 * float((found.log_precision.exp() * problem.norms).sum()),
        log_volume=found.volume,
        precisions=dict(zip(names, found.log_precision.exp().tolist(), strict=True)),
        effective_parameters=dict(zip(names, found.gammas.tolist(), strict=True)),
        factored=tuple(groups.live[i].name for i in groups.factored),
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
class _Groups:
    """The groups that are not constant, and their `places` in the prior; which of them stay
    factored; and, parameter by parameter, the number of weights that are taken together."""

    live: list[PriorGroup]
    places: list[int]
    factored: list[int]
    sizes: dict[str, int]


def _groups(evidence: Evidence, largest: int) -> _Groups:
    live = _live(evidence)
    factored = [i for i, g in enumerate(live) if g.size > largest]
    if factored and not evidence.is_observed:
        first = live[factored[0]]
        raise RuntimeError(
            f"{first.name} has {first.size} weights, more than largest={largest}, and "
            "its factored curvature is not known: call evidence.collect(data) first"
        )
    trained = _trained(evidence)
    joint = [g for g in live if g.size <= largest]
    sizes = {n: trained[n].numel() for g in joint for n in g.parameters if n in trained}
    weights = sum(sizes.values())
    if weights > MOST_JOINT_WEIGHTS:
        raise ValueError(
            f"the exact curvature of {weights} weights together would take "
            f"{4 * 8 * weights**2 / 1e9:.0f} GB; choose `largest` so that at most "
            f"{MOST_JOINT_WEIGHTS} are left"
        )
    return _Groups(live, [evidence.prior.index(g.name) for g in live], factored, sizes)


def _trained(evidence: Evidence) -> dict[str, Tensor]:
    return {n: p.detach() for n, p in evidence.network.named_parameters() if p.requires_grad}


def _problem(evidence: Evidence, groups: _Groups, h: Tensor) -> _Precisions:
    prior, trained = evidence.prior, _trained(evidence)
    norms = [
        sum(float(trained[n].double().square().sum()) for n in g.parameters if n in trained)
        for g in groups.live
    ]
    owners = {n: i for i, g in enumerate(groups.live) for n in g.parameters}
    owner = [owners[n] for n, size in groups.sizes.items() for _ in range(size)]
    return _Precisions(
        h=h,
        owner=torch.tensor(owner, dtype=torch.long),
        spectrum={
            i: evidence.spectrum.eigenvalues[groups.places[i]].cpu() for i in groups.factored
        },
        norms=torch.tensor(norms, dtype=torch.float64),
        learned=prior.learned.cpu()[groups.places],
        bounds=prior.bounds,
    )


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
