"""Which symmetry do labels obey? A decision from what imposing each candidate does to predictions.

Networks are trained on one part of the data and tested on another, the held-out data. ℓ_h(i) is the
log-likelihood of held-out datum i under the network that obeys h (`FREE`: one that obeys nothing),
and s_h,m(i) that of the same network's predictions averaged over motions of the input by candidate
m. Two questions are asked of a candidate m, against the best network h that obeys less:

* **averaging** T = mean(s_h,m − ℓ_h): does averaging over m cost predictions? The network is the
  same on both sides, so only the data vary. If labels obey m, averaging helps; if not, it mixes
  labels.
* **imposing** D = mean(ℓ_m − ℓ_h): is the network that obeys m worse than one that need not?

Both with paired standard errors, at `level` divided by the number of candidates. A loss counts from
`tolerance` of the information that h has learned (nats better than the class frequencies).

| outcome  | when                                                                              |
| -------- | --------------------------------------------------------------------------------- |
| rejected | averaging costs, while moved data look to h like data it knows; or imposing costs: |
|          | on average, or in a class that has enough data to be sure; or something is left    |
| holds    | averaging surely costs nothing, in no class, and imposing does not cost; or        |
|          | imposing surely costs nothing, where moved data do not look like the data          |
| open     | everything else: the data cannot tell, the two questions disagree, or no network   |
|          | obeys the candidate and no more                                                    |

A third question can only speak against a candidate. What h sees beyond m, its outputs less their
mean over m, says nothing of labels that obey m, wherever moved data look like the data:

* **what is left over** t = mean(s), s the score of adding it to the outputs of the network that
  obeys m (`Tested.leftover`). If it is surely positive, the labels depend on what m hides, and
  the best multiple of it gains about t²/2 nats a datum. A network h that knows much less than the
  one that obeys m is no yardstick for averaging and imposing: there m holds only if t²/2 is surely
  below the margin too.

A symmetry is asserted only where a test that could have failed was passed. Nothing is asserted
where no network predicts better than the class frequencies. A candidate that averaging rejects
needs no network of its own, nor does one that contains a candidate that clearly fails.

Layers can obey more than the outputs. That the first ones obey m′ ⊃ m is asserted if a network
built so is surely no worse than one whose layers obey m.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from ._differences import Difference, largest_z, told_apart
from ._differences import FloatArray as FloatArray
from ._judgement import Consequence, Finding, Judgement, LayersFinding, Outcome
from ._leftover import Leftover
from ._tested import Tested
from ._verdict import NONE, Candidates
from .assertion import assertion

FREE = "free"
LAYER_TRIALS = 3  # how many claims about layers share the level, at most
UNLIKE = ", on data like these: moved by it they look different"
NOTHING = (
    "no network predicts held-out data better than the class frequencies or the mean of the "
    "targets: there is nothing to learn, or there are too few data or epochs"
)


@dataclass(frozen=True)
class Claims:
    """How strict the decision is.

    Parameters
    ----------
    level
        The largest probability of asserting a symmetry that is not there, over all candidates.
    tolerance
        A loss counts from this share of the information that the weaker network has learned.
    slight
        Imposing a symmetry must not surely cost more than this share; where averaging cannot tell,
        it must not cost more on average.
    class_loss
        The share of that information that no single class may lose.
    familiar
        Moved data look familiar if predictions for them are told from those for the data no more
        often than this; 0.5 is guessing.
    explained, mostly
        Where no network that obeys less has learned anything, a symmetry is asserted only if its
        own network surely explains this share of the labels' entropy: `explained`, or `mostly` if
        surely nothing is left over of what such a network sees.
    weak
        A network that knows less than this share of what a candidate's own network knows is too
        weak to test it by averaging and imposing alone.
    clear
        A candidate clearly fails if averaging over it surely costs more than this share of that
        information, and if moved data look familiar or imposing it costs as much. No candidate that
        contains it can hold.
    suspicion
        Nothing is asserted while something seems left over at this level, over all tests of it.
    within
        A symmetry that no grid has exactly is asserted only if the predictions of its own network
        change by no more than this share of their norm when inputs are moved.
    """

    level: float = 0.01
    tolerance: float = 0.05
    slight: float = 0.02
    class_loss: float = 0.1
    familiar: float = 0.6
    explained: float = 0.9
    mostly: float = 0.7
    weak: float = 0.5
    clear: float = 0.25
    suspicion: float = 0.05
    within: float = 0.25

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


@dataclass(frozen=True)
class Comparison:
    """Networks compared on held-out data, as many as were trained, and what follows.

    Parameters
    ----------
    tested
        The network that obeys nothing (`FREE`) and those of candidates, by name.
    chance
        The log-likelihood of each held-out datum under the class frequencies.
    classes
        The label of each held-out datum, or zeros where there are no classes.
    candidates
        Names, and which is contained in which.
    claims
        How strict to be.
    looks
        How often a decision is tried, each time with more data; the level is divided by it.
    guess
        The log-likelihood of each held-out datum under the class frequencies, at the calibration
        that suits these data best. Who does not surely beat it has learned nothing.
    blocks
        A number for each held-out datum; those with the same one, such as copies, count as one.
    blind
        Candidates whose networks obey more than they should, since no layer can tell the candidate
        from a larger group: that imposing them costs says nothing against them.
    """

    tested: Mapping[str, Tested]
    chance: FloatArray
    classes: npt.NDArray[Any]
    candidates: Candidates
    claims: Claims = Claims()
    looks: int = 1
    guess: FloatArray | None = None
    blocks: npt.NDArray[Any] | None = None
    blind: frozenset[str] = frozenset()

    @cached_property
    def z(self) -> float:
        """The quantile of Student's t at the level, for all tests that can assert a candidate."""
        tests = 2 * max(len(self.candidates.names), 1) * self.looks
        return float(stdtrit(self._independent - 1, 1 - self.claims.level / tests))

    @cached_property
    def _independent(self) -> int:
        """How many held-out data are independent, at least 2."""
        return max(len(self.classes if self.blocks is None else np.unique(self.blocks)), 2)

    def _gap(self, one: Tested, other: Tested, averaged: str | None = None) -> Difference:
        """Of scores; with `averaged`, of `one` averaged over that candidate."""
        scores, targets = one.scores, one.by_target
        if averaged is not None:
            scores, targets = one.averaged[averaged], one.averaged_by_target.get(averaged)
        apart = None if targets is None or other.by_target is None else targets - other.by_target
        return Difference.of(scores, other.scores, self.classes, self.blocks, apart)

    @cached_property
    def gained(self) -> dict[str, Difference]:
        """How much better each network predicts than the class frequencies."""
        alike = np.zeros_like(self.classes)
        return {
            n: Difference.of(t.scores, self.chance, alike, self.blocks)
            for n, t in self.tested.items()
        }

    @cached_property
    def learned(self) -> set[str]:
        alike = np.zeros_like(self.classes)
        guess = self.chance if self.guess is None else self.guess
        return {
            name
            for name, gain in self.gained.items()
            if gain.surely_above(0.0, self.z)
            and Difference.of(self.tested[name].scores, guess, alike, self.blocks).surely_above(
                0.0, self.z
            )
        }

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """What is found of each candidate, weaker ones first, as far as networks are trained.

        A network that obeys what the labels do not is no yardstick.
        """
        found: dict[str, Finding] = {}
        for name in self.order:
            if not all(part in found for part in self.candidates.inside[name]):
                continue
            finding = self._found(name, found) or self._implied(name, found)
            if finding is not None:
                found[name] = finding
        return found

    def _implied(self, name: str, found: Mapping[str, Finding]) -> Finding | None:
        """A candidate without a network of its own that contains one that clearly fails."""
        for part in self.candidates.inside[name]:
            finding = found[part]
            floor = -self.claims.clear * max(self.gained[finding.against].mean, 0.0)
            weaker, imposing = self.tested[finding.against], finding.imposing
            fails = finding.averaging.surely_below(floor, self.z) and (
                weaker.told[part] <= self.claims.familiar
                or (imposing is not None and imposing.surely_below(floor, self.z))
            )
            if fails and finding.outcome == "rejected" and finding.against in self.learned:
                averaging = self._gap(weaker, weaker, averaged=name)
                reason = f"it contains {part}, which clearly fails"
                return Finding(
                    name,
                    finding.against,
                    "rejected",
                    finding.probability,
                    averaging,
                    None,
                    finding.margin,
                    reason,
                    part=part,
                )
        return None

    @property
    def order(self) -> list[str]:
        """The candidates, each after those that it contains."""
        return sorted(self.candidates.names, key=lambda n: len(self.candidates.inside[n]))

    @property
    def judgement(self) -> Judgement:
        """What the labels obey; a candidate of which nothing is known yet is open."""
        if not self.learned:
            return Judgement(None, 0.0, NOTHING)
        findings = [self.findings.get(n) or _unknown(n) for n in self.candidates.names]
        found = _judgement(findings, self.candidates, FREE in self.learned)
        within = {n: t.within for n, t in self.tested.items() if t.within is not None}
        return replace(found, within=within)

    @property
    def weighed(self) -> Judgement:
        """What the evidence alone says: that of the held-out data, given the training data.

        log p(held-out | training, h) = Σ ℓ_h is what the held-out data add to the log evidence of
        the network that obeys h (Lotfi et al. 2022). `assertion` decides; chance is a hypothesis.
        """
        total = {NONE if n == FREE else n: float(t.scores.sum()) for n, t in self.tested.items()}
        names, level = self.candidates.names, self.claims.level / self.looks
        chance = float(self.chance.sum())
        if chance > max(total.values()) + math.log(level):
            return Judgement(None, 0.0, NOTHING)
        said = assertion(total, self.candidates.inside, level=level)
        nothing = Difference(0.0, math.inf)
        findings = []
        for name in names:
            p = said.holds[name]
            outcome: Outcome = "holds" if p >= 1 - level else "rejected" if p <= level else "open"
            reason = f"it holds with a probability of {p:.3g} by the evidence"
            findings.append(Finding(name, FREE, outcome, p, nothing, None, 0.0, reason))
        obeys = None if said.verdict is None else () if said.verdict == NONE else (said.verdict,)
        settled = {n for name in obeys or () for n in (name, *self.candidates.inside[name])}
        open_ = tuple(
            f.candidate for f in findings if f.outcome == "open" and f.candidate not in settled
        )
        right = min(said.probabilities[said.best], 0.999)
        return Judgement(obeys, right, said.reason, tuple(findings), open=open_)

    def on_layers(self, name: str, depth: int, tested: Tested, against: Tested) -> LayersFinding:
        """What a network whose first `depth` layers obey `name` says, against one whose do not."""
        rule = self.claims
        imposing = self._gap(tested, against)
        known = max(float((against.scores - self.chance).mean()), 0.0)
        margin = rule.tolerance * known
        holds = (
            imposing.surely_above(-margin, self._z_of_layers)
            and imposing.mean > -rule.slight * known
            and not self._harms(imposing, known)
        )
        right = min(imposing.probability_above(-margin), 0.999)
        return LayersFinding(name, depth, holds, right, imposing, margin)

    def costs_on_layers(self, finding: LayersFinding) -> bool:
        """Whether a symmetry of layers surely costs predictions, on average or of one class."""
        cost = finding.imposing
        return cost.surely_below(0.0, self._z_of_layers) or self._surely_harms(cost)

    @cached_property
    def _z_of_layers(self) -> float:
        return float(stdtrit(self._independent - 1, 1 - self.claims.level / LAYER_TRIALS))

    def _found(self, name: str, found: Mapping[str, Finding]) -> Finding | None:
        parts = {n: found[n].outcome for n in self.candidates.inside[name]}
        held = [n for n, outcome in parts.items() if outcome == "holds" and n in self.tested]
        best = max((FREE, *held), key=lambda n: float(self.tested[n].scores.mean()))
        finding = self._against(name, best)
        # That it costs nothing beyond a part of it says nothing for that part. But where it does
        # cost against a part that is open, it is not asserted.
        for part, outcome in parts.items():
            if finding is not None and finding.outcome == "holds" and outcome == "open":
                finding = self._against(name, part) if part in self.tested else finding
        within = self.tested[name].within if name in self.tested else None
        if (
            finding is not None
            and finding.outcome == "holds"
            and within is not None
            and within > self.claims.within
        ):
            reason = f"{finding.reason}, but its network obeys it only to within {within:.0%}"
            return replace(finding, outcome="open", probability=0.5, reason=reason)
        if finding is not None and name in self.tested:
            finding = self._with_leftover(finding)
        rejected = [n for n, outcome in parts.items() if outcome == "rejected"]
        if rejected and finding is not None and finding.outcome == "holds":
            reason = f"{finding.reason}, but {' and '.join(rejected)} is rejected"
            return replace(finding, outcome="open", probability=0.5, reason=reason)
        return finding

    def _against(self, name: str, against: str) -> Finding | None:
        """Compare a candidate with a network that obeys less; None if it needs its own network."""
        rule, z, weaker = self.claims, self.z, self.tested[against]
        averaging = self._gap(weaker, weaker, averaged=name)
        known = max(self.gained[against].mean, 0.0)
        margin, slight = rule.tolerance * known, rule.slight * known
        familiar = weaker.told[name] <= rule.familiar
        harmed = self._harms(averaging, known)
        ruined = harmed and self._surely_harms(averaging)
        imposing = self._imposing(name, weaker)
        costs = averaging.surely_below(-margin, z) or ruined
        if against in self.learned and familiar and costs:
            everywhere = averaging.surely_below(-margin, z)
            reason = "averaging predictions over it costs" + ("" if everywhere else f" {self._one}")
            chance = 0.0 if ruined else averaging.probability_above(-margin)
            return Finding(name, against, "rejected", chance, averaging, imposing, margin, reason)
        if imposing is None:
            return None
        outcome: Outcome = "open"
        if against not in self.learned:
            return self._alone(name, against, averaging, imposing, margin)
        imposed_harm = self._harms(imposing, known)
        if (
            averaging.surely_above(-margin, z)
            and not (harmed or imposed_harm)
            and not imposing.surely_below(-slight, z)
        ):
            outcome = "holds"
            reason = "averaging predictions over it costs nothing, nor does imposing it"
            probability = averaging.probability_above(-margin)
        elif (
            imposing.surely_above(-margin, z)
            and imposing.mean > -slight
            and not imposed_harm
            and not (familiar and (harmed or averaging.mean < -margin))
        ):
            outcome = "holds"
            reason = "imposing it costs nothing" + ("" if familiar else UNLIKE)
            probability = imposing.probability_above(-margin)
        elif (
            familiar
            and averaging.surely_above(-margin, z)
            and not harmed
            and imposing.surely_below(-slight, z)
        ):
            probability = 0.5
            reason = (
                "averaging predictions over it costs nothing, but its own network predicts worse: "
                "it may need more epochs"
            )
        elif name in self.blind and imposing.surely_below(-slight, z):
            probability = 0.5
            reason = "its own network predicts worse, but obeys a larger group"
        elif imposing.surely_below(-slight, z) or (imposed_harm and self._surely_harms(imposing)):
            outcome = "rejected"
            reason = "imposing it costs predictions" + (f" {self._one}" if imposed_harm else "")
            probability = 0.0 if imposed_harm else imposing.probability_above(-slight)
        else:
            reason = "the held-out data cannot tell"
            # Unfamiliar data say nothing by averaging: neither for the candidate nor against it.
            probability = min(
                averaging.probability_above(-margin) if familiar else 0.5,
                imposing.probability_above(-margin),
                0.5 if harmed or imposed_harm else 1.0,
            )
        return Finding(name, against, outcome, probability, averaging, imposing, margin, reason)

    def _alone(
        self, name: str, against: str, averaging: Difference, imposing: Difference, margin: float
    ) -> Finding:
        """A candidate whose network has nothing to be compared with."""
        rule = self.claims
        outcome: Outcome = "open"
        probability = 0.5
        reason = f"the network that obeys less ({against}) has learned nothing to compare with"
        if self._explains(name, rule.explained):
            outcome = "holds"
            probability = self.gained[name].probability_above(rule.explained * self._entropy)
            reason = "imposing it leaves next to nothing that a network that obeys less could know"
        elif self._explains(name, rule.mostly) and self._left(name).excludes(against):
            outcome = "holds"
            probability = self.gained[name].probability_above(rule.mostly * self._entropy)
            reason = (
                "its network explains most of the labels, and nothing that a network that obeys "
                "less sees is left over"
            )
        elif name not in self.learned:
            reason = "it has learned nothing, and neither has a network that obeys less"
        return Finding(name, against, outcome, probability, averaging, imposing, margin, reason)

    def _with_leftover(self, finding: Finding) -> Finding:
        """The finding, unless what weaker networks see beyond the candidate says otherwise."""
        rule, name, against = self.claims, finding.candidate, finding.against
        left = self._left(name)
        found = replace(finding, leftover=left.by.get(against))
        if left.sure is not None:
            reason = (
                f"what its network gets wrong depends on what {_shown(left.sure)} sees beyond it"
            )
            return replace(found, outcome="rejected", probability=0.0, reason=reason)
        if found.outcome != "holds":
            return found
        weak = self.gained[against].mean < rule.weak * self.gained[name].mean
        if left.seeming is not None:
            reason = f"what {_shown(left.seeming)} sees beyond it may matter to the labels"
        elif (
            weak
            and found.leftover is not None
            and not left.excludes(against)
            and not self._explains(name, rule.explained)
        ):
            reason = f"{_shown(against)} knows too little for a test of it"
        elif against in left.by:
            sure = left.probability_excluded(against)
            return replace(found, probability=min(found.probability, sure))
        else:
            return found
        return replace(found, outcome="open", probability=0.5, reason=reason)

    @cached_property
    def _entropy(self) -> float:
        """The entropy of the labels, in nats."""
        return -float(self.chance.mean())

    def _explains(self, name: str, share: float) -> bool:
        """Whether a network surely explains this share of the labels' entropy."""
        return self.gained[name].surely_above(share * self._entropy, self.z)

    def _left(self, name: str) -> Leftover:
        """What is left over for each weaker network to which moved data look like the data."""
        rule, alike = self.claims, np.zeros_like(self.classes)
        mine = self.tested[name]
        sees = [n for n in mine.leftover if self.tested[n].told.get(name, 1.0) <= rule.familiar]
        by = {
            n: Difference.of(mine.leftover[n], np.zeros_like(self.chance), alike, self.blocks)
            for n in sees
        }
        each = {n: mine.leftover_each[n] for n in sees if n in mine.leftover_each}
        outputs = max((scores.shape[1] for scores in each.values()), default=1)
        tests = max(sum(1 + len(self.candidates.inside[n]) for n in self.candidates.names), 1)
        levels = (rule.level / self.looks / tests, rule.suspicion / tests)
        sure, seems = (float(stdtrit(self._independent - 1, 1 - level)) for level in levels)
        each_sure, each_seems = (math.sqrt(2 * math.log(outputs / level)) for level in levels)
        known = max(self.gained[name].mean, 0.0)
        return Leftover(
            by,
            sure,
            seems,
            rule.slight * known,
            rule.tolerance * known,
            {n: largest_z(scores, self.blocks) for n, scores in each.items()},
            self._independent,
            each_sure,
            each_seems,
            (rule.slight if self._has_targets else rule.class_loss) * known / outputs,
        )

    def _imposing(self, name: str, weaker: Tested) -> Difference | None:
        if name not in self.tested:
            return None
        return self._gap(self.tested[name], weaker)

    def _harms(self, difference: Difference, known: float) -> bool:
        """Whether some class seems to lose more than it may: nothing is asserted then."""
        z = NormalDist().inv_cdf(1 - self.claims.level / self._labels)
        floor = -self.claims.class_loss * known
        return difference.worst + z * difference.worst_error < floor

    def _surely_harms(self, difference: Difference) -> bool:
        """Whether the class that loses most has enough data to say so: then it is rejected."""
        return difference.worst_z < -math.sqrt(2 * math.log(self._labels / self.claims.level))

    @cached_property
    def _labels(self) -> int:
        targets = {t.by_target.shape[1] for t in self.tested.values() if t.by_target is not None}
        return max(len(np.unique(self.classes)), 1, *targets)

    @property
    def _one(self) -> str:
        """What the worst of a difference is."""
        return "for one target" if self._has_targets else "in one class"

    @property
    def _has_targets(self) -> bool:
        """Whether there are several targets, which may depend on different things."""
        return any(t.by_target is not None for t in self.tested.values())


def _shown(name: str) -> str:
    return "a network without symmetry" if name == FREE else f"the network that obeys {name}"


def _unknown(name: str) -> Finding:
    nothing = Difference(0.0, math.inf)
    return Finding(name, FREE, "open", 0.5, nothing, None, 0.0, "it was not tested")


def _judgement(
    findings: Sequence[Finding], candidates: Candidates, free_learned: bool
) -> Judgement:
    found = {f.candidate: f for f in _consistent(findings, candidates)}
    everything = tuple(found.values())
    strictest = _strictest(found, candidates)
    settled = {*strictest, *(part for n in strictest for part in candidates.inside[n])}
    open_ = tuple(n for n, f in found.items() if f.outcome == "open" and n not in settled)
    if strictest or not found or (free_learned and not open_):
        right = math.prod(found[n].probability for n in strictest)
        right *= math.prod(1 - f.probability for n, f in found.items() if n not in settled)
        reason = "; ".join(f"{n}: {found[n].reason}" for n in strictest or found)
        if open_:
            reason += f". {' and '.join(open_)} can neither be asserted nor excluded"
        reason = reason or "there are no candidates"
        return Judgement(strictest, min(right, 0.999), reason, everything, open=open_)
    likely = max(open_, key=lambda n: found[n].probability, default=NONE)
    reason = "; ".join(f"{n}: {found[n].reason}" for n in open_)
    probability = found[likely].probability if open_ else 0.0
    return Judgement(None, probability, reason, everything, open=open_)


def _strictest(found: Mapping[str, Finding], candidates: Candidates) -> tuple[str, ...]:
    held = [n for n, f in found.items() if f.outcome == "holds"]
    return tuple(n for n in held if not any(n in candidates.inside[o] for o in held))


def _consistent(findings: Sequence[Finding], candidates: Candidates) -> list[Finding]:
    """The findings, where groups that hold only one by one are open: labels that obey both would
    obey what both generate.
    """
    found = {f.candidate: f for f in findings}
    while (strictest := _strictest(found, candidates)) in candidates.joins.values():
        together = " and ".join(strictest)
        for name in strictest:
            reason = f"{found[name].reason}, but {together} do not hold together"
            found[name] = replace(found[name], outcome="open", probability=0.5, reason=reason)
    return list(found.values())


__all__ = [
    "FREE",
    "LAYER_TRIALS",
    "Claims",
    "Comparison",
    "Consequence",
    "Difference",
    "Finding",
    "Judgement",
    "LayersFinding",
    "Tested",
    "told_apart",
]
