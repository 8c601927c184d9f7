"""The evidence of a network without some of its paths.

*Closed form.* The output of a path is a product of its m factors (m = 1 for most, 2 for a factored
path), so the fit without it is that at t = 0 along t · path(x), expanded to second order at t = 1.
At the MAP its slope there is δ‖w_i‖² for each factor i, and its curvature q = w_iᵀ H_i w_i is the
same for each; approximations make them differ, so their means are taken. With the factors' Occam
terms gone as well, the log evidence changes by

    ½ Σ_i Σ log(1 + λ_i/δ_i)  +  ½ Σ_i δ_i‖w_i‖²  −  mean_i δ_i‖w_i‖²  −  ½ mean_i q_i.

A path's offset is a term of its own, with m = 1.

In the block-diagonal approximation other groups' terms do not depend on the path, so the best
precisions of the rest do not move.

*Measured.* The path's weights are set to zero and held there, so that they are constants with
neither prior nor curvature; fit and curvature are computed again, and the precisions of all other
groups (and the noise) set to their best values, both with and without the path. The remaining
weights are not re-trained, so the fit without the path is a lower bound.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from groupella.nn.layer import strictest

from ._evidence import Evidence
from ._fit_of_data import Data
from ._prior import pathway_layers

STEPS = 40


def removal(evidence: Evidence, names: Sequence[str]) -> float:
    """Return the change of log evidence without the prior groups `names` of one path.

    This is the closed form; it needs no data but collected curvature. Weights and offset of a path
    are worth what each is worth: where the network is better without one of them, the other is
    compared with that network.
    """
    changes = [_of_product(evidence, product) for product in _products(evidence, names)]
    losses = [change for change in changes if change < 0]
    return sum(losses or changes)


def _products(evidence: Evidence, names: Sequence[str]) -> list[list[str]]:
    """The groups that are factors of one product, and each offset on its own."""
    prior = evidence.prior
    offsets = [n for n in names if prior.groups[prior.index(n)].role == "offset"]
    factors = [n for n in names if n not in offsets]
    return [*([factors] if factors else []), *([n] for n in offsets)]


def _of_product(evidence: Evidence, names: Sequence[str]) -> float:
    """The change without groups whose parameters are the factors of one product."""
    prior = evidence.prior
    indices = [prior.index(name) for name in names]
    parameters = dict(evidence.network.named_parameters())
    volumes = evidence.spectrum.log_volumes(prior.log_precision.detach())
    shrinkages, quadratics = [], []
    for i in indices:
        delta = float(prior.precisions[i])
        for name in prior.groups[i].parameters:
            if name not in evidence.blocks:
                continue
            w = parameters[name].detach().double()
            shrinkages.append(delta * float(w.square().sum()))
            product = float((w * evidence.blocks[name].matvec(w)).sum())
            quadratics.append(evidence.noise_scale * product)
    if not quadratics:
        return 0.0
    volume = -float(volumes[indices].sum())
    mean = sum(shrinkages) / len(shrinkages)
    curvature = sum(quadratics) / len(quadratics)
    return volume + 0.5 * sum(shrinkages) - mean - 0.5 * curvature


def prune(evidence: Evidence, nats: float = 0.0) -> list[str]:
    """Remove all weights and offsets of paths without which the evidence is higher by over `nats`.

    Gradients and fixed points only find the nearest maximum of the evidence, and a path that once
    fitted noise can stay there although the network is better without it. A layer keeps its
    strictest paths: without them it would still obey the same symmetry. The curvature and fit
    observed before include the removed paths; `evidence.collect(data)` updates them.

    Returns
    -------
    list of str
        The names of the prior groups that were removed; see `Prior.take_out`.
    """
    prior = evidence.prior
    gone: list[str] = []
    for layer, module in pathway_layers(evidence.network).items():
        kept = strictest({path: module.subspaces[path] for path in module.paths})
        for path in module.paths:
            if path in kept:
                continue
            for names in _products(evidence, [g.name for g in prior.of_path(layer, path)]):
                if not all(map(prior.is_out, names)) and _of_product(evidence, names) > nats:
                    prior.take_out(evidence.network, names)
                    gone += names
    return gone


def measured_removal(
    evidence: Evidence,
    names: Sequence[str],
    data: Data,
    **options: Any,
) -> float:
    """Return log p(D) without the prior groups `names`, minus log p(D) with them.

    Parameters
    ----------
    evidence
        Network, likelihood and prior; they are left as they are.
    names
        Prior groups to remove.
    data, options
        As for `Evidence.collect`.
    """
    for name in names:
        evidence.prior.index(name)
    values = []
    for removed in ((), names):
        likelihood, prior = copy.deepcopy((evidence.likelihood, evidence.prior))
        trial = Evidence(evidence.network, likelihood, prior)
        with _without(trial, removed):
            trial.collect(data, **options)
            trial.step("fixed_point", steps=STEPS)
            values.append(trial.log_evidence)
    return values[1] - values[0]


@contextmanager
def _without(evidence: Evidence, names: Sequence[str]) -> Iterator[None]:
    parameters = dict(evidence.network.named_parameters())
    groups = [evidence.prior.groups[evidence.prior.index(name)] for name in names]
    taken = [parameters[p] for g in groups for p in g.parameters]
    kept = [(p.detach().clone(), p.requires_grad) for p in taken]
    try:
        with torch.no_grad():
            for parameter in taken:
                parameter.zero_()
                parameter.requires_grad_(False)
        yield
    finally:
        with torch.no_grad():
            for parameter, (value, flag) in zip(taken, kept, strict=True):
                parameter.copy_(value)
                parameter.requires_grad_(flag)
