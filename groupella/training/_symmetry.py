"""`find_symmetry`: which symmetry do the labels of a data set obey?

1. Hold out a part of the data. On the rest, train a network that obeys nothing and one for each
   candidate (`groupella.networks.invariant_net`).
2. On the held-out part, measure what averaging predictions over each candidate costs, and what
   imposing it costs. `groupella.decide.claims` decides; "undecided" is an answer.
3. Train the network that obeys the verdict on all data, and fold its normalisation away.

All trainings go through `fit`: an interrupted search resumes and gives the same result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from groupella._files import file_name
from groupella.curvature import evaluation, mc
from groupella.decide import Candidates, Selection, selection
from groupella.decide.claims import FREE, Claims, Consequence, Judgement, Tested, judge
from groupella.evidence import Evidence, Prior
from groupella.evidence.likelihoods import Categorical
from groupella.groups import Element, GroupSet, Symmetry, trivial
from groupella.networks import InvariantNet, fold, invariant_net

from ._fit import Fit, fit
from ._settings import Settings

BATCH = 64
STEPS = 280  # of one training, at least
FEWEST, MOST = 8, 80  # epochs
MOTIONS = 8
CURVATURE_DATA = 200
TEMPERATURES = np.geomspace(0.2, 8.0, 61)


@dataclass(frozen=True)
class FoundSymmetry:
    """The answer of `find_symmetry`: the judgement, the network that obeys it, and the table."""

    judgement: Judgement
    symmetry: Symmetry
    fit: Fit
    consequences: tuple[Consequence, ...]
    candidates: Candidates

    @property
    def verdict(self) -> str:
        """A name, "p4 and flips", "none" or "undecided"."""
        return self.judgement.verdict

    @cached_property
    def network(self) -> InvariantNet:
        """The trained network, without normalisation."""
        network = self.fit.network
        assert isinstance(network, InvariantNet)
        return fold(network)

    def selection(self, data: tuple[Tensor, Tensor]) -> Selection:
        """Return what each layer obeys, with the numbers of the evidence of the folded network.

        Layers obey what is imposed on them; the verdict on the network is that of the judgement.
        """
        found = selection(self.network, observed(self.network, data, self.fit))
        names = self.judgement.obeys or ()
        inside = {m for name in names for m in (name, *self.candidates.inside[name])}
        members = tuple(n for n in self.candidates.names if n in inside)
        layers = tuple(
            replace(
                layer,
                paths=tuple(replace(p, members=members, alive=True) for p in layer.paths),
                verdict=self.verdict,
                clearness=math.inf,
                alternative=None,
            )
            for layer in found.layers
        )
        return replace(found, layers=layers, candidates=self.candidates, judgement=self.judgement)


@dataclass(frozen=True)
class FindSettings:
    """How to search.

    Parameters
    ----------
    epochs
        Epochs of each training; None for about 280 steps, at least 8 epochs and at most 80.
    longer
        The network that is handed over is trained for this many times the epochs.
    held_out
        Share of the data on which claims are tested.
    lr, batch_size, width
        Learning rate at the top of its cycle, batch size, and channels times fibre of the first
        layer.
    seed
        Random seed for the split, weights and batch order.
    claims
        How strict the decision is.
    """

    epochs: int | None = None
    longer: float = 2.5
    held_out: float = 0.25
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
        )


def find_symmetry(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    classes: int | None = None,
    settings: FindSettings | None = None,
    *,
    validation: tuple[Tensor, Tensor] | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> FoundSymmetry:
    """Return which of the groups the labels obey, and a network trained on all data that does.

    Parameters
    ----------
    data
        Inputs (n, channels, *lattice) and class labels (n,).
    groups
        The candidates. "none" is always among them.
    classes
        The number of classes; by default the largest label plus one.
    settings
        See `FindSettings`.
    validation
        Data on which the final network is scored after every epoch; they decide nothing.
    directory
        Where trainings are saved, each in a directory of its own; an interrupted search resumes.
    say
        Called with one line after each training.

    Raises
    ------
    ValueError
        If all data have the same label.
    """
    chosen = settings or FindSettings()
    x, y = data
    if len(torch.unique(y)) < 2:
        raise ValueError("all data have the same label: there is nothing to learn")
    count = int(y.max()) + 1 if classes is None else classes
    task = _Task(x, y, count, groups, chosen, directory, progress)
    candidates = Candidates.of(groups)
    train, held = _split(y, chosen)
    symmetries = {FREE: trivial(), **{name: groups[name] for name in candidates.names}}
    for symmetry in symmetries.values():
        task.network(symmetry)  # what cannot be built is refused before any training
    tested: dict[str, Tested] = {}
    table: list[Consequence] = []
    for name, symmetry in symmetries.items():
        trained = task.train(symmetry, train, name)
        tested[name], row = task.test(trained, held, symmetries, name)
        table.append(replace(row, log_evidence=task.log_evidence(trained, train)))
        if say is not None:
            score = f"held-out accuracy {100 * row.accuracy:.1f} %, NLL {row.nll:.3f}"  # type: ignore[operator]
            say(f"{'no symmetry' if name == FREE else name}: {score}")
    chance = _chance(y[train], count)[y[held]].numpy()
    judgement = judge(tested, chance, y[held].numpy(), candidates, chosen.claims)
    best = max(tested, key=lambda name: float(tested[name].scores.mean()))
    symmetry = _imposed(judgement, groups, symmetries[best])
    final = task.train(symmetry, torch.arange(len(y)), "final", validation, chosen.longer)
    rows = (_chance_row(y[train], y[held], count), *table)
    return FoundSymmetry(judgement, symmetry, final, rows, candidates)


class _Task:
    """The data of one search, and the two things done with them."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        classes: int,
        groups: GroupSet,
        settings: FindSettings,
        directory: str | Path | None,
        progress: bool,
    ) -> None:
        self.x, self.y, self.classes = x, y, classes
        self.groups, self.settings = groups, settings
        self.directory = None if directory is None else Path(directory)
        self.progress = progress
        self.lattice = tuple(int(n) for n in x.shape[2:])
        self.convolutions = bool(self.lattice) and any(g.is_catalogue for g in groups)

    def network(self, symmetry: Symmetry) -> InvariantNet:
        """A network that obeys `symmetry`, the same for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)
            return invariant_net(
                symmetry,
                self.lattice,
                int(self.x.shape[1]),
                self.classes,
                width=self.settings.width,
                convolutions=self.convolutions,
            )

    def train(
        self,
        symmetry: Symmetry,
        indices: Tensor,
        name: str,
        validation: tuple[Tensor, Tensor] | None = None,
        longer: float = 1.0,
    ) -> Fit:
        """Train a network that obeys `symmetry` on some of the data."""
        network = self.network(symmetry)
        return fit(
            network,
            (self.x[indices], self.y[indices]),
            Categorical(),
            self.settings.training(len(indices), longer),
            prior=Prior.from_network(network, precisions=1e-6),
            validation=validation,
            directory=None if self.directory is None else self.directory / file_name(name),
            progress=self.progress,
        )

    def test(
        self, trained: Fit, held: Tensor, symmetries: Mapping[str, Symmetry], name: str
    ) -> tuple[Tested, Consequence]:
        """Predict the held-out data as they are and moved by each candidate."""
        x, y = self.x[held], self.y[held]
        network = trained.network
        rows = torch.arange(len(y))
        plain = _log_probabilities(network, x)
        temperature = _temperature(plain, y)
        scores = (plain / temperature).log_softmax(1)[rows, y].numpy()
        averaged, confidence = {}, {}
        error = None
        for other, symmetry in symmetries.items():
            if other == FREE:
                continue
            moved = self._moved(network, x, symmetry)
            # At one temperature, set before averaging: one set after it could undo the averaging.
            cooled = torch.stack([(m / temperature).log_softmax(1) for m in moved])
            together = torch.logsumexp(cooled, 0) - math.log(len(moved))
            averaged[other] = together[rows, y].numpy()
            sure = torch.stack([m.exp().amax(1).mean() for m in moved]).mean()
            confidence[other] = float(sure / plain.exp().amax(1).mean())
            if other == name:
                scale = plain.exp().norm().clamp(min=1e-12)
                error = max(float((m.exp() - plain.exp()).norm() / scale) for m in moved)
        picked = plain[rows, y]
        row = Consequence(
            name,
            accuracy=float((plain.argmax(1) == y).double().mean()),
            nll=-float(picked.mean()),
            equivariance_error=error,
            parameters=sum(p.numel() for p in network.parameters()),
        )
        return Tested(scores, averaged, confidence), row

    def log_evidence(self, trained: Fit, indices: Tensor) -> float:
        """The log evidence of the folded network on its training data, by Kronecker factors."""
        network = trained.network
        assert isinstance(network, InvariantNet)
        return observed(fold(network), (self.x[indices], self.y[indices]), trained).log_evidence

    def _moved(self, network: nn.Module, x: Tensor, symmetry: Symmetry) -> list[Tensor]:
        space = GroupSet(symmetry).space(self.lattice, int(x.shape[1]), "trivial")
        elements = motions(symmetry, self.lattice, self.settings.seed)
        return [_log_probabilities(network, space.act(g, x)) for g in elements]


def observed(network: nn.Module, data: tuple[Tensor, Tensor], trained: Fit) -> Evidence:
    """The evidence of a network, with its curvature on some of the data and its best precisions."""
    evidence = Evidence(network, Categorical())
    evidence.update(data, subset=CURVATURE_DATA, mode=mc(4, seed=trained.settings.seed))
    return evidence


def _split(y: Tensor, settings: FindSettings) -> tuple[Tensor, Tensor]:
    """Indices of the training and the held-out data, the same share of every class."""
    generator = torch.Generator().manual_seed(settings.seed)
    order = torch.randperm(len(y), generator=generator)
    ranks = torch.empty(len(y), dtype=torch.double)
    for label in torch.unique(y):
        mine = order[y[order] == label]
        ranks[mine] = (torch.arange(len(mine), dtype=torch.double) + 0.5) / len(mine)
    held = ranks < settings.held_out
    if not 0 < int(held.sum()) < len(y):
        held = torch.zeros(len(y), dtype=torch.bool)
        held[order[: max(int(settings.held_out * len(y)), 1)]] = True
    return (~held).nonzero().flatten(), held.nonzero().flatten()


def _imposed(judgement: Judgement, groups: GroupSet, best: Symmetry) -> Symmetry:
    """The symmetry of the network that is handed over; undecided: the best on held-out data."""
    if judgement.obeys is None:
        return best
    if not judgement.obeys:
        return trivial()
    names = judgement.obeys
    return groups[names[0]] if len(names) == 1 else groups.join(*names)


def _chance(y: Tensor, classes: int) -> Tensor:
    """Log frequencies of the classes, each counted once more than it occurs."""
    counts = torch.bincount(y, minlength=classes).double() + 1
    return (counts / counts.sum()).log()


def _chance_row(train: Tensor, held: Tensor, classes: int) -> Consequence:
    log_frequency = _chance(train, classes)
    common = int(log_frequency.argmax())
    return Consequence(
        "chance",
        accuracy=float((held == common).double().mean()),
        nll=-float(log_frequency[held].mean()),
    )


@torch.no_grad()
def _log_probabilities(network: nn.Module, x: Tensor, batch: int = 500) -> Tensor:
    with evaluation(network):
        return torch.cat([network(part).double().log_softmax(1) for part in torch.split(x, batch)])


def _temperature(log_p: Tensor, y: Tensor) -> float:
    """The temperature at which predictions are most probable.

    A network that is too sure of itself gains by anything that makes it less so, also by averaging
    over a group that the labels do not obey; at the best temperature only information counts.
    """
    rows = torch.arange(len(y))

    def score(temperature: float) -> float:
        return float((log_p / temperature).log_softmax(1)[rows, y].mean())

    return float(max(TEMPERATURES, key=score))


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
