"""The evidence with the exact Gauss–Newton curvature, where a network is small enough for it.

    log p(D) ≈ log p(D | w) − ½ Σ_g δ_g ‖w_g‖² − ½ log |1 + D^−½ H D^−½|,   H = Σ_n J_nᵀ Λ_n J_n,

D = diag δ, with every correlation between weights and between groups. Kronecker factors have the
trace of H but a flatter spectrum, so they overstate the Occam factor, by hundreds of nats where the
network has hundreds of effective parameters: more than many a path is worth. Only this evidence
tells apart two networks that differ by a few nats.

The effective parameters of a group are γ_g = P_g − tr_g (1 + D^−½ H D^−½)⁻¹, and MacKay's fixed
point δ_g = γ_g/‖w_g‖² holds as it does for factors. Groups with very many weights (the free path of
a wide layer) keep their Kronecker blocks, independent of the others.
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
    """The terms of log p(D) in nats, at the best precisions for the present weights and noise.

    Attributes
    ----------
    log_likelihood, penalty, log_volume
        log p(D | w), ½ Σ δ‖w‖² and −½ log |1 + D^−½ H D^−½|.
    precisions, effective_parameters
        δ and γ by prior group.
    factored
        The groups that kept their Kronecker blocks.
    converged
        Whether at most 0.01 nats were left to gain in the precisions.
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
        """log p(D) in nats."""
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
    """Return the exact evidence of a network; nothing is changed, not even the prior's precisions.

    Parameters that do not require a gradient are constants, without prior and curvature.

    Parameters
    ----------
    evidence
        Network, likelihood and prior.
    data
        A pair (x, y) of tensors. The fit is computed on all of them.
    subset, seed
        Number of random examples for the curvature, which represent all (None: all), and their
        seed.
    largest
        Groups with more weights than this keep their Kronecker blocks, which the evidence must have
        observed.
    left_out
        Share of Σ tr Λ, the curvature in the outputs, that the smallest directions may have in
        total to be left out; 0 keeps all. With 64 classes, whose probabilities are mostly small,
        half of the directions are left out.
    steps
        Maximum number of MacKay updates; 0 keeps the current precisions.

    Raises
    ------
    RuntimeError
        If a group is larger than `largest` and no curvature has been collected.
    ValueError
        If the joint curvature would be too large; see `joint_size`.
    NonFiniteError
        If activations or gradients overflow.
    """
    if subset is not None and subset < 1:
        raise ValueError(f"subset must be at least 1, or None for all data; got {subset}")
    if not 0.0 <= left_out < 1.0:
        raise ValueError(f"left_out must be at least 0 and below 1; got {left_out}")
    network, likelihood, prior = evidence.network, evidence.likelihood, evidence.prior
    live = _live(evidence)
    factored = [i for i, g in enumerate(live) if g.size > largest]
    if factored and not evidence.is_observed:
        first = live[factored[0]]
        raise RuntimeError(
            f"{first.name} has {first.size} weights, more than largest={largest}, and "
            "its factored curvature is not known: call evidence.collect(data) first"
        )
    trained = {n: p.detach() for n, p in network.named_parameters() if p.requires_grad}
    owners = {n: i for i, g in enumerate(live) for n in g.parameters if n in trained}
    sizes = {n: trained[n].numel() for n, i in owners.items() if live[i].size <= largest}
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
    h = joint_curvature(network, likelihood, sizes, used, left_out)
    places = [prior.index(g.name) for g in live]
    norms = torch.zeros(len(live), dtype=torch.float64)
    for name, i in owners.items():
        norms[i] += float(trained[name].double().square().sum())
    problem = _Precisions(
        h=len(x) / len(used) * h,
        owner=torch.tensor([owners[n] for n, size in sizes.items() for _ in range(size)]).long(),
        spectrum={i: evidence.spectrum.eigenvalues[places[i]].cpu() for i in factored},
        norms=norms,
        learned=prior.learned.cpu()[places],
        bounds=prior.bounds,
    )
    found = problem.best(prior.log_precision.detach().cpu()[places], steps)
    device = next((p.device for p in network.parameters()), x.device)
    pairs = zip(torch.split(x, AT_ONCE), torch.split(y, AT_ONCE), strict=True)
    fit = data_fit(network, likelihood, ((a.to(device), b.to(device)) for a, b in pairs))
    names = [g.name for g in live]
    return ExactEvidence(
        log_likelihood=fit.log_likelihood(likelihood),
        penalty=0.5 * float((found.log_precision.exp() * norms).sum()),
        log_volume=found.volume,
        precisions=dict(zip(names, found.log_precision.exp().tolist(), strict=True)),
        effective_parameters=dict(zip(names, found.gammas.tolist(), strict=True)),
        factored=tuple(names[i] for i in factored),
        converged=found.left < SETTLED,
    )


def joint_size(evidence: Evidence, largest: int = LARGEST_GROUP) -> int:
    """Return the number of weights in the joint curvature; the limit is `MOST_JOINT_WEIGHTS`."""
    return sum(g.size for g in _live(evidence) if g.size <= largest)


def _live(evidence: Evidence) -> list[PriorGroup]:
    """The groups that are not constant, with their sizes without constant parameters."""
    trained = {n: p.numel() for n, p in evidence.network.named_parameters() if p.requires_grad}
    sized = [replace(g, size=sum(trained.get(n, 0) for n in g.parameters)) for g in evidence.prior]
    return [g for g in sized if g.size]


@dataclass(frozen=True)
class _Point:
    """Volume and γ at log-precisions, and how many nats may be left to gain in them."""

    log_precision: Tensor
    volume: float
    gammas: Tensor
    left: float


@dataclass(frozen=True)
class _Precisions:
    """The evidence as a function of the precisions.

    `owner` is the group of each row of `h`; `spectrum` has the eigenvalues of the other groups.
    """

    h: Tensor
    owner: Tensor
    spectrum: Mapping[int, Tensor]
    norms: Tensor
    learned: Tensor
    bounds: tuple[float, float]

    def best(self, log_precision: Tensor, steps: int) -> _Point:
        """MacKay's updates; all but the first go half of the way in log δ, or they alternate."""
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
