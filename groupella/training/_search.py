"""Search for the best network: restarts, continued training, and trials of doubtful paths.

1. Several networks start from different weights and train for a few epochs. Those with the highest
   evidence train to the end, and the best of them is kept. Narrow networks have many optima, and
   the evidence identifies bad ones long before training ends.
2. Each candidate is imposed on all layers at once: layers that share a poor optimum need one
   another's paths, so that none of these can go alone. It stays if that gains some nats of exact
   evidence, no weaker candidate does better, and no layer does better with its paths put back.
3. A path that is alive but cheap to remove is *doubtful*, and so is one that decides what its layer
   obeys: it may stand in for other paths that are not at their optimum yet. Training continues with
   it and without it, in both cases without dead paths. It is removed unless that costs some nats of
   evidence. (Before such training, paths that turned out to be useless seemed worth up to thousands
   of nats.) Small networks use the exact evidence: Kronecker factors overstate the cost of a
   doubtful path by tens of nats, about its worth, and would remove true ones.
4. With many data, a part of them is enough for step 1, and better: the evidence of a path grows
   with the data, also for one that stands in for others. Training then continues on all data, on
   which doubts are settled: on a part, a true path may be worth too little to tell.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from groupella._files import file_name, write_text
from groupella._schema import read_json
from groupella.decide import (
    Candidates,
    LayerSelection,
    Rule,
    Selection,
    verdict,
    verdict_text,
)
from groupella.evidence import ExactEvidence, Prior, exact_evidence, joint_size
from groupella.evidence.likelihoods import Likelihood
from groupella.nn.layer import strictest

from ._checkpoint import CheckpointError
from ._fit import Fit, fit
from ._run import Augment
from ._settings import Settings, require

Data = tuple[Tensor, Tensor]
MOST_EXACT = 5000  # weights alive, whose exact curvature takes a minute or two


@dataclass(frozen=True)
class Search:
    """How to search for the best network.

    Parameters
    ----------
    restarts, first
        Number of starts, and of epochs that each trains.
    finalists
        Number of starts with the highest evidence that train to the end.
    rule, subset
        Which paths are alive by factored curvature (`nats`), and what a doubtful path must be worth
        to stay, or a candidate gain to be imposed on all layers (`settled_nats`), by exact
        curvature on `subset` examples.
    doubt
        A live path worth less than this many nats is doubtful, and so is one that decides the
        layer's verdict.
    again, again_lr
        Epochs and learning rate of the training with and without a doubtful path.
    most_trials
        Maximum number of doubtful paths to try, the cheapest first; with 0, nothing is imposed
        either.
    """

    restarts: int = 8
    first: int = 12
    finalists: int = 3
    rule: Rule = field(default_factory=Rule)
    doubt: float = 250.0
    subset: int = 1500
    again: int = 20
    again_lr: float = 0.01
    most_trials: int = 6

    def __post_init__(self) -> None:
        for name in ("restarts", "first", "finalists", "subset", "again"):
            value = getattr(self, name)
            require(isinstance(value, int) and value >= 1, name, "a whole number from 1", value)
        require(
            isinstance(self.most_trials, int) and self.most_trials >= 0,
            "most_trials",
            "a whole number from 0",
            self.most_trials,
        )
        require(0 < self.again_lr < math.inf, "again_lr", "positive and finite", self.again_lr)
        least = self.rule.nats
        require(self.doubt >= least, "doubt", f"at least the rule's {least:g} nats", self.doubt)


@dataclass(frozen=True)
class Trial:
    """The trial of a doubtful path: what the log evidence gained without it, and the outcome.

    `layer` is None if a candidate, named by `path`, was imposed on all layers: without all paths
    that do not obey it. `gain` uses exact curvature, `factored_gain` Kronecker factors. `is_exact`
    is false where the network or the path is too large for the former. `out` says whether the path
    was removed (the candidate imposed).
    """

    layer: str | None
    path: str
    gain: float
    factored_gain: float
    is_exact: bool
    out: bool


def best_start(
    make: Callable[[int], nn.Module],
    data: Data,
    settings: Settings,
    search: Search | None = None,
    *,
    likelihood: Likelihood | None = None,
    prior: Callable[[nn.Module], Prior] | None = None,
    augment: Augment | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
) -> Fit:
    """Train `make(0)`, `make(1)`, … for a few epochs, the best to the end; return the best fit.

    Parameters
    ----------
    make
        Builds the network of a start from its number.
    data, settings, likelihood, augment, progress
        As for `fit`.
    search
        How many starts and finalists, and for how long; `Search()` by default.
    prior
        Builds the prior of a network.
    directory
        Each training has its own directory below this one, from which it resumes.
    """
    search = Search() if search is None else search

    def train(network: nn.Module, name: str, **options: Any) -> Fit:
        place = _below(directory, name)
        return fit(network, data, augment=augment, directory=place, progress=progress, **options)

    best: list[tuple[float, int, Fit]] = []
    for i in range(search.restarts):
        network = make(i)
        start = train(
            network,
            f"start{i}",
            likelihood=copy.deepcopy(likelihood),
            settings=replace(settings, epochs=search.first),
            prior=None if prior is None else prior(network),
        )
        best.append((start.log_evidence, i, start))
        best = sorted(best, key=lambda one: -one[0])[: search.finalists]
    kept: Fit | None = None
    while best:
        _, i, start = best.pop(0)
        end = train(
            start.network,
            f"best{i}",
            likelihood=start.likelihood,
            settings=replace(settings, burn_in=1),
            prior=start.prior,
        )
        kept = end if kept is None or end.log_evidence > kept.log_evidence else kept
    assert kept is not None
    return kept


def go_on(
    trained: Fit,
    data: Data,
    settings: Settings,
    search: Search | None = None,
    *,
    directory: str | Path | None = None,
    progress: bool = True,
) -> Fit:
    """Continue training on all data without the paths that were dead on the subset.

    Parameters
    ----------
    trained
        The fit on the subset; its network is not changed.
    data, settings, progress
        As for `fit`.
    search
        Says which paths are dead (its `rule`).
    directory
        The training has its own directory below this one, from which it resumes.

    Returns
    -------
    Fit
        The fit on all data, with dead paths removed for good.
    """
    search = Search() if search is None else search
    dead = _groups(trained, _dead(_selection(trained, search)))
    place = _below(directory, "whole")
    if place is not None:
        _note(place, trained, dead, [])
    return _train_on(trained, dead, data, settings, place, progress)


def settle(
    trained: Fit,
    data: Data,
    search: Search | None = None,
    *,
    directory: str | Path | None = None,
    progress: bool = True,
) -> tuple[Fit, tuple[Trial, ...]]:
    """Remove the doubtful paths that a network does not need; return the fit and all trials.

    First, a candidate that gains when it is imposed on all layers at once stays imposed.

    Parameters
    ----------
    trained
        The fit to examine; its network is not changed.
    data
        The data it was trained on.
    search
        Which paths are doubtful, and what they must be worth.
    directory, progress
        Trainings have their own directories below this one, from which they resume; whether to show
        progress bars.
    """
    search = Search() if search is None else search
    if not search.most_trials:
        return trained, ()
    trained, imposed = _impose(trained, data, search, directory, progress)
    trials: list[Trial] = []
    needed: set[tuple[str, str]] = set()
    while len(trials) < search.most_trials:
        found = _selection(trained, search)
        doubtful = _doubtful(trained, found, search, needed)
        if doubtful is None:
            break
        place = _below(directory, f"doubt{len(trials)}")
        trial, trained = _try(trained, found, doubtful, data, search, place, progress)
        trials.append(trial)
        if not trial.out:
            needed.add(doubtful)
    return trained, (*imposed, *trials)


def _impose(
    trained: Fit, data: Data, search: Search, directory: str | Path | None, progress: bool
) -> tuple[Fit, list[Trial]]:
    """Impose the strictest candidate that gains and that no other one beats, if there is one.

    Dead paths that obey a candidate train on with it: what is dead in a poor optimum may be needed
    in another. Then each layer is spared in turn, so that no layer pays for the gain of others.
    """
    found, nats = _selection(trained, search), search.rule.settled_nats
    inside = found.candidates.inside
    names = [n for n in sorted(inside, key=lambda n: -len(inside[n])) if _is_shared(found, n)]
    if not names or joint_size(trained.evidence) > MOST_EXACT:
        return trained, []
    place, dead = _below(directory, "impose"), _groups(trained, _dead(found))
    if place is not None:
        _note(place, trained, dead, [])

    def train(out: list[str], name: str) -> _Weighed:
        return _again(trained, out, data, search, _below(place, file_name(name)), progress)

    def against(name: str, spared: Collection[str] = ()) -> list[str]:
        paths = [(one.layer, p) for one in found.layers for p in one.paths if name not in p.members]
        out = [(layer, p.path) for layer, p in paths if not (layer in spared and p.alive)]
        return _groups(trained, out)

    kept = train(dead, "with")
    imposed = {name: train(against(name), f"without-{name}") for name in names}
    gains = {name: _gain(kept, one) for name, one in imposed.items()}
    least = max(nats, max(gain for gain, _, _ in gains.values()) - nats)
    chosen = next((n for n in names if gains[n][2] and gains[n][0] >= least), None)
    trials = [Trial(None, name, *gains[name], name == chosen) for name in names]
    if chosen is None:
        return trained, trials
    needy: list[str] = []
    for layer in found.layers:
        mine = [p.path for p in layer.paths if p.alive and chosen not in p.members]
        if mine:
            spared = train(against(chosen, [layer.layer]), f"sparing-{layer.layer}")
            gain, factored, is_exact = _gain(spared, imposed[chosen])
            out = gain > -nats
            trials.append(Trial(layer.layer, " + ".join(mine), gain, factored, is_exact, out))
            needy += [] if out else [layer.layer]
    best = train(against(chosen, needy), "spared") if needy else imposed[chosen]
    return best.fit, trials


def _is_shared(found: Selection, name: str) -> bool:
    """Whether several layers have live paths that do not obey a candidate, and others that do."""
    live = [[name in p.members for p in layer.paths if p.alive] for layer in found.layers]
    return sum(not all(layer) for layer in live) > 1 and all(any(one) for one in live if one)


def _selection(trained: Fit, search: Search) -> Selection:
    """What is alive, judged by the cost of its removal alone."""
    return trained.selection(rule=search.rule)


@dataclass(frozen=True)
class _Weighed:
    """A fit and its exact evidence, None if the network is too large for it."""

    fit: Fit
    exact: ExactEvidence | None

    @classmethod
    def of(cls, fit: Fit, data: Data, search: Search) -> _Weighed:
        if joint_size(fit.evidence) > MOST_EXACT:
            return cls(fit, None)
        return cls(fit, exact_evidence(fit.evidence, data, subset=search.subset))


def _gain(before: _Weighed, after: _Weighed) -> tuple[float, float, bool]:
    """The gain in evidence, the same by factored curvature, and whether the first is exact."""
    factored = after.fit.log_evidence - before.fit.log_evidence
    first, second = before.exact, after.exact
    if first is None or second is None:
        return factored, factored, False
    is_exact = set(first.factored) == set(second.factored)
    return second.log_evidence - first.log_evidence, factored, is_exact


def _try(
    trained: Fit,
    found: Selection,
    doubtful: tuple[str, str],
    data: Data,
    search: Search,
    directory: Path | None,
    progress: bool,
) -> tuple[Trial, Fit]:
    """Continue training with a path and without it; return the outcome and the fit that is kept."""
    dead = _groups(trained, _dead(found))
    mine = _groups(trained, [doubtful])
    if directory is not None:
        _note(directory, trained, dead, mine)
    kept = _again(trained, dead, data, search, _below(directory, "with"), progress)
    without = _again(trained, dead + mine, data, search, _below(directory, "without"), progress)
    gain, factored, is_exact = _gain(kept, without)
    out = gain > -search.rule.settled_nats
    return Trial(*doubtful, gain, factored, is_exact, out), (without if out else kept).fit


def _again(
    trained: Fit,
    out: Sequence[str],
    data: Data,
    search: Search,
    directory: Path | None,
    progress: bool,
) -> _Weighed:
    """Continue training without some prior groups, as trials do, and weigh the result."""
    settings = replace(
        trained.settings, epochs=search.again, lr=search.again_lr, burn_in=1, prune_from=None
    )
    on = _train_on(trained, out, data, settings, directory, progress)
    return _Weighed.of(on, data, search)


def _doubtful(
    trained: Fit, found: Selection, search: Search, needed: set[tuple[str, str]]
) -> tuple[str, str] | None:
    """The cheapest doubtful path that is not known to be needed, or None."""
    costs = {
        (layer.layer, path.path): -path.removal
        for layer in found.layers
        for path in layer.paths
        if path.alive
        and (-path.removal < search.doubt or _decides(layer, path.path, found.candidates))
    }
    left = [
        key
        for key in costs
        if key not in needed and not all(map(trained.prior.is_out, _groups(trained, [key])))
    ]
    return min(left, key=lambda key: costs[key], default=None)


def _decides(layer: LayerSelection, path: str, candidates: Candidates) -> bool:
    """Whether a layer would obey something else without the path; an empty one obeys nothing."""
    rest = layer.remaining(without=path)
    return bool(rest) and verdict_text(verdict(rest, candidates)) != layer.verdict


def _dead(found: Selection) -> list[tuple[str, str]]:
    """Paths that are not alive; a layer keeps its strictest ones."""
    dead = []
    for layer in found.layers:
        kept = strictest({path.path: path.members for path in layer.paths})
        dead += [(layer.layer, p.path) for p in layer.paths if not p.alive and p.path not in kept]
    return dead


def _groups(trained: Fit, paths: Sequence[tuple[str, str]]) -> list[str]:
    """The prior groups of some paths."""
    return [g.name for layer, path in paths for g in trained.prior.of_path(layer, path)]


def _note(directory: Path, trained: Fit, dead: list[str], mine: list[str]) -> None:
    """Record which network trains in a directory and without what; refuse another's directory."""
    digest = hashlib.sha256()
    for _, tensor in sorted(trained.network.state_dict().items()):
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    note = {"path": mine, "dead": dead, "network": digest.hexdigest()}
    file = directory / "trial.json"
    if file.exists():
        if read_json(file) != note:
            raise CheckpointError(
                f"{directory} holds trainings of another network, or without other paths; "
                "choose another directory"
            )
        return
    if any(directory.rglob("*.safetensors")):
        raise CheckpointError(f"{directory} holds trainings without their {file.name}")
    write_text(file, json.dumps(note, indent=1) + "\n")


def _train_on(
    trained: Fit,
    without: Sequence[str],
    data: Data,
    settings: Settings,
    directory: Path | None,
    progress: bool,
) -> Fit:
    """Continue training a copy of the network without some prior groups."""
    network, prior = copy.deepcopy((trained.network, trained.prior))
    if without:
        prior.take_out(network, without)
    return fit(
        network,
        data,
        copy.deepcopy(trained.likelihood),
        settings,
        prior=prior,
        augment=None if trained.run is None else trained.run.augment,
        directory=directory,
        progress=progress,
    )


def _below(directory: str | Path | None, name: str) -> Path | None:
    return None if directory is None else Path(directory) / name
