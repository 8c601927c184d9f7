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
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from groupella.likelihoods import Likelihood

from ._evidence import Evidence
from ._fit_of_data import data_fit, evaluation
from ._jacobians import jacobian_columns
from ._prior import PriorGroup

ROWS = 2**24  # numbers of a Jacobian held at once
MOST_JOINT_WEIGHTS = 20_000  # their curvature takes 3.2 GB
LARGEST_GROUP = 2048
SETTLED = 1e-2  # nats


@dataclass(frozen=True)
class ExactEvidence:
    """log p(D) in nats, taken apart, at the best precisions for the present weights.

    `factored` are the groups that stayed with their Kronecker blocks.
    """

    log_likelihood: float
    penalty: float
    log_volume: float
    precisions: Mapping[str, float]
    effective_parameters: Mapping[str, float]
    factored: tuple[str, ...]

    @property
    def log_evidence(self) -> float:
        return self.log_likelihood - self.penalty + self.log_volume


def exact_evidence(
    evidence: Evidence,
    data: tuple[Tensor, Tensor],
    *,
    subset: int | None = None,
    largest: int = LARGEST_GROUP,
    steps: int = 20,
    seed: int = 0,
) -> ExactEvidence:
    """The evidence of a network as it is; nothing is changed, the precisions of the prior included.

    data: a pair (x, y) of tensors; the fit is taken on all of them, the curvature on a random
        `subset` that stands for all (None: all).
    largest: groups of more weights than this stay with their Kronecker blocks, which the evidence
        must have observed.
    steps: at most so many of MacKay's, from the prior's precisions; 0 keeps those.
    """
    network, likelihood, prior = evidence.network, evidence.likelihood, evidence.prior
    live = _live(evidence)
    joint = [g for g in live if g.size <= largest]
    factored = [g for g in live if g.size > largest]
    if factored and not evidence.is_observed:
        raise RuntimeError(
            f"{factored[0].name} has {factored[0].size} weights, more than largest={largest}, and "
            "its factored curvature is not known: call evidence.collect(data) first"
        )
    numel = {n: p.numel() for n, p in network.named_parameters() if p.requires_grad}
    sizes = {n: numel[n] for g in joint for n in g.parameters if n in numel}
    weights = sum(sizes.values())
    if weights > MOST_JOINT_WEIGHTS:
        raise ValueError(
            f"the exact curvature of {weights} weights together would take "
            f"{8 * weights**2 / 1e9:.0f} GB; choose `largest` so that at most "
            f"{MOST_JOINT_WEIGHTS} are left"
        )
    x, y = data
    used = x
    if subset is not None and subset < len(x):
        generator = torch.Generator().manual_seed(seed)
        used = x[torch.randperm(len(x), generator=generator)[:subset]]
    h = len(x) / len(used) * _joint_curvature(network, likelihood, sizes, used)
    fitted = data_fit(network, likelihood, (x, y)).log_likelihood(likelihood)

    names = [g.name for g in live]
    rows = torch.tensor([prior.index(n) for n in names])
    log_precision = prior.log_precision.detach()[rows].clone()
    norms = evidence.squared_norms[rows]
    learned = prior.learned[rows]
    low, high = map(math.log, prior.bounds)
    owners = {n: live.index(g) for g in joint for n in g.parameters}
    owner = torch.tensor([owners[n] for n, size in sizes.items() for _ in range(size)])
    spectrum = {live.index(g): evidence.spectrum.eigenvalues[prior.index(g.name)] for g in factored}
    terms = _Volume(h, owner.long(), spectrum)
    for step in range(steps):
        _, gammas = terms.at(log_precision)
        target = (gammas.clamp(min=1e-300) / norms.clamp(min=1e-300)).log().clamp(low, high)
        target = torch.where(learned, target, log_precision)
        # What is left to gain, to second order; dead groups may go on towards δ = ∞.
        left = 0.25 * float((gammas * (target - log_precision).square()).sum())
        # Half-way after the first, as `Evidence.step` does, lest the steps alternate.
        log_precision = target if step == 0 else 0.5 * (log_precision + target)
        if left < SETTLED:
            break
    volume, gammas = terms.at(log_precision)
    return ExactEvidence(
        log_likelihood=fitted,
        penalty=0.5 * float((log_precision.exp() * norms).sum()),
        log_volume=volume,
        precisions=dict(zip(names, log_precision.exp().tolist(), strict=True)),
        effective_parameters=dict(zip(names, gammas.tolist(), strict=True)),
        factored=tuple(g.name for g in factored),
    )


def joint_size(evidence: Evidence, largest: int = LARGEST_GROUP) -> int:
    """How many weights `exact_evidence` would take together; `MOST_JOINT_WEIGHTS` is its limit."""
    return sum(g.size for g in _live(evidence) if g.size <= largest)


def _live(evidence: Evidence) -> list[PriorGroup]:
    constants = evidence.constants
    return [g for g in evidence.prior if not constants.issuperset(g.parameters)]


@dataclass(frozen=True)
class _Volume:
    """−½ log |1 + D^−½ H D^−½| and the effective parameters, as functions of the precisions.

    owner: which group each row of `h` belongs to; spectrum: eigenvalues of the other groups.
    """

    h: Tensor
    owner: Tensor
    spectrum: Mapping[int, Tensor]

    def at(self, log_precision: Tensor) -> tuple[float, Tensor]:
        scale = (-0.5 * log_precision[self.owner]).exp()
        matrix = scale[:, None] * self.h * scale
        matrix.diagonal().add_(1.0)
        root = torch.linalg.cholesky(matrix)
        volume = -float(root.diagonal().log().sum())
        shares = 1.0 - torch.cholesky_inverse(root).diagonal()
        gammas = torch.zeros_like(log_precision).index_add_(0, self.owner, shares)
        for i, values in self.spectrum.items():
            delta = log_precision[i].exp()
            volume -= 0.5 * float(torch.log1p(values / delta).sum())
            gammas[i] = (values / (values + delta)).sum()
        return volume, gammas


def _joint_curvature(
    network: nn.Module, likelihood: Likelihood, sizes: Mapping[str, int], x: Tensor
) -> Tensor:
    """H of the parameters that `sizes` names, one after the other: (weights, weights) float64."""
    weights = sum(sizes.values())
    h = torch.zeros(weights, weights, dtype=torch.float64)
    with torch.no_grad(), evaluation(network):
        rows_a_datum = likelihood.hessian_root(network(x[:1])).shape[2]
    at_once = max(1, ROWS // (rows_a_datum * max(weights, 1)))
    for batch in torch.split(x, at_once):
        _, columns = jacobian_columns(network, batch, sizes, likelihood.hessian_root)
        rows = []
        for column in columns:
            unknown = [n for n in sizes if n not in column]
            if unknown:
                raise ValueError(
                    f"{unknown[0]} is not the weight of a linear map that the network uses, so "
                    "its exact curvature is not known"
                )
            rows.append(torch.cat([column[n].reshape(len(batch), -1) for n in sizes], 1))
        jacobian = torch.cat(rows)
        h += (jacobian.T @ jacobian).to(h)
    return h
