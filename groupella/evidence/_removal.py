"""The evidence of a network without some of its paths, measured rather than approximated.

The paths' weights are set to zero and held there, so that they are constants with neither prior
nor curvature; fit and curvature are taken anew, and the precisions of all other groups (and the
noise) are brought to their best values, both with and without the paths. Afterwards the network,
prior and likelihood are as before. The remaining weights are not re-trained, so the fit without
the paths is a lower bound on what it could be.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ._evidence import Evidence
from ._fit_of_data import Batches

STEPS = 40


def measured_removal(
    evidence: Evidence,
    names: Sequence[str],
    data: tuple[Tensor, Tensor] | Batches,
    *,
    subset: int | None = None,
    **options: Any,
) -> float:
    """log p(D) without the prior groups `names`, minus log p(D) with them."""
    for name in names:
        evidence.prior.index(name)
    values = []
    for removed in ((), names):
        trial = _copy(evidence)
        with _without(trial, removed):
            trial.collect(data, subset=subset, **options)
            trial.step("fixed_point", steps=STEPS)
            values.append(float(trial.log_marginal_likelihood().detach()))
    return values[1] - values[0]


def _copy(evidence: Evidence) -> Evidence:
    """The same network with a prior and a likelihood of its own."""
    return Evidence(
        evidence.network, copy.deepcopy(evidence.likelihood), copy.deepcopy(evidence.prior)
    )


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
