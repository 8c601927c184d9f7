"""Training that looks for the best network: restarts, one of them trained on, doubts settled.

1. Several students start from different weights and are trained for a few epochs; the one with the
   highest evidence is trained on. Narrow networks have many optima, and their evidence tells them
   apart long before training has ended.
2. A path that is alive but cheap to remove is *doubtful*: while the other paths are not at their
   optimum it may stand in for them. The network is trained on with it and without it, dead paths
   taken out of both, and stays without it unless that costs some nats of evidence. Here the
   evidence is the exact one: Kronecker factors overstate the cost of a doubtful path by tens of
   nats, which is what it is worth, and would take out true ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from groupella.evidence import Prior, Selection, exact_evidence
from groupella.training import Fit, Settings, fit

from ._decide import decided
from ._trunk import Trunk

Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Search:
    """nats, doubt: a path worth less by factored curvature is dead; one worth less is doubtful.
    exact_nats: what a doubtful path must be worth by exact curvature, taken on `subset` data.
    """

    restarts: int = 4
    first: int = 12
    nats: float = 2.0
    doubt: float = 250.0
    exact_nats: float = 10.0
    subset: int = 1500
    again: int = 20
    again_lr: float = 0.01
    most_trials: int = 6


def best_start(
    make: Callable[[int], Trunk], train: Data, settings: Settings, search: Search, workspace: Path
) -> Fit:
    """Train one student from each start for a while, and the best of them to the end."""
    short = replace(settings, epochs=search.first)
    tried = [
        fit(make(i), train, settings=short, directory=workspace / f"start{i}", progress=False)
        for i in range(search.restarts)
    ]
    best = max(tried, key=lambda one: one.log_evidence)
    return fit(
        best.network,
        train,
        settings=replace(settings, burn_in=1),
        prior=best.prior,
        directory=workspace / "best",
        progress=False,
    )


def settle(
    trained: Fit, train: Data, search: Search, workspace: Path
) -> tuple[Fit, list[dict[str, Any]]]:
    """Take out the doubtful paths that the network can do without; and what was tried."""
    settings = replace(
        trained.settings, epochs=search.again, lr=search.again_lr, burn_in=1, prune_from=None
    )
    trials: list[dict[str, Any]] = []
    needed: set[tuple[str, str]] = set()
    while len(trials) < search.most_trials:
        found = decided(trained, search.nats)
        doubtful = _doubtful(found, search, needed)
        if doubtful is None:
            break
        layer, path = doubtful
        dead = _groups(
            trained, [(s.layer, p.path) for s in found.layers for p in s.paths if not p.alive]
        )
        place = workspace / f"doubt{len(trials)}"
        kept = _on(trained, dead, train, settings, place / "with")
        without = _on(
            trained, dead + _groups(trained, [doubtful]), train, settings, place / "without"
        )
        gain = _exact(without, train, search) - _exact(kept, train, search)
        factored = without.log_evidence - kept.log_evidence
        gains = {"gain": round(gain, 1), "factored_gain": round(factored, 1)}
        trials.append({"layer": layer, "path": path, **gains})
        if gain > -search.exact_nats:
            trained = without
        else:
            trained = kept
            needed.add(doubtful)
    return trained, trials


def _doubtful(
    found: Selection, search: Search, needed: set[tuple[str, str]]
) -> tuple[str, str] | None:
    """The path that is cheapest to remove among those alive but not needed."""
    costs = {
        (layer.layer, path.path): -path.removal
        for layer in found.layers
        for path in layer.paths
        if search.nats <= -path.removal < search.doubt and (layer.layer, path.path) not in needed
    }
    return min(costs, key=lambda key: costs[key], default=None)


def _groups(trained: Fit, paths: list[tuple[str, str]]) -> list[str]:
    """The prior groups of some paths."""
    return [g.name for layer, path in paths for g in trained.prior.of_path(layer, path)]


def _exact(trained: Fit, train: Data, search: Search) -> float:
    return exact_evidence(trained.evidence, train, subset=search.subset).log_evidence


def _on(trained: Fit, without: list[str], train: Data, settings: Settings, workspace: Path) -> Fit:
    """A copy of the network, some prior groups taken out, trained on."""
    network, prior = copy.deepcopy((trained.network, trained.prior))
    assert isinstance(prior, Prior)
    if without:
        prior.take_out(network, without)
    return fit(network, train, settings=settings, prior=prior, directory=workspace, progress=False)
