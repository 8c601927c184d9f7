"""Training that looks for the best network: restarts, one of them trained on, doubts settled.

1. Several networks start from different weights and are trained for a few epochs; the one with the
   highest evidence is trained on. Narrow networks have many optima, and their evidence tells them
   apart long before training has ended.
2. A path that is alive but cheap to remove is *doubtful*: while the other paths are not at their
   optimum it may stand in for them. The network is trained on with it and without it, dead paths
   taken out of both, and stays without it unless that costs some nats of evidence. Where the
   network is small enough this is the exact evidence: Kronecker factors overstate the cost of a
   doubtful path by tens of nats, which is what it is worth, and would take out true ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from groupella.evidence import (
    MOST_JOINT_WEIGHTS,
    Prior,
    Selection,
    exact_evidence,
    joint_size,
)
from groupella.likelihoods import Likelihood

from ._fit import Fit, fit
from ._settings import Settings

Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Search:
    """How to look for the best network.

    restarts, first: so many starts, each trained for so many epochs before the best goes on.
    nats, doubt: a path worth less than `nats` by factored curvature is dead, one worth less than
        `doubt` doubtful.
    exact_nats: what a doubtful path must be worth to stay, by exact curvature on `subset` data.
    again, again_lr: epochs and learning rate of training on, with a doubtful path and without.
    most_trials: so many doubtful paths are tried, the cheapest first.
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


@dataclass(frozen=True)
class Trial:
    """A doubtful path: what the log evidence gained without it, and whether it was taken out."""

    layer: str
    path: str
    gain: float
    factored_gain: float
    out: bool


def best_start(
    make: Callable[[int], nn.Module],
    data: Data,
    settings: Settings,
    search: Search | None = None,
    *,
    likelihood: Likelihood | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
) -> Fit:
    """Train the networks `make(0)`, `make(1)`, … for a while, and the best of them to the end.

    Each training has a directory of its own below `directory`, where an interrupted one goes on.
    """
    search = Search() if search is None else search
    short = replace(settings, epochs=search.first)
    tried = [
        fit(
            make(i),
            data,
            copy.deepcopy(likelihood),
            short,
            directory=_below(directory, f"start{i}"),
            progress=progress,
        )
        for i in range(search.restarts)
    ]
    best = max(tried, key=lambda one: one.log_evidence)
    return fit(
        best.network,
        data,
        best.likelihood,
        replace(settings, burn_in=1),
        prior=best.prior,
        directory=_below(directory, "best"),
        progress=progress,
    )


def settle(
    trained: Fit,
    data: Data,
    search: Search | None = None,
    *,
    directory: str | Path | None = None,
    progress: bool = True,
) -> tuple[Fit, tuple[Trial, ...]]:
    """Take out the doubtful paths that a network can do without; and what was tried.

    `data` are those it was trained on. The fit that is given keeps its network as it is.
    """
    search = Search() if search is None else search
    settings = replace(
        trained.settings, epochs=search.again, lr=search.again_lr, burn_in=1, prune_from=None
    )
    trials: list[Trial] = []
    needed: set[tuple[str, str]] = set()
    while len(trials) < search.most_trials:
        found = _decided(trained, search)
        doubtful = _doubtful(found, search, needed)
        if doubtful is None:
            break
        place = _below(directory, f"doubt{len(trials)}")

        def on(
            without: Sequence[str], name: str, start: Fit = trained, place: Path | None = place
        ) -> Fit:
            return _train_on(start, without, data, settings, _below(place, name), progress)

        dead = [(s.layer, p.path) for s in found.layers for p in s.paths if not p.alive]
        kept = on(_groups(trained, dead), "with")
        without = on(_groups(trained, [*dead, doubtful]), "without")
        factored = without.log_evidence - kept.log_evidence
        gain = factored
        if joint_size(kept.evidence) <= MOST_JOINT_WEIGHTS:
            gain = _exact(without, data, search) - _exact(kept, data, search)
        out = gain > -search.exact_nats
        trials.append(Trial(*doubtful, gain, factored, out))
        trained = without if out else kept
        if not out:
            needed.add(doubtful)
    return trained, tuple(trials)


def _decided(trained: Fit, search: Search) -> Selection:
    return trained.selection(rule="evidence", nats=search.nats, nats_per_parameter=0.0)


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


def _groups(trained: Fit, paths: Sequence[tuple[str, str]]) -> list[str]:
    """The prior groups of some paths."""
    return [g.name for layer, path in paths for g in trained.prior.of_path(layer, path)]


def _exact(trained: Fit, data: Data, search: Search) -> float:
    return exact_evidence(trained.evidence, data, subset=search.subset).log_evidence


def _train_on(
    trained: Fit,
    without: Sequence[str],
    data: Data,
    settings: Settings,
    directory: Path | None,
    progress: bool,
) -> Fit:
    """A copy of the network, some prior groups taken out, trained on."""
    network, prior = copy.deepcopy((trained.network, trained.prior))
    assert isinstance(prior, Prior)
    if without:
        prior.take_out(network, without)
    return fit(
        network,
        data,
        copy.deepcopy(trained.likelihood),
        settings,
        prior=prior,
        directory=directory,
        progress=progress,
    )


def _below(directory: str | Path | None, name: str) -> Path | None:
    return None if directory is None else Path(directory) / name
