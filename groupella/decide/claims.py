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
| rejected | averaging costs, while moved data look to h like data it knows; or imposing costs  |
| holds    | averaging surely costs nothing, in no class, and imposing does not cost; or        |
|          | imposing surely costs nothing, where moved data do not look like the data          |
| open     | everything else: the data cannot tell                                             |

A symmetry is asserted only where a test that could have failed was passed. Nothing is asserted
where no network predicts better than the class frequencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from ._verdict import NONE, Candidates, verdict_text

FREE = "free"
FloatArray = npt.NDArray[np.float64]
Outcome = Literal["holds", "rejected", "open"]


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
        Moved data look familiar if the network is this confident on them, relative to the data.
    explained
        Where no network that obeys less has learned anything, a symmetry is asserted only if its
        own network surely explains this share of the labels' entropy.
    """

    level: float = 0.01
    tolerance: float = 0.05
    slight: float = 0.02
    class_loss: float = 0.1
    familiar: float = 0.9
    explained: float = 0.9

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0 < value < 1:
                raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


@dataclass(frozen=True)
class Tested:
    """A network on the held-out data.

    scores: log-likelihood of each datum. averaged: the same with predictions averaged over each
    candidate. confidence: its confidence on data moved by each candidate over that on the data.
    """

    scores: FloatArray
    averaged: Mapping[str, FloatArray] = field(default_factory=dict)
    confidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """A mean of paired differences with its standard error, and the class that loses most."""

    mean: float
    error: float
    worst: float = 0.0
    worst_error: float = 0.0

    @classmethod
    def of(cls, one: FloatArray, other: FloatArray, classes: npt.NDArray[Any]) -> Difference:
        """Of `one` − `other`, datum by datum."""
        gap = one - other
        worst, worst_error, least = 0.0, 0.0, math.inf
        for label in np.unique(classes):
            mine = gap[classes == label]
            if len(mine) < 5:
                continue
            error = _standard_error(mine)
            score = float(mine.mean()) / max(error, 1e-12)
            if mine.mean() < 0 and score < least:
                worst, worst_error, least = float(mine.mean()), error, score
        return cls(float(gap.mean()), _standard_error(gap), worst, worst_error)

    def surely_above(self, bound: float, z: float) -> bool:
        return self.mean - z * self.error > bound

    def surely_below(self, bound: float, z: float) -> bool:
        return self.mean + z * self.error < bound

    def probability_above(self, bound: float) -> float:
        return NormalDist().cdf((self.mean - bound) / max(self.error, 1e-12))


@dataclass(frozen=True)
class Finding:
    """What was found of one candidate: against which network, by how much, and the outcome."""

    candidate: str
    against: str
    outcome: Outcome
    probability: float
    averaging: Difference
    imposing: Difference
    margin: float
    reason: str


@dataclass(frozen=True)
class Consequence:
    """What imposing a group on the whole network does; None where it was not measured.

    `name` is a group or a reference such as "chance". `log_evidence` is in nats, on the training
    data; `accuracy` (0 to 1) and the mean `nll` are on held-out data.
    """

    name: str
    log_evidence: float | None = None
    accuracy: float | None = None
    nll: float | None = None
    equivariance_error: float | None = None
    parameters: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Judgement:
    """The verdict on the network: names, () for none, None for undecided, and why."""

    obeys: tuple[str, ...] | None
    probability: float
    reason: str
    findings: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> str:
        return verdict_text(self.obeys)

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "probability": self.probability,
            "reason": self.reason,
            "obeys": None if self.obeys is None else list(self.obeys),
            "findings": [asdict(f) for f in self.findings],
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Judgement:
        """The inverse of `as_dict`."""
        obeys = content["obeys"]
        findings = [
            Finding(
                **{
                    **entry,
                    "averaging": Difference(**entry["averaging"]),
                    "imposing": Difference(**entry["imposing"]),
                }
            )
            for entry in content["findings"]
        ]
        return cls(
            None if obeys is None else tuple(obeys),
            content["probability"],
            content["reason"],
            tuple(findings),
        )


def judge(
    tested: Mapping[str, Tested],
    chance: FloatArray,
    classes: npt.NDArray[Any],
    candidates: Candidates,
    claims: Claims | None = None,
) -> Judgement:
    """Return what labels obey, from predictions of held-out data.

    Parameters
    ----------
    tested
        The network that obeys nothing (`FREE`) and one for each candidate, by name.
    chance
        The log-likelihood of each held-out datum under the class frequencies.
    classes
        The label of each held-out datum, or zeros where there are no classes.
    candidates
        Names, and which is contained in which.
    claims
        How strict to be; `Claims()` by default.
    """
    rule = claims or Claims()
    # Either of two tests can assert a candidate. Student's t, because held-out data may be few.
    tests = 2 * max(len(candidates.names), 1)
    z = float(stdtrit(len(classes) - 1, 1 - rule.level / tests))
    gained = {n: Difference.of(t.scores, chance, np.zeros_like(classes)) for n, t in tested.items()}
    learned = {n for n, gain in gained.items() if gain.surely_above(0.0, z)}
    if not learned:
        return Judgement(
            None,
            0.0,
            "no network predicts held-out data better than the class frequencies: there is nothing "
            "to learn, or there are too few data or epochs",
        )
    entropy = -float(chance.mean())
    found: dict[str, Finding] = {}
    # Weaker candidates first: a network that obeys what the labels do not is no yardstick.
    for name in sorted(candidates.names, key=lambda n: len(candidates.inside[n])):
        parts = {n: found[n].outcome for n in candidates.inside[name]}
        held = [n for n, outcome in parts.items() if outcome == "holds"]
        best = max((FREE, *held), key=lambda n: float(tested[n].scores.mean()))
        # That it costs nothing beyond a part of it says nothing for that part. But where it does
        # cost against a part that is open, it is not asserted.
        for against in (best, *(n for n, outcome in parts.items() if outcome == "open")):
            if against == best or found[name].outcome == "holds":
                found[name] = _finding(
                    name, against, tested, gained, learned, classes, rule, z, entropy
                )
        rejected = [n for n, outcome in parts.items() if outcome == "rejected"]
        if rejected and found[name].outcome == "holds":
            reason = f"{found[name].reason}, but {' and '.join(rejected)} is rejected"
            found[name] = replace(found[name], outcome="open", probability=0.5, reason=reason)
    return _judgement([found[n] for n in candidates.names], candidates, FREE in learned)


def _finding(
    name: str,
    against: str,
    tested: Mapping[str, Tested],
    gained: Mapping[str, Difference],
    learned: set[str],
    classes: npt.NDArray[Any],
    rule: Claims,
    z: float,
    entropy: float,
) -> Finding:
    weaker = tested[against]
    averaging = Difference.of(weaker.averaged[name], weaker.scores, classes)
    imposing = Difference.of(tested[name].scores, weaker.scores, classes)
    known = max(gained[against].mean, 0.0)
    margin, slight = rule.tolerance * known, rule.slight * known
    familiar = weaker.confidence[name] >= rule.familiar
    z_class = NormalDist().inv_cdf(1 - rule.level / max(len(np.unique(classes)), 1))
    floor = -rule.class_loss * known
    harmed, imposed_harm = (
        d.worst + z_class * d.worst_error < floor for d in (averaging, imposing)
    )
    outcome: Outcome = "open"
    if against not in learned:
        probability = 0.5
        reason = f"the network that obeys less ({against}) has learned nothing to compare with"
        if gained[name].surely_above(rule.explained * entropy, z):
            outcome = "holds"
            probability = gained[name].probability_above(rule.explained * entropy)
            reason = "imposing it leaves next to nothing that a network that obeys less could know"
        elif name not in learned:
            reason = "it has learned nothing, and neither has a network that obeys less"
        return Finding(name, against, outcome, probability, averaging, imposing, margin, reason)
    if familiar and (averaging.surely_below(-margin, z) or harmed):
        outcome = "rejected"
        reason = "averaging predictions over it costs" + (" in one class" if harmed else "")
        probability = averaging.probability_above(-margin) if not harmed else 0.0
    elif (
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
        and not (familiar and averaging.mean < -margin)
    ):
        outcome = "holds"
        reason = "imposing it costs nothing"
        probability = imposing.probability_above(-margin)
    elif imposed_harm or imposing.surely_below(-slight, z):
        outcome = "rejected"
        reason = "imposing it costs predictions" + (" in one class" if imposed_harm else "")
        probability = 0.0 if imposed_harm else imposing.probability_above(-slight)
    else:
        reason = "the held-out data cannot tell"
        probability = min(averaging.probability_above(-margin), imposing.probability_above(-margin))
    return Finding(name, against, outcome, probability, averaging, imposing, margin, reason)


def _judgement(
    findings: Sequence[Finding], candidates: Candidates, free_learned: bool
) -> Judgement:
    found = {f.candidate: f for f in findings}
    inside = candidates.inside
    held = [n for n, f in found.items() if f.outcome == "holds"]
    strictest = tuple(n for n in held if not any(n in inside[o] for o in held))
    open_ = [n for n, f in found.items() if f.outcome == "open"]
    everything = tuple(findings)
    if strictest:
        above = [n for n in found if any(s in inside[n] for s in strictest)]
        right = math.prod(found[n].probability for n in strictest)
        right *= math.prod(1 - found[n].probability for n in above)
        doubt = [n for n in above if n in open_]
        reason = "; ".join(f"{n}: {found[n].reason}" for n in strictest)
        if doubt:
            reason += f". {' and '.join(doubt)} can neither be asserted nor excluded"
        return Judgement(strictest, min(right, 0.999), reason, everything)
    if not found or (free_learned and not open_):
        right = math.prod(1 - f.probability for f in findings)
        reason = "; ".join(f"{n}: {f.reason}" for n, f in found.items())
        return Judgement((), min(right, 0.999), reason or "there are no candidates", everything)
    likely = max(open_, key=lambda n: found[n].probability, default=NONE)
    reason = "; ".join(f"{n}: {found[n].reason}" for n in open_)
    return Judgement(None, found[likely].probability if open_ else 0.0, reason, everything)


def _standard_error(values: FloatArray) -> float:
    if len(values) < 2:
        return math.inf
    return float(values.std(ddof=1) / math.sqrt(len(values)))


__all__ = [
    "FREE",
    "Claims",
    "Consequence",
    "Difference",
    "Finding",
    "Judgement",
    "Tested",
    "judge",
]
