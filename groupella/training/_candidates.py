"""Networks of the candidates of a search: train one, and predict held-out data with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

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
from groupella.evidence.likelihoods import Gaussian, Likelihood
from groupella.groups import Element, GroupSet, Symmetry, trivial, value_space
from groupella.networks import InvariantNet, fold, invariant_net
from groupella.nn.turning import turned

from ._blocks import copies
from ._fit import Fit, OnEpoch, fit
from ._footprint import check_footprint, check_problem, check_steps, footprint
from ._scoring import Scoring, Weighted
from ._settings import Settings, require_positive, require_seed, require_whole

BATCH = 64
STEPS = 280  # of one training, at least
FEWEST, MOST = 8, 80  # epochs
CHECKPOINT = 5  # epochs: a training takes seconds
MOTIONS = 8
CURVATURE_DATA = 200
MOST_NUMBERS = 1 << 20  # of inputs that are predicted at once
MOST_TOLD = 500  # held-out data by which moved ones are told apart
MOST_MOVED = 100  # held-out data on which the error of an exact symmetry is measured


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
    confirm
        "predictions" tests what averaging over each candidate and imposing it cost. "evidence"
        compares log p(held-out data | training data) of the candidates alone.
    lr, batch_size, width
        Learning rate at the top of its cycle, batch size, and channels times fibre of the first
        layer.
    seed
        Random seed for the split, weights and batch order.
    claims
        How strict the decision is.
    """

    epochs: int | None = None
    longer: float = 0.5
    held_out: float = 0.25
    looks: int = 2
    layers: bool = True
    confirm: Literal["predictions", "evidence"] = "predictions"
    lr: float = 0.01
    batch_size: int = BATCH
    width: int = 32
    seed: int = 0
    claims: Claims = field(default_factory=Claims)

    def __post_init__(self) -> None:
        if self.epochs is not None:
            require_whole("epochs", self.epochs, 1)
        for name in ("looks", "batch_size", "width"):
            require_whole(name, getattr(self, name), 1)
        require_seed(self.seed)
        require_positive("lr", self.lr)
        require_positive("longer", self.longer)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out must lie between 0 and 1, got {self.held_out!r}")
        if not 1 <= self.looks <= 1 / self.held_out:
            raise ValueError(
                f"looks must be at least 1 and at most 1/held_out, so that each holds out other "
                f"data; got {self.looks!r} and {self.held_out!r}"
            )

        if self.confirm not in ("predictions", "evidence"):
            raise ValueError(f"confirm must be 'predictions' or 'evidence', got {self.confirm!r}")

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


@dataclass(frozen=True)
class TestedNetwork:
    """A network on held-out data, its row of the table, and what it sees that a symmetry hides.

    `sees` has its outputs (n, K) less their mean over each symmetry that it need not obey. Where
    the targets obey that symmetry, this says nothing about them.
    """

    tested: Tested
    row: Consequence
    sees: Mapping[str, Tensor]


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
        blocks: Tensor | None = None,
    ) -> None:
        self.x, self.y = data
        self._blocks = blocks
        self.scoring, self.settings, self.weights = scoring, settings, weights
        self.directory = None if directory is None else Path(directory)
        self.progress = progress
        self.on_epoch: OnEpoch | None = None
        self.lattice = tuple(int(n) for n in self.x.shape[2:])
        acting = [g for g in groups if not g.is_trivial]
        self.convolutions = bool(self.lattice) and any(g.is_catalogue for g in acting)

    @cached_property
    def blocks(self) -> Tensor:
        """Which data stay together; found only when a search that fits needs it."""
        return copies(self.x) if self._blocks is None else self._blocks

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
        often = settings.trainings(groups) + settings.longer
        check_steps(often * training.epochs * math.ceil(n / training.batch_size))
        if check_problem(groups, shape, settings.width, training.batch_size):
            free = Plan(trivial())
            held = self.x.numel() * self.x.element_size()
            found = footprint(self.network(free), shape)
            check_footprint(
                found, free.outputs, training.batch_size, held, often * training.epochs * n
            )

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
            if isinstance(likelihood, Gaussian) and not network.outputs.calibrated:
                network.outputs.calibrate([y])  # `fit` does not know what weights mean
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
            progress=self.progress and name,
            on_epoch=self.on_epoch,
        )

    def test(
        self,
        name: str,
        trained: Fit,
        held: Tensor,
        above: Iterable[Symmetry] = (),
        hidden: Mapping[str, Tensor] | None = None,
    ) -> TestedNetwork:
        """Predict held-out data as they are, and averaged over each symmetry of `above`.

        `hidden` has what networks that obey less see of the data and this one cannot: the field
        `sees` of theirs, for what this one obeys.
        """
        x, y = self.x[held], self.y[held]
        scoring, network = self.scoring, _folded(trained)
        plain = outputs(network, x)
        calibration = scoring.calibrated(plain, y)
        scores, targets = self._scored(plain, y, calibration, held)
        averaged, apart, told, quality, sees = {}, {}, {}, {}, {}
        for symmetry in above:
            moved = self._moved(network, x, symmetry)
            # At one calibration, set before averaging: one set after it could undo the averaging.
            mean = scoring.averaged(moved, calibration)
            together = self._scored(mean, y, scoring.neutral(calibration), held)
            averaged[symmetry.name] = together[0]
            if together[1] is not None:
                apart[symmetry.name] = together[1]
            told[symmetry.name] = _told(plain, moved, scoring)
            quality[symmetry.name] = scoring.quality(mean, y)
            sees[symmetry.name] = plain - moved.mean(0)
        row = replace(
            scoring.row(name, plain, y),
            parameters=sum(p.numel() for p in trained.network.parameters()),
        )
        leftover = {
            weaker: self.weighed(scoring.leftover(plain, y, calibration, beyond), held)
            for weaker, beyond in (hidden or {}).items()
        }
        each = {
            weaker: self.weighed(scoring.leftover_each(plain, y, calibration, beyond), held)
            for weaker, beyond in (hidden or {}).items()
        }
        tested = Tested(
            scores,
            averaged,
            told,
            quality,
            leftover=leftover,
            leftover_each=each,
            by_target=targets,
            averaged_by_target=apart,
        )
        return TestedNetwork(tested, row, sees)

    def _scored(
        self, f: Tensor, y: Tensor, calibration: Tensor, held: Tensor
    ) -> tuple[FloatArray, FloatArray | None]:
        """The score of each held-out datum, and of each target if there are several."""
        parts = self.weighed(self.scoring.by_target(f, y, calibration), held)
        return parts.sum(1), parts if parts.shape[1] > 1 else None

    def weighed(self, scores: Tensor, held: Tensor) -> FloatArray:
        """Scores of held-out data, (n,) or (n, K), times their weights, which have the mean 1."""
        if self.weights is not None:
            weights = self.weights[held].double()
            weights = weights / weights.mean().clamp(min=1e-12)
            scores = scores * (weights if scores.dim() == 1 else weights[:, None])
        found: FloatArray = scores.double().numpy()
        return found

    def invariance_error(self, trained: Fit, held: Tensor, symmetry: Symmetry) -> float:
        """How far predictions move when data do, at most, relative to their norm."""
        # Exact symmetries need no more than a look.
        x = self.x[held if symmetry.is_approximate else held[:MOST_MOVED]]
        network = _folded(trained)
        plain = self.scoring.predictions(outputs(network, x))
        scale = plain.norm().clamp(min=1e-12)
        moved = self._moved(network, x, symmetry)
        return max(float((self.scoring.predictions(m) - plain).norm() / scale) for m in moved)

    def _moved(self, network: nn.Module, x: Tensor, symmetry: Symmetry) -> Tensor:
        space = value_space(GroupSet(symmetry), self.lattice, int(x.shape[1]))
        elements = motions(symmetry, self.lattice, self.settings.seed)
        if not symmetry.is_approximate:
            return torch.stack([outputs(network, space.act(g, x)) for g in elements])
        # Inputs are standardised: zeros from outside would be no background.
        angles = turn_angles(symmetry, self.settings.seed)
        return torch.stack(
            [
                outputs(network, space.act(g, turned(x, angle, "border")))
                for g, angle in zip(elements, angles, strict=True)
            ]
        )


def _folded(trained: Fit) -> InvariantNet:
    """The network without normalisation: the one that is handed over, and faster."""
    assert isinstance(trained.network, InvariantNet)
    return fold(trained.network)


def observed(
    network: nn.Module,
    data: tuple[Tensor, Tensor],
    trained: Fit,
    likelihood: Likelihood,
    ignore: Sequence[str] = (),
) -> Evidence:
    """The evidence of a network, with its curvature on some of the data and its best precisions."""
    evidence = Evidence(network, likelihood, ignore=ignore)
    evidence.update(data, subset=CURVATURE_DATA, mode=mc(4, seed=trained.settings.seed))
    return evidence


def split(
    labels: Tensor, settings: FindSettings, fold: int = 0, blocks: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Indices of the training and the held-out data, about the same share of every class.

    Different folds hold out different data, if there are enough. Data with the same number in
    `blocks` stay together, and count for the class of one of them.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    order = torch.randperm(len(labels), generator=generator)
    ranks = torch.empty(len(labels), dtype=torch.double)
    first = _first(torch.arange(len(labels)) if blocks is None else blocks, order)
    for label in torch.unique(labels[first]):
        mine = order[labels[first[order]] == label]
        # Blocks in the order of their first datum, each in the middle of its own data.
        _, block, sizes = torch.unique(first[mine], return_inverse=True, return_counts=True)
        place = torch.full((len(sizes),), len(mine)).scatter_reduce(
            0, block, torch.arange(len(mine)), "amin"
        )
        turn = place.argsort()
        middle = torch.empty(len(sizes), dtype=torch.double)
        middle[turn] = sizes[turn].cumsum(0) - 0.5 * sizes[turn].double()
        ranks[mine] = middle[block] / len(mine)
    held = (fold * settings.held_out <= ranks) & (ranks < (fold + 1) * settings.held_out)
    if not 0 < int(held.sum()) < len(labels):
        held = torch.zeros(len(labels), dtype=torch.bool)
        count = max(int(settings.held_out * len(labels)), 1)
        # The first of each class is trained on: who has not seen a class cannot predict it.
        spare = order[ranks[order] * _sizes(labels)[order] > 1]
        if not len(spare):
            raise ValueError(
                f"{len(labels)} data of {len(torch.unique(labels))} classes: no class has two, of "
                "which one can be held out. Give more data, or, if they are measurements, the task "
                '"regression"'
            )
        start = fold * count % len(spare)
        held[spare[start : start + count]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def _first(blocks: Tensor, order: Tensor) -> Tensor:
    """For each datum, that of its block which comes first in the order."""
    block = torch.unique(blocks, return_inverse=True)[1]
    n = len(blocks)
    place = torch.full((n,), n).scatter_reduce(0, block[order], torch.arange(n), "amin")
    return order[place[block]]


def _sizes(labels: Tensor) -> Tensor:
    """How many data have the label of each."""
    _, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    found: Tensor = counts[inverse]
    return found


@torch.no_grad()
def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """Return the outputs (n, K) of a network in evaluation mode, as float64.

    Parameters
    ----------
    network
        Any network with outputs (n, K).
    x
        Inputs (n, …); of large ones, no more at once than a batch.
    """
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
    if symmetry.is_approximate:  # besides `turn_angles`, which have the quarter turns
        still = Symmetry("shifts", len(lattice), symmetry.translations)
        return space.sample(still, symmetry.sampled_turns, seed)
    if not symmetry.translations:
        return list(space.elements(symmetry))
    each = max(math.ceil(MOTIONS / len(points)), 1)
    shifts = space.sample(Symmetry("shifts", len(lattice), True), each * len(points), seed)
    about = list(space.elements(Symmetry("point", len(lattice), False, points)))
    return [shift * about[i % len(points)] for i, shift in enumerate(shifts)]


def turn_angles(symmetry: Symmetry, seed: int) -> list[float]:
    """Angles in degrees that stand for the turns of an image: all of them, or 16 at random."""
    n = symmetry.sampled_turns
    step = 360 / n
    if symmetry.turns:
        return [k * step for k in range(n)]
    drawn = torch.rand(n, generator=torch.Generator().manual_seed(seed)).tolist()
    return [(k + part) * step for k, part in enumerate(drawn)]


def _told(plain: Tensor, moved: Tensor, scoring: Scoring, most: int = MOST_TOLD) -> float:
    """How often predictions for moved data are told from those for the data.

    The first motion may be the identity.
    """
    others = moved[1:] if len(moved) > 1 else moved
    rows = torch.arange(min(len(plain), most))
    mixed = others[rows % len(others), rows]
    return told_apart(scoring.signature(plain[:most]).numpy(), scoring.signature(mixed).numpy())
