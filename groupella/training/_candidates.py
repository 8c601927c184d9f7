"""Networks of the candidates of a search: train one, and predict held-out data with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from groupella._files import file_name
from groupella.curvature import evaluation, mc
from groupella.decide.claims import (
    FREE,
    LAYER_TRIALS,
    Claims,
    Consequence,
    FloatArray,
    Tested,
    told_apart,
)
from groupella.evidence import Evidence, Prior
from groupella.groups import Element, GroupSet, Symmetry, trivial
from groupella.networks import InvariantNet, fold, invariant_net

from ._fit import Fit, OnEpoch, fit
from ._footprint import check_footprint, check_problem, footprint
from ._scoring import Scoring, Weighted
from ._settings import Settings

BATCH = 64
STEPS = 280  # of one training, at least
FEWEST, MOST = 8, 80  # epochs
CHECKPOINT = 5  # epochs: a training takes seconds
MOTIONS = 8
CURVATURE_DATA = 200
MOST_NUMBERS = 1 << 20  # of inputs that are predicted at once
MOST_TOLD = 500  # held-out data by which moved ones are told apart


@dataclass(frozen=True)
class FindSettings:
    """How to search.

    Parameters
    ----------
    epochs
        Epochs of each training; None for about 280 steps, at least 8 epochs and at most 80.
    longer
        The network that is handed over is trained on with all data for this many times the epochs.
    held_out
        Share of the data on which claims are tested.
    looks
        If the held-out data cannot tell, train and test again with other data held out, and decide
        on both: 2. With 1 the answer is then "undecided".
    layers
        Whether to ask also which first layers obey more than the outputs.
    lr, batch_size, width
        Learning rate at the top of its cycle, batch size, and channels times fibre of the first
        layer.
    seed
        Random seed for the split, weights and batch order.
    claims
        How strict the decision is.
    """

    epochs: int | None = None
    longer: float = 1.0
    held_out: float = 0.25
    looks: int = 2
    layers: bool = True
    lr: float = 0.01
    batch_size: int = BATCH
    width: int = 32
    seed: int = 0
    claims: Claims = field(default_factory=Claims)

    def __post_init__(self) -> None:
        if not 1 <= self.longer < math.inf:
            raise ValueError(f"longer must be at least 1, got {self.longer!r}")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, got {self.held_out!r}")
        if not 1 <= self.looks <= 1 / self.held_out:
            raise ValueError(
                f"looks must be at least 1 and at most 1/held_out, so that each holds out other "
                f"data; got {self.looks!r} and {self.held_out!r}"
            )

    def trainings(self, groups: GroupSet) -> int:
        """How many networks a search trains at most."""
        return self.looks * (len(groups) + 1) + (LAYER_TRIALS + 1 if self.layers else 0) + 1

    def training(self, n: int, longer: float = 1.0) -> Settings:
        """Settings of one training on n data: equal batches, one cycle of the learning rate."""
        steps = max(math.ceil(n / self.batch_size), 1)
        epochs = self.epochs or min(max(math.ceil(STEPS / steps), FEWEST), MOST)
        return Settings(
            method="map",
            schedule="one_cycle",
            epochs=math.ceil(longer * epochs),
            # A single sample in the last batch would have no variance to normalise.
            batch_size=next(b for b in itertools.count(math.ceil(n / steps)) if n % b != 1),
            lr=self.lr,
            prune_from=None,
            seed=self.seed,
            checkpoint_every=CHECKPOINT,
            keep_best=False,
        )


@dataclass(frozen=True)
class Plan:
    """What a network obeys: its outputs, and perhaps more in its first `depth` layers.

    `dense` layers map everything to everything and obey nothing.
    """

    outputs: Symmetry
    layers: Symmetry | None = None
    depth: int | None = None
    dense: bool = False

    @property
    def file_name(self) -> str:
        name = FREE if self.outputs.is_trivial else self.outputs.name
        if self.layers is not None:
            name += f" with {self.depth} layers {self.layers.name}"
        return file_name(name + " and dense layers" if self.dense else name)


class CandidateNetworks:
    """The networks of one search: how they are built, trained and tested."""

    def __init__(
        self,
        data: tuple[Tensor, Tensor],
        scoring: Scoring,
        groups: GroupSet,
        settings: FindSettings,
        directory: str | Path | None,
        progress: bool,
        weights: Tensor | None = None,
    ) -> None:
        self.x, self.y = data
        self.scoring, self.settings, self.weights = scoring, settings, weights
        self.directory = None if directory is None else Path(directory)
        self.progress = progress
        self.on_epoch: OnEpoch | None = None
        self.lattice = tuple(int(n) for n in self.x.shape[2:])
        self.convolutions = bool(self.lattice) and any(g.is_catalogue for g in groups)

    def network(self, plan: Plan) -> InvariantNet:
        """A network as planned, the same for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            return invariant_net(
                plan.outputs,
                self.lattice,
                int(self.x.shape[1]),
                self.scoring.outputs,
                width=self.settings.width,
                convolutions=self.convolutions and not plan.dense,
                layers=plan.layers,
                depth=plan.depth,
            )

    def check_size(self, groups: GroupSet) -> None:
        """Raise `TooLargeError` if this machine cannot train the networks, before any is trained.

        All candidates cost about the same; the one that obeys nothing has the largest head.
        """
        settings, n = self.settings, len(self.y)
        training = settings.training(n)
        shape = tuple(int(size) for size in self.x.shape[1:])
        if check_problem(groups, shape, settings.width, training.batch_size):
            free = Plan(trivial())
            often = training.epochs * n * settings.trainings(groups)
            held = self.x.numel() * self.x.element_size()
            found = footprint(self.network(free), shape)
            check_footprint(found, free.outputs, training.batch_size, held, often)

    def train(
        self,
        plan: Plan,
        indices: Tensor,
        name: str,
        *,
        start: Fit | None = None,
        validation: tuple[Tensor, Tensor] | None = None,
        longer: float = 1.0,
    ) -> Fit:
        """Train a network on some of the data, from scratch or from where another one ended."""
        network = self.network(plan)
        if start is not None:
            network.load_state_dict(start.network.state_dict())
        y, likelihood = self.y[indices], self.scoring.likelihood()
        if self.weights is not None:
            y, likelihood = Weighted.pack(y, self.weights[indices]), Weighted(self.scoring)
            if validation is not None:
                ones = torch.ones(len(validation[1]))
                validation = (validation[0], Weighted.pack(validation[1], ones))
        return fit(
            network,
            (self.x[indices], y),
            likelihood,
            self.settings.training(len(indices), longer),
            prior=Prior.from_network(network, precisions=1e-6),
            validation=validation,
            directory=None if self.directory is None else self.directory / name,
            progress=self.progress,
            on_epoch=self.on_epoch,
        )

    def test(
        self, name: str, trained: Fit, held: Tensor, above: Iterable[Symmetry] = ()
    ) -> tuple[Tested, Consequence]:
        """Predict held-out data as they are, and averaged over each symmetry of `above`."""
        x, y = self.x[held], self.y[held]
        scoring, network = self.scoring, trained.network
        plain = outputs(network, x)
        calibration = scoring.calibrated(plain, y)
        scores = self.weighed(scoring.scores(plain, y, calibration), held)
        averaged, told, quality = {}, {}, {}
        for symmetry in above:
            moved = self._moved(network, x, symmetry)
            # At one calibration, set before averaging: one set after it could undo the averaging.
            mean = scoring.averaged(moved, calibration)
            together = scoring.scores(mean, y, scoring.neutral(calibration))
            averaged[symmetry.name] = self.weighed(together, held)
            told[symmetry.name] = _told(plain, moved, scoring)
            quality[symmetry.name] = scoring.quality(mean, y)
        row = replace(
            scoring.row(name, plain, y), parameters=sum(p.numel() for p in network.parameters())
        )
        return Tested(scores, averaged, told, quality), row

    def weighed(self, scores: Tensor, held: Tensor) -> FloatArray:
        """Scores of held-out data times their weights, which have the mean 1."""
        if self.weights is not None:
            weights = self.weights[held].double()
            scores = scores * weights / weights.mean().clamp(min=1e-12)
        found: FloatArray = scores.double().numpy()
        return found

    def invariance_error(self, trained: Fit, held: Tensor, symmetry: Symmetry) -> float:
        """How far predictions move when data do, at most, relative to their norm."""
        x = self.x[held]
        plain = self.scoring.predictions(outputs(trained.network, x))
        scale = plain.norm().clamp(min=1e-12)
        moved = self._moved(trained.network, x, symmetry)
        return max(float((self.scoring.predictions(m) - plain).norm() / scale) for m in moved)

    def log_evidence(self, trained: Fit, indices: Tensor) -> float:
        """The log evidence of the folded network on its training data, by Kronecker factors."""
        network = trained.network
        assert isinstance(network, InvariantNet)
        data = (self.x[indices], self.y[indices])
        return observed(fold(network), data, trained, self.scoring).log_evidence

    def _moved(self, network: nn.Module, x: Tensor, symmetry: Symmetry) -> Tensor:
        space = GroupSet(symmetry).space(self.lattice, int(x.shape[1]), "trivial")
        elements = motions(symmetry, self.lattice, self.settings.seed)
        return torch.stack([outputs(network, space.act(g, x)) for g in elements])


def observed(
    network: nn.Module, data: tuple[Tensor, Tensor], trained: Fit, scoring: Scoring
) -> Evidence:
    """The evidence of a network, with its curvature on some of the data and its best precisions."""
    likelihood = scoring.likelihood(outputs(network, data[0]), data[1])
    evidence = Evidence(network, likelihood)
    evidence.update(data, subset=CURVATURE_DATA, mode=mc(4, seed=trained.settings.seed))
    return evidence


def split(labels: Tensor, settings: FindSettings, fold: int = 0) -> tuple[Tensor, Tensor]:
    """Indices of the training and the held-out data, the same share of every class.

    Different folds hold out different data, if there are enough.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    order = torch.randperm(len(labels), generator=generator)
    ranks = torch.empty(len(labels), dtype=torch.double)
    for label in torch.unique(labels):
        mine = order[labels[order] == label]
        ranks[mine] = (torch.arange(len(mine), dtype=torch.double) + 0.5) / len(mine)
    held = (fold * settings.held_out <= ranks) & (ranks < (fold + 1) * settings.held_out)
    if not 0 < int(held.sum()) < len(labels):
        held = torch.zeros(len(labels), dtype=torch.bool)
        count = max(int(settings.held_out * len(labels)), 1)
        held[order[fold * count : (fold + 1) * count]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


@torch.no_grad()
def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """The outputs (n, K) of a network, in float64; of large data, no more at once than a batch."""
    size = max(BATCH, min(500, MOST_NUMBERS // max(x[:1].numel(), 1)))
    with evaluation(network):
        return torch.cat([network(part).double() for part in torch.split(x, size)])


def motions(symmetry: Symmetry, lattice: Sequence[int], seed: int) -> list[Element]:
    """At least `MOTIONS` elements, or all there are; as many for each element of the point group.

    Balanced, so that no motion that the labels do not obey is outweighed by those that they do.
    """
    space = GroupSet(symmetry).space(tuple(lattice), 1, "trivial")
    if not symmetry.is_catalogue:
        try:
            if symmetry.order() <= 2 * MOTIONS:
                return list(space.elements(symmetry))
        except ValueError:  # more elements than are enumerated
            pass
        return space.sample(symmetry, 2 * MOTIONS, seed)
    points = symmetry.point_in(len(lattice))
    if not symmetry.translations:
        return list(space.elements(symmetry))
    each = max(math.ceil(MOTIONS / len(points)), 1)
    shifts = space.sample(Symmetry("shifts", len(lattice), True), each * len(points), seed)
    about = list(space.elements(Symmetry("point", len(lattice), False, points)))
    return [shift * about[i % len(points)] for i, shift in enumerate(shifts)]


def _told(plain: Tensor, moved: Tensor, scoring: Scoring, most: int = MOST_TOLD) -> float:
    """How often predictions for moved data are told from those for the data.

    The first motion may be the identity.
    """
    others = moved[1:] if len(moved) > 1 else moved
    rows = torch.arange(min(len(plain), most))
    mixed = others[rows % len(others), rows]
    return told_apart(scoring.signature(plain[:most]).numpy(), scoring.signature(mixed).numpy())
