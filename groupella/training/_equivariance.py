"""`find_equivariance`: which symmetry does a map between vectors and tensors commute with?

1. Hold out a part of the data. On the rest, train a multilayer perceptron and a network with a
   path for every candidate; the better of these two obeys nothing. Then train one that obeys each
   candidate (`groupella.networks.equivariant_net`). The paths that a candidate adds to those of
   stricter ones are shrunk or free, whichever predicts a quarter of the held-out data better
   (`_Search.best`).
2. Measure on the other three quarters what imposing a candidate costs, and what averaging the
   predictions of a weaker network over it costs: the mean of g⁻¹·f(g·x) over random elements g.
3. `groupella.decide.claims` decides, by the same rule as for labels; "undecided" is an answer.
4. Where a candidate is open, train its network and the one that it is compared with for as many
   epochs again, and decide again, twice at most.
5. Train the network of the verdict on all data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from groupella.decide import Candidates
from groupella.decide.claims import (
    FREE,
    Claims,
    Comparison,
    Consequence,
    Judgement,
    Tested,
    told_apart,
)
from groupella.evidence import Evidence, Prior
from groupella.groups import FeatureSpace, GroupSet, Symmetry, trivial
from groupella.networks import EquivariantNet, equivariant_net

from ._blocks import copies
from ._candidates import FindSettings, outputs, split
from ._fit import Fit, fit
from ._history import EpochRecord
from ._scoring import SCORINGS, Scoring

MOTIONS = 16
MOST_TOLD = 500
CHOOSING = 1 / 4  # of the held-out data
WEAK, FREE_PRECISION = 1e-6, 1.0
UNTIL = 0.25  # of the epochs
LOOKS = 3


@dataclass(frozen=True)
class EquivarianceSettings:
    """How networks are trained and compared.

    Parameters
    ----------
    channels, depth
        The size of the networks, see `groupella.networks.equivariant_net`.
    epochs, batch_size, lr, clip
        Their training, see `groupella.training.Settings`.
    held_out
        The share of the data that is held out, between 0 and 1. A quarter of these choose between
        networks, the others test the candidates.
    resolution
        The smallest error that counts, as a share of the targets' standard deviation: a network
        that is right to within it is as good as an exact one. Without noise in the targets, any
        small difference between two networks would else be sure.
    claims
        How strict the decision is.
    seed
        Random seed for the split, weights and batch order.
    """

    channels: int = 8
    depth: int = 2
    epochs: int = 60
    batch_size: int = 64
    lr: float = 0.01
    clip: float = 1.0
    held_out: float = 0.3
    resolution: float = 0.1
    claims: Claims = field(default_factory=Claims)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, got {self.held_out!r}")
        if not 0 < self.resolution < 1:
            raise ValueError(f"resolution must lie between 0 and 1, got {self.resolution!r}")


@dataclass(frozen=True)
class FoundEquivariance:
    """The answer of `find_equivariance`: the judgement, the network that obeys it, and the table.

    `fit` is the training of that network on all data; without a symmetry, of one with a path for
    every candidate. `plain` is that of a multilayer perceptron, for comparison. `free` names the
    candidates whose paths are not shrunk in a network with a path for every candidate.
    """

    judgement: Judgement
    symmetry: Symmetry
    fit: Fit
    plain: Fit
    consequences: tuple[Consequence, ...]
    free: frozenset[str] = frozenset()

    @property
    def verdict(self) -> str:
        """A name, "O(3) and flips", "none" or "undecided"."""
        return self.judgement.verdict

    @property
    def network(self) -> EquivariantNet:
        """The trained network."""
        network = self.fit.network
        assert isinstance(network, EquivariantNet)
        return network


def find_equivariance(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    settings: EquivarianceSettings | None = None,
    *,
    say: Callable[[str], None] | None = None,
) -> FoundEquivariance:
    """Return which of the groups the targets follow, and a network trained on all data that does.

    Parameters
    ----------
    data
        Inputs (n, *space_in.shape) and real targets (n, space_out.size).
    groups
        The candidates. "none" is always among them.
    space_in, space_out
        What the groups do to inputs and targets, made with ``groups.space``. With scalars as
        outputs, the question is which group leaves the targets alone.
    settings
        See `EquivarianceSettings`.
    say
        Called with one line after each training.

    Raises
    ------
    ValueError
        If data and spaces do not fit, or if all targets are the same.
    """
    chosen = settings or EquivarianceSettings()
    _check(data, space_in, space_out)
    if not any(member.is_trivial for member in groups):
        groups = GroupSet(*groups, trivial())
    search = _Search(data, groups, space_in, space_out, chosen, say or (lambda line: None))
    train, choose, held = _held_out(data, chosen)
    search.add(FREE, train, choose, held)
    for look in range(LOOKS):
        for name in search.compare(train, held).order:
            if name not in search.compare(train, held).findings:
                search.add(name, train, choose, held)
        judgement = search.compare(train, held).judgement
        again = [f for f in judgement.findings if f.candidate in judgement.open]
        if not again or look == LOOKS - 1:
            break
        for name in dict.fromkeys(n for f in again for n in (f.against, f.candidate)):
            search.train_on(name, train, choose)
            search.add(name, train, choose, held)
    symmetry = search.imposed(judgement)
    everything = torch.arange(len(data[0]))
    plain = search.train(trivial(), everything)
    final = search.trained(None if symmetry.is_trivial else symmetry, everything)
    rows = (search.chance_row(train, held), *search.rows.values())
    return FoundEquivariance(judgement, symmetry, final, plain, rows, search.free[None])


class _Search:
    """Networks trained on one part of the data, chosen on another and tested on a third."""

    def __init__(
        self,
        data: tuple[Tensor, Tensor],
        groups: GroupSet,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        settings: EquivarianceSettings,
        say: Callable[[str], None],
    ) -> None:
        self.x, self.y = data[0].float(), data[1].float()
        self.groups, self.spaces, self.settings, self.say = (
            groups,
            (space_in, space_out),
            settings,
            say,
        )
        self.candidates = Candidates.of(groups)
        self.scoring: Scoring = SCORINGS["regression"](space_out.size, self.y)
        self.free: dict[Symmetry | None, frozenset[str]] = {}
        self.networks: dict[Symmetry | None, tuple[float, torch.nn.Module]] = {}
        self.rounds: Counter[Symmetry | None] = Counter()  # beyond the first
        self.tested: dict[str, Tested] = {}
        self.rows: dict[str, Consequence] = {}

    def new(self, symmetry: Symmetry | None) -> EquivariantNet:
        """An untrained network that obeys the symmetry; None: with a path for every candidate."""
        chosen = self.settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(chosen.seed)
            return equivariant_net(
                self.groups, *self.spaces, symmetry, channels=chosen.channels, depth=chosen.depth
            )

    def best(
        self, symmetry: Symmetry | None, train: Tensor, choose: Tensor
    ) -> tuple[float, torch.nn.Module]:
        """How well a network predicts the data `choose`, and the network.

        Its own paths, beside those of stricter candidates, are shrunk or free. Free, the many
        weights of a weak group may overfit so much that it predicts worse than one that obeys too
        much, and a symmetry that is not there seems to cost nothing. Shrunk, what only these paths
        can express, such as a cross product, is not learned. The better network counts; weaker
        groups start from its choice. Paths that obey nothing are always shrunk.
        """
        if symmetry not in self.networks:
            stricter = self._stricter(symmetry)
            for other in stricter:
                self.best(other, train, choose)
            free = frozenset[str]().union(*(self.free[other] for other in stricter))
            choices = [free]
            if symmetry is not None:
                asked = Prior.from_network(self.new(symmetry)).groups
                if any(g.initial > 1 and g.path == symmetry.name for g in asked):
                    choices.append(free | {symmetry.name})
            found = []
            for choice in choices:
                self.free[symmetry] = choice
                network = self.train(symmetry, train).network
                quality = self.scoring.quality(outputs(network, self.x[choose]), self.y[choose])
                found.append((quality, choice, network))
            quality, self.free[symmetry], network = max(found, key=lambda one: one[0])
            self.networks[symmetry] = quality, network
        return self.networks[symmetry]

    def chosen(self, name: str, train: Tensor, choose: Tensor) -> Symmetry | None:
        """What the network of a candidate obeys; None: it has a path for every candidate."""
        if name != FREE:
            return self.groups[name]
        # What obeys nothing has two networks, and the better one is the yardstick.
        return max((None, trivial()), key=lambda kind: self.best(kind, train, choose)[0])

    def train_on(self, name: str, train: Tensor, choose: Tensor) -> None:
        """Train the network of a candidate for as many epochs again, and keep the better one."""
        kind = self.chosen(name, train, choose)
        before, network = self.best(kind, train, choose)
        network = self.train(kind, train, network).network
        quality = self.scoring.quality(outputs(network, self.x[choose]), self.y[choose])
        if quality > before:
            self.networks[kind] = quality, network
            self.rounds[kind] += 1

    def trained(self, symmetry: Symmetry | None, indices: Tensor) -> Fit:
        """A network trained as often as that of the search."""
        found = self.train(symmetry, indices)
        for _ in range(self.rounds[symmetry]):
            found = self.train(symmetry, indices, found.network)
        return found

    def _stricter(self, symmetry: Symmetry | None) -> list[Symmetry]:
        """Candidates that contain the symmetry; None: all."""
        if symmetry is not None and symmetry.is_trivial:
            return []  # a multilayer perceptron, which has none of their paths
        names = self.groups.names if symmetry is None else self.groups.supergroups(symmetry.name)
        members = [self.groups[name] for name in names]
        return [m for m in members if not m.is_trivial and m != symmetry]

    def train(
        self, symmetry: Symmetry | None, indices: Tensor, start: torch.nn.Module | None = None
    ) -> Fit:
        """Train a network with the paths free that `best` has chosen, from where `start` ended.

        The strictest paths and those that are free have no prior at first. A product of weights
        starts near a saddle, where all its gradients are small, and a prior would keep it there.
        """
        chosen, network = self.settings, self.new(symmetry)
        held_back = {
            g.name: g.initial
            for g in Prior.from_network(network).groups
            if g.initial > 1 and g.path not in self.free[symmetry]
        }
        if start is not None:
            network.load_state_dict(start.state_dict())
        prior = Prior.from_network(network, precisions=WEAK if start is None else FREE_PRECISION)
        for name, precision in held_back.items():
            prior.set_precision(name, precision)

        def on_epoch(record: EpochRecord, evidence: Evidence) -> None:
            if record.epoch + 1 == math.ceil(UNTIL * chosen.epochs):
                for name in set(prior.names) - held_back.keys():
                    evidence.prior.set_precision(name, FREE_PRECISION)

        options: dict[str, Any] = {
            name: getattr(chosen, name) for name in ("epochs", "batch_size", "lr", "clip", "seed")
        }
        return fit(
            network,
            (self.x[indices], self.y[indices]),
            self.scoring.likelihood(),
            method="map",
            prior=prior,
            on_epoch=on_epoch,
            progress=False,
            **options,
        )

    def add(self, name: str, train: Tensor, choose: Tensor, held: Tensor) -> None:
        """Train and test one network."""
        x, y, scoring = self.x[held], self.y[held], self.scoring
        _, network = self.best(self.chosen(name, train, choose), train, choose)
        plain = outputs(network, x)
        spread = self.y.double().var(0, unbiased=False).mean().sqrt().item()
        calibration = scoring.calibrated(plain, y).clamp(min=self.settings.resolution * spread)
        averaged, told, quality = {}, {}, {}
        for above in self.candidates.names:
            if name != FREE and name not in self.candidates.inside[above]:
                continue
            moved = self._moved(network, x, self.groups[above])
            mean = scoring.averaged(moved, calibration)
            averaged[above] = scoring.scores(mean, y, scoring.neutral(calibration)).numpy()
            rows = torch.arange(min(len(plain), MOST_TOLD))
            mixed = moved[rows % len(moved), rows]
            one, other = (scoring.signature(f).numpy() for f in (plain[: len(rows)], mixed))
            # No distribution of data is invariant to boosts or scalings: moved data are never
            # like the data, and only imposing such a group tells.
            compact = self.groups[above].is_orthogonal
            told[above] = told_apart(one, other) if compact else 1.0
            quality[above] = scoring.quality(mean, y)
        scores = scoring.scores(plain, y, calibration).numpy()
        self.tested[name] = Tested(scores, averaged, told, quality)
        count = sum(p.numel() for p in network.parameters())
        row = replace(scoring.row(name, plain, y), parameters=count)
        self.rows[name] = row
        shown = "no symmetry" if name == FREE else name
        self.say(f"{shown}: held-out R² {row.r2:.4f}, NLL {row.nll:.3f}")

    def _moved(self, network: torch.nn.Module, x: Tensor, symmetry: Symmetry) -> Tensor:
        """g⁻¹·f(g·x) for random elements g, (MOTIONS, n, outputs)."""
        space_in, space_out = self.spaces
        found = []
        for g in space_in.sample(symmetry, MOTIONS, self.settings.seed):
            moved = outputs(network, space_in.act(g, x))
            shaped = moved.view(-1, *space_out.shape)
            found.append(space_out.act(g.inverse(), shaped).flatten(1))
        return torch.stack(found)

    def compare(self, train: Tensor, held: Tensor) -> Comparison:
        chance = self.scoring.chance(self.y[train], self.y[held])[0].double().numpy()
        labels = self.scoring.labels(self.y[held]).numpy()
        return Comparison(self.tested, chance, labels, self.candidates, self.settings.claims, LOOKS)

    def chance_row(self, train: Tensor, held: Tensor) -> Consequence:
        scores, f = self.scoring.chance(self.y[train], self.y[held])
        quality = self.scoring.quality(f, self.y[held])
        return Consequence("chance", nll=-float(scores.mean()), r2=quality)

    def imposed(self, judgement: Judgement) -> Symmetry:
        """The symmetry of the network that is handed over; undecided: the best on held-out data."""
        if judgement.obeys:
            return self.groups[judgement.obeys[0]]
        best = max(self.tested, key=lambda n: float(self.tested[n].scores.mean()))
        return trivial() if judgement.obeys == () or best == FREE else self.groups[best]


def fit_equivariant(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry | None,
    settings: EquivarianceSettings | None = None,
    *,
    free: Collection[str] | None = None,
) -> Fit:
    """Train one network of `find_equivariance` on all data.

    Parameters
    ----------
    data, groups, space_in, space_out, settings
        As in `find_equivariance`.
    symmetry
        The member that the network obeys; a trivial one gives a multilayer perceptron, None a
        network with a path for every member, as residual pathway priors have it.
    free
        The members whose own paths are not shrunk, such as `FoundEquivariance.free`. By default,
        this is chosen on held-out data, as `find_equivariance` does.
    """
    chosen = settings or EquivarianceSettings()
    _check(data, space_in, space_out)
    search = _Search(data, groups, space_in, space_out, chosen, lambda line: None)
    if free is None:
        train, choose, _ = _held_out(data, chosen)
        search.best(symmetry, train, choose)
    else:
        search.free[symmetry] = frozenset(free)
    return search.train(symmetry, torch.arange(len(data[0])))


def _held_out(
    data: tuple[Tensor, Tensor], settings: EquivarianceSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Which data to train on, which to choose networks by, and which to test candidates on."""
    blocks = copies(data[0])

    def parted(indices: Tensor, share: float) -> tuple[Tensor, Tensor]:
        one, other = split(
            torch.zeros(len(indices), dtype=torch.long),
            FindSettings(held_out=share, looks=1, seed=settings.seed),
            blocks=blocks[indices],
        )
        return indices[one], indices[other]

    train, rest = parted(torch.arange(len(data[0])), settings.held_out)
    held, choose = parted(rest, CHOOSING)
    return train, choose, held


def _check(data: tuple[Tensor, Tensor], space_in: FeatureSpace, space_out: FeatureSpace) -> None:
    x, y = data
    space_in.check(x)
    if y.ndim != 2 or y.shape != (len(x), space_out.size):
        raise ValueError(
            f"expected targets of shape ({len(x)}, {space_out.size}) for {space_out}, "
            f"got {tuple(y.shape)}"
        )
    if not (bool(torch.isfinite(x).all()) and bool(torch.isfinite(y).all())):
        raise ValueError("the data have entries that are not finite")
    if bool((y == y[0]).all()):
        raise ValueError("all targets are the same: there is nothing to learn")
