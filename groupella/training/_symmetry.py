"""`find_symmetry`: which symmetry do the labels of a data set obey?

1. Hold out a part of the data. On the rest, train a network that obeys nothing and one for each
   candidate (`groupella.networks.invariant_net`), weaker candidates first. Measure what averaging
   predictions of held-out data over the stricter ones costs; those that it rejects need no network,
   nor do those that contain one that clearly fails.
2. `groupella.decide.claims` decides. Where the held-out data cannot tell, hold out others, train
   again and decide on both; where networks learned noise by heart, train for a shorter time and
   decide on the others alone. "Undecided" is an answer.
3. Try whether the first layers may obey more than the outputs.
4. Train the network of the verdict on with all data, and fold its normalisation away.

All trainings go through `fit`: an interrupted search resumes and gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from groupella.bases import equivariant_basis
from groupella.decide import Candidates
from groupella.decide.claims import (
    FREE,
    Comparison,
    Consequence,
    Judgement,
    LayersFinding,
    Tested,
)
from groupella.groups import GroupSet, Symmetry, is_inside, on_values, permutations, trivial
from groupella.networks import InvariantNet

from ._candidates import CandidateNetworks, FindSettings, Plan, outputs, split
from ._fit import Fit, OnEpoch
from ._found import FoundSymmetry
from ._held_out import HeldOut
from ._scoring import SCORINGS, Scoring

SHORT = 0.25  # of the epochs, where networks learned their data by heart
BY_HEART = 0.1  # of what they know of their data helps on others
FAR = 1000.0  # the largest mean of real targets, in units of their standard deviation


def find_symmetry(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    classes: int | None = None,
    settings: FindSettings | None = None,
    *,
    task: str = "classes",
    weights: Tensor | None = None,
    blocks: Tensor | None = None,
    validation: tuple[Tensor, Tensor] | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> FoundSymmetry:
    """Return which of the groups the labels obey, and a network trained on all data that does.

    Parameters
    ----------
    data
        Inputs (n, channels, *lattice) and class labels (n,); for other tasks, targets (n, K).
    groups
        The candidates. "none" is always among them.
    classes
        The number of classes; by default the largest label plus one.
    settings
        See `FindSettings`.
    task
        "classes"; "regression" for real targets, in any units; "multilabel" for 0 and 1.
    weights
        The weight of each datum, of mean 1; None for equal weights.
    blocks
        A whole number for each datum. Data with the same number are held out together and count as
        one in the tests: images of one patient, say. By default copies of one another, exact or
        nearly so.
    validation
        Data on which the final network is scored after every epoch; they decide nothing.
    directory
        Where trainings are saved, each in a directory of its own; an interrupted search resumes.
    say
        Called with one line after each training.
    on_epoch
        Called with the record of each epoch of every training, and its evidence.

    Raises
    ------
    ValueError
        If all data have the same label, if the mean of real targets is more than 1,000 times their
        spread, if a group would do nothing to such inputs (a permutation of three colours, to two),
        or if a group is continuous (see `find_equivariance`).
    TooLargeError
        If the networks need more memory than there is, or months. It is a ValueError.
    """
    _check_finite(groups)
    chosen = settings or FindSettings()
    scoring = _scoring(data[1], task, classes)
    search = _Search.begun(data, groups, scoring, chosen, directory, progress, say, weights, blocks)
    search.networks.on_epoch = on_epoch
    networks, y = search.networks, data[1]
    looks, judgement = search.decide()
    look, symmetry = looks[0], search.imposed(judgement, looks)
    plan, start, tried = search.layers(look, judgement, Plan(symmetry))
    judgement = replace(judgement, obeys=search.listed(judgement.obeys), layers=tried)
    final = networks.train(
        plan,
        torch.arange(len(y)),
        "final",
        start=start,
        validation=validation,
        longer=look.length * (chosen.longer + (start is None)),
    )
    table = search.table(look)
    known = start or look.fits[search.best(looks)]
    held_out = HeldOut(known, look.train, look.held, *data, scoring)
    return FoundSymmetry(judgement, symmetry, final, table, search.candidates, scoring, held_out)


def judged(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    classes: int | None,
    settings: FindSettings,
    *,
    task: str,
    directory: str | Path | None,
    progress: bool,
    say: Callable[[str], None] | None,
    on_epoch: OnEpoch | None,
) -> tuple[Judgement, tuple[Consequence, ...]]:
    """What `find_symmetry` says of the labels, without a network that is handed over."""
    scoring = _scoring(data[1], task, classes)
    search = _Search.begun(data, groups, scoring, settings, directory, progress, say)
    search.networks.on_epoch = on_epoch
    looks, found = search.decide()
    return replace(found, obeys=search.listed(found.obeys)), search.table(looks[0])


def _check_finite(groups: GroupSet) -> None:
    """Refuse groups that act on vectors: here the entries of an input are numbers at sites."""
    for member in groups:
        if member.is_continuous:
            raise ValueError(
                f"{member} turns vectors, and find_symmetry takes numbers at sites; say which "
                "inputs are vectors, with groupella.training.find_equivariance"
            )


def _check_permuting(groups: GroupSet) -> None:
    """Refuse groups that do more to sites than permute them: features on these say too little."""
    for member in groups:
        for g in member.site_generators:
            if not g.permutes_sites:
                raise ValueError(
                    f"{member} changes signs or mixes the numbers at several sites, and a search "
                    "takes symmetries that permute sites. Give these numbers as values at one "
                    f"site: samples of shape ({len(g.moves)}, 1), and "
                    f"groupella.groups.internal({member.name!r}, 1, matrices)"
                )


def strict_networks(
    data: tuple[Tensor, Tensor],
    groups: GroupSet,
    classes: int | None = None,
    settings: FindSettings | None = None,
    *,
    directory: str | Path | None = None,
    progress: bool = True,
    say: Callable[[str], None] | None = None,
) -> tuple[Consequence, ...]:
    """Return the complete table of consequences: a network is trained for every candidate.

    `find_symmetry` leaves out those that it can reject without. The arguments are the same, and
    with the directory of a search its networks are not trained again.
    """
    chosen = settings or FindSettings()
    scoring = _scoring(data[1], "classes", classes)
    search = _Search.begun(data, groups, scoring, chosen, directory, progress, say)
    return search.table(search.look(0, every=True))


@dataclass(frozen=True)
class _Look:
    """Networks trained on one part of the data and tested on the other.

    `length` times the usual number of epochs.
    """

    number: int
    train: Tensor
    held: Tensor
    fits: dict[str, Fit] = field(default_factory=dict)
    tested: dict[str, Tested] = field(default_factory=dict)
    rows: dict[str, Consequence] = field(default_factory=dict)
    sees: dict[str, Mapping[str, Tensor]] = field(default_factory=dict)
    length: float = 1.0

    @property
    def is_shown(self) -> bool:
        """Whether the table is made from it; from later looks of the same length it is not."""
        return not self.number or self.length != 1.0


class _Search:
    """Which networks are trained, in which order."""

    def __init__(
        self, networks: CandidateNetworks, groups: GroupSet, say: Callable[[str], None]
    ) -> None:
        self.networks, self.asked, self.groups, self.say = networks, groups, groups, say
        self.candidates = Candidates.of(groups)
        self.plans = {FREE: Plan(trivial())} | {n: Plan(groups[n]) for n in self.candidates.names}

    @classmethod
    def begun(
        cls,
        data: tuple[Tensor, Tensor],
        groups: GroupSet,
        scoring: Scoring,
        settings: FindSettings,
        directory: str | Path | None,
        progress: bool,
        say: Callable[[str], None] | None,
        weights: Tensor | None = None,
        blocks: Tensor | None = None,
    ) -> _Search:
        """A search whose data and networks have been checked."""
        _check_permuting(groups)
        groups = on_values(groups, tuple(data[0].shape[2:]), int(data[0].shape[1]))
        networks = CandidateNetworks(
            data, scoring, groups, settings, directory, progress, weights, blocks
        )
        search = cls(networks, groups, say or (lambda line: None))
        networks.check_size(groups)
        for plan in search.plans.values():
            networks.network(plan)  # what cannot be built is refused before any training
        return search

    def decide(self) -> tuple[list[_Look], Judgement]:
        """Look until nothing is open, as often as allowed: all looks, and the verdict.

        The first one of these is to go on from.

        Where networks learned their training data by heart, noise in the targets say, the second
        look trains for a quarter of the time and decides alone. The level is shared by all looks,
        so that this is no more likely to be wrong.
        """
        chosen = self.networks.settings
        every = chosen.confirm == "evidence"
        looks = [self.look(0, every)]
        judgement = self.judgement(looks)
        if chosen.looks > 1 and judgement.obeys is None and not every and self.by_heart(looks[0]):
            short = self.look(1, length=SHORT)
            found = self.judgement([short])
            if found.obeys is not None or self.known(short) > self.known(looks[0]):
                return [short, *looks], found
            return [*looks, short], judgement
        while len(looks) < chosen.looks and judgement.open:
            looks.append(self.look(len(looks), every))
            judgement = self.judgement(looks)
        return looks, judgement

    def known(self, look: _Look) -> float:
        """The most nats per datum that a network knows of held-out data."""
        return max(gain.mean for gain in self.compare([look]).gained.values())

    def by_heart(self, look: _Look) -> bool:
        """Whether next to nothing of what the free network knows of its own data helps on others.

        Neither it nor any other network is better on held-out data than that.
        """
        scoring, y = self.networks.scoring, self.networks.y[look.train]
        f = outputs(look.fits[FREE].network, self.networks.x[look.train])
        own = scoring.scores(f, y, scoring.calibrated(f, y)) - scoring.guess(y, y)
        return self.known(look) < BY_HEART * float(own.mean())

    def look(self, number: int, every: bool = False, length: float = 1.0) -> _Look:
        """Train and test, weaker candidates first; those that averaging rejects only if asked."""
        networks = self.networks
        labels = networks.scoring.labels(networks.y)
        train, held = split(labels, networks.settings, number, networks.blocks)
        look = _Look(number, train, held, length=length)
        self._add(look, FREE)
        for name in self.compare([look]).order:
            if every or name not in self.compare([look]).findings:
                self._add(look, name)
        return look

    def judgement(self, looks: list[_Look]) -> Judgement:
        """What all looks say together, by tests or by the evidence alone.

        Groups that hold one by one are tested together before both are asserted: what they
        generate becomes a candidate.
        """
        if self.networks.settings.confirm == "evidence":
            return self.compare(looks).weighed
        found = self.compare(looks).judgement
        while found.obeys and len(found.obeys) > 1:
            self._join(found.obeys, looks)
            found = self.compare(looks).judgement
        return found

    def listed(self, obeys: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The names of a verdict, where a group that nobody listed is called by its parts."""
        if obeys is None:
            return None
        listed = self.asked.names
        return tuple(
            part
            for name in obeys
            for part in ((name,) if name in listed else self.candidates.joins[name])
        )

    def compare(self, looks: list[_Look]) -> Comparison:
        """What all looks say together, of the networks that all of them have."""
        networks = self.networks
        common = [n for n in looks[0].tested if all(n in k.tested for k in looks)]
        labels = [networks.scoring.labels(networks.y[k.held]) for k in looks]
        chance = [networks.weighed(_chance(networks, k)[0], k.held) for k in looks]
        guess = [networks.weighed(_guess(networks, k), k.held) for k in looks]
        return Comparison(
            {n: Tested.pooled([k.tested[n] for k in looks]) for n in common},
            np.concatenate(chance),
            torch.cat(labels).numpy(),
            self.candidates,
            networks.settings.claims,
            networks.settings.looks,
            np.concatenate(guess),
            torch.cat([networks.blocks[k.held] for k in looks]).numpy(),
            self._blind,
        )

    @cached_property
    def _blind(self) -> frozenset[str]:
        """Candidates that a network takes for all permutations of the sites.

        They take every pair of sites to every other, as the alternating group does.
        """
        found = set()
        for member in self.asked:
            if member.lattice is None or member.has_fibre or member.lattice.size < 4:
                continue
            one = GroupSet(member).space(member.lattice, 1)
            moves = [g.moves for g in permutations(member.lattice.size).site_generators]
            everything = Symmetry.from_generators("all", member.lattice, moves)
            if equivariant_basis(one, one, member).dim == 2 and not is_inside(everything, member):
                found.add(member.name)
        return frozenset(found)

    def imposed(self, judgement: Judgement, looks: list[_Look]) -> Symmetry:
        """What the network that is handed over obeys; undecided: as the best on held-out data."""
        obeys = judgement.obeys
        if obeys is None:
            obeys = (self.best(looks),)
        (name,) = obeys or (FREE,)
        return self.plans[name].outputs

    def best(self, looks: list[_Look]) -> str:
        """The network that predicts held-out data best, in the mean of all looks."""
        known = [n for n in looks[0].tested if all(n in look.tested for look in looks)]
        return max(known, key=lambda n: sum(float(k.tested[n].scores.mean()) for k in looks))

    def layers(
        self, look: _Look, judgement: Judgement, plan: Plan
    ) -> tuple[Plan, Fit | None, tuple[LayersFinding, ...]]:
        """Let the first layers obey more, if a test allows it: the plan, its network, the tests.

        The strictest candidate is tried on all layers; where that surely costs, on the first half
        of them. Where the data cannot tell, they could not tell of half of them either. Under
        outputs that obey nothing, layers are also compared with dense ones.
        """
        name = FREE if plan.outputs.is_trivial else plan.outputs.name
        start = look.fits.get(name)
        if start is None or judgement.obeys is None or not self.networks.settings.layers:
            return plan, start, ()
        above = self._around(plan.outputs)
        if not above:
            return plan, start, ()
        compared, against = self.compare([look]), look.tested[name]
        if plan.outputs.is_trivial:
            dense, _ = self._try(look, replace(plan, dense=True))
            against = max(dense, against, key=lambda t: float(t.scores.mean()))
        network = start.network
        assert isinstance(network, InvariantNet)
        most, tried = len(network.layers), []
        strictest = above[0]
        depths = dict.fromkeys((most, max(most // 2, 1)))
        if len(strictest.point_in(len(self.networks.lattice))) > 1:
            for depth in depths:
                deeper = replace(plan, layers=strictest, depth=depth)
                tested, trained = self._try(look, deeper)
                tried.append(compared.on_layers(strictest.name, depth, tested, against))
                if tried[-1].holds:
                    return deeper, trained, tuple(tried)
                if not compared.costs_on_layers(tried[-1]):
                    break
        shifts = [s for s in above if len(s.point_in(len(self.networks.lattice))) == 1]
        if plan.outputs.is_trivial and shifts:  # the layers of `FREE` are convolutions
            tried.append(compared.on_layers(shifts[0].name, most, look.tested[FREE], against))
        return plan, start, tuple(tried)

    def table(self, look: _Look) -> tuple[Consequence, ...]:
        """What imposing each candidate does; by averaging, where it needed no network."""
        findings = self.compare([look]).findings
        scoring = self.networks.scoring
        rows = [_chance_row(self.networks, look)]
        for name in self.plans:
            if name in look.rows:
                rows.append(look.rows[name])
                continue
            against, part = findings[name].against, findings[name].part
            why = "" if part is None else f"{part} fails: "
            mean = look.tested[against]
            rows.append(
                Consequence(
                    name,
                    nll=-float(mean.averaged[name].mean()),
                    parameters=look.rows[against].parameters,
                    note=f"{why}{against}, averaged over it",
                    **{scoring.measure: mean.accuracy[name]},
                )
            )
        return tuple(rows)

    def _join(self, names: tuple[str, ...], looks: list[_Look]) -> None:
        """Make what incomparable candidates generate a candidate, unless it is one."""
        join = self.groups.join(*names)
        same = (n for n in self.candidates.names if self._same(self.groups[n], join))
        name = next(same, join.name)
        joins = {**self.candidates.joins, name: names}
        if name not in self.candidates.names:
            self.groups = GroupSet(*self.groups, join)
            self.plans[name] = Plan(join)
        self.candidates = replace(Candidates.of(self.groups), joins=joins)
        for look in looks:
            if name not in look.tested[FREE].averaged:
                for weaker, trained in look.fits.items():
                    self._test(look, weaker, trained)
            if name not in self.compare([look]).findings:
                self._add(look, name)

    @staticmethod
    def _same(one: Symmetry, other: Symmetry) -> bool:
        return is_inside(one, other) and is_inside(other, one)

    def _test(self, look: _Look, name: str, trained: Fit) -> Consequence:
        """Test a network, also averaged over each candidate that obeys more: its row."""
        above = [n for n in self.candidates.names if name in (FREE, *self.candidates.inside[n])]
        below = () if name == FREE else (FREE, *self.candidates.inside[name])
        hidden = {n: look.sees[n][name] for n in below if n in look.sees}
        found = self.networks.test(
            name, trained, look.held, [self.groups[n] for n in above], hidden
        )
        look.tested[name], look.sees[name] = found.tested, found.sees
        symmetry = self.plans[name].outputs
        if symmetry.is_approximate:
            error = self.networks.invariance_error(trained, look.held, symmetry)
            look.tested[name] = replace(found.tested, within=error)
        return found.row

    def _add(self, look: _Look, name: str) -> None:
        networks, plan = self.networks, self.plans[name]
        file = f"{plan.file_name}-{look.number + 1}" if look.number else plan.file_name
        file += "-short" if look.length != 1.0 else ""
        trained = networks.train(plan, look.train, file, longer=look.length)
        row = self._test(look, name, trained)
        if name != FREE and look.is_shown:
            error = look.tested[name].within
            if error is None:
                error = networks.invariance_error(trained, look.held, plan.outputs)
            row = replace(row, equivariance_error=error)
        if look.is_shown:
            row = replace(row, log_evidence=float(look.tested[name].scores.sum()))
        look.fits[name], look.rows[name] = trained, row
        if row.r2 is not None:
            score = f"held-out R² {row.r2:.3f}, NLL {row.nll:.3f}"
        else:
            score = f"held-out accuracy {100 * (row.accuracy or 0):.1f} %, NLL {row.nll:.3f}"
        self.say(f"{'no symmetry' if name == FREE else name}: {score}")

    def _try(self, look: _Look, plan: Plan) -> tuple[Tested, Fit]:
        trained = self.networks.train(plan, look.train, plan.file_name, longer=look.length)
        return self.networks.test(plan.file_name, trained, look.held).tested, trained

    def _around(self, symmetry: Symmetry) -> list[Symmetry]:
        """Candidates with translations that contain `symmetry` properly, the strictest first."""
        if not (symmetry.is_trivial or (symmetry.is_catalogue and symmetry.translations)):
            return []
        if symmetry.is_approximate:
            return []
        dim = len(self.networks.lattice)
        found = [
            self.groups[n]
            for n in self.candidates.names
            if self.groups[n].is_catalogue
            and self.groups[n].translations
            and not self.groups[n].is_approximate
            and (symmetry.is_trivial or symmetry.name in self.candidates.inside[n])
        ]
        return sorted(found, key=lambda s: -len(s.point_in(dim)))


def _scoring(y: Tensor, task: str, outputs: int | None) -> Scoring:
    """How predictions of these targets are scored."""
    if task not in SCORINGS:
        raise ValueError(f"no task {task!r}; expected one of {', '.join(SCORINGS)}")
    if not len(y) or bool((y == y[0]).all()):
        raise ValueError("all data have the same label: there is nothing to learn")
    if task == "regression":
        _check_offset(y)
    if outputs is None:
        outputs = int(y.max()) + 1 if task == "classes" else int(y.shape[1])
    return SCORINGS[task](outputs, y)


def _check_offset(y: Tensor) -> None:
    """Refuse real targets whose mean leaves few digits of their spread in float32."""
    mean, spread = y.double().mean(0).abs().max(), y.double().std(0).square().mean().sqrt()
    if mean > FAR * spread:  # not where one is not finite: `fit` names the datum
        raise ValueError(
            f"real targets have a mean of {float(mean):.3g}, {FAR:,.0f} times their standard "
            f"deviation of {float(spread):.3g} or more: subtract it. groupella.select does so and "
            "keeps the units"
        )


def _chance(networks: CandidateNetworks, look: _Look) -> tuple[Tensor, Tensor]:
    """Scores and outputs of a guess from the training targets alone."""
    return networks.scoring.chance(networks.y[look.train], networks.y[look.held])


def _guess(networks: CandidateNetworks, look: _Look) -> Tensor:
    """Scores of such a guess at its best calibration, which is that of the networks' scores."""
    return networks.scoring.guess(networks.y[look.train], networks.y[look.held])


def _chance_row(networks: CandidateNetworks, look: _Look) -> Consequence:
    scores, f = _chance(networks, look)
    quality = networks.scoring.quality(f, networks.y[look.held])
    nll, evidence = -float(scores.mean()), float(scores.sum())
    return Consequence("chance", evidence, nll=nll, **{networks.scoring.measure: quality})  # type: ignore[arg-type]
