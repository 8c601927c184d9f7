"""Decide among nested hypotheses: assert a symmetry only where the data speak against all others.

With log evidences E_h and equal prior probabilities,

    p_h = exp(E_h / T) / Σ_k exp(E_k / T),     P_h = Σ_{k implies h} p_k.

p_h is the probability that h is the strictest true hypothesis, P_h that h holds. Naming a symmetry
that does not hold is the dangerous error, so the most probable hypothesis h is the verdict only if
1 − P_h ≤ level / comparisons (Bonferroni: with m layers decided at once, at least one is wrong with
probability `level` at most). Otherwise the answer is "undecided", with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

LEVEL = 0.01
LEAST = 0.9


@dataclass(frozen=True)
class Assertion:
    """The answer to "which hypothesis is the strictest true one?".

    Attributes
    ----------
    verdict : str or None
        The hypothesis that is asserted; None for undecided.
    probabilities : mapping
        For each hypothesis, the probability that it is the strictest true one. They add up to 1.
    holds : mapping
        For each hypothesis, the probability that it holds.
    established : tuple of str
        The strictest hypotheses that hold at the level asked for, whatever the verdict.
    reason : str
        One sentence that says why.
    """

    verdict: str | None
    probabilities: Mapping[str, float]
    holds: Mapping[str, float]
    established: tuple[str, ...]
    reason: str

    @property
    def best(self) -> str:
        """The most probable hypothesis."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def is_undecided(self) -> bool:
        return self.verdict is None


def assertion(
    log_evidences: Mapping[str, float],
    implies: Mapping[str, Collection[str]],
    *,
    level: float = LEVEL,
    comparisons: int = 1,
    least: float = LEAST,
    temperature: float = 1.0,
) -> Assertion:
    """Return the verdict on nested hypotheses, or "undecided".

    Parameters
    ----------
    log_evidences : mapping
        The log evidence of each hypothesis in nats; −inf excludes one.
    implies : mapping
        For each hypothesis, all that hold whenever it does: for a group, its subgroups
        (`GroupSet.subgroups`). A hypothesis implies itself, listed or not.
    level : float
        The largest probability of asserting something that does not hold.
    comparisons : int
        The number of verdicts given together, by which the level is divided.
    least : float
        The smallest probability of a verdict. It keeps hypotheses apart that differ on the safe
        side: "none" is never wrong, but says little where p4 is as probable.
    temperature : float
        Divides the log evidences. Larger than 1 for approximate evidences that are overconfident.

    Raises
    ------
    ValueError
        If there is no hypothesis, an evidence is NaN or +inf, all are −inf, or an option is out of
        range.
    """
    _check(log_evidences, level, comparisons, least, temperature)
    top = max(log_evidences.values())
    weights = {h: math.exp((e - top) / temperature) for h, e in log_evidences.items()}
    total = sum(weights.values())
    probabilities = {h: w / total for h, w in weights.items()}
    below = {h: {h, *implies.get(h, ())} for h in log_evidences}
    # The sum of what speaks against h, since 1 − P_h loses all digits where P_h is nearly 1.
    against = {
        h: sum(p for k, p in probabilities.items() if h not in below[k]) for h in log_evidences
    }
    allowed = level / comparisons
    safe = [h for h in log_evidences if against[h] <= allowed]
    established = tuple(h for h in safe if not any(h in below[k] for k in safe if k != h))
    best = max(probabilities, key=probabilities.__getitem__)
    verdict: str | None = None
    if against[best] > allowed:
        rivals = [h for h in log_evidences if best not in below[h]]
        rival = max(rivals, key=probabilities.__getitem__)
        reason = (
            f"{best} is most probable ({probabilities[best]:.3g}), but "
            f"{rival} ({probabilities[rival]:.3g}) cannot be excluded at the level {allowed:.2g}"
        )
    elif probabilities[best] < least:
        rival = max((h for h in log_evidences if h != best), key=probabilities.__getitem__)
        reason = (
            f"{best} ({probabilities[best]:.3g}) and {rival} ({probabilities[rival]:.3g}) "
            "cannot be told apart on these data"
        )
    else:
        verdict = best
        reason = f"{best} has the probability {probabilities[best]:.3g}"
    holds = {h: 1.0 - a for h, a in against.items()}
    return Assertion(verdict, probabilities, holds, established, reason)


def _check(
    log_evidences: Mapping[str, float],
    level: float,
    comparisons: int,
    least: float,
    temperature: float,
) -> None:
    if not log_evidences:
        raise ValueError("there are no hypotheses to decide among")
    for name, value in log_evidences.items():
        if math.isnan(value) or value == math.inf:
            raise ValueError(f"the log evidence of {name} is {value}")
    if max(log_evidences.values()) == -math.inf:
        raise ValueError("every hypothesis has the log evidence −inf")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    if not 0 <= least < 1:
        raise ValueError(f"least must be at least 0 and below 1, got {least}")
    if comparisons < 1:
        raise ValueError(f"comparisons must be at least 1, got {comparisons}")
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
