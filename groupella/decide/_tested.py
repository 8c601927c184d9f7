"""What is known of one network on the held-out data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ._differences import FloatArray


@dataclass(frozen=True)
class Tested:
    """A network on the held-out data.

    scores: log-likelihood of each datum. averaged: the same with predictions averaged over each
    candidate, accuracy: the share that these get right. told: how often predictions for data moved
    by each candidate are told from those for the data (`told_apart`). within: how far predictions
    move when inputs do, for a network that obeys its symmetry only approximately. leftover: for
    networks that obey less, how much each datum asks for what they see and this one cannot, in
    units of the root of the information: a mean of t is worth t²/2 nats. leftover_each:
    the same of each output alone, (n, K), in any unit. by_target, averaged_by_target: scores and
    averaged ones of each of several targets, (n, K).
    """

    scores: FloatArray
    averaged: Mapping[str, FloatArray] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    accuracy: Mapping[str, float] = field(default_factory=dict)
    within: float | None = None
    leftover: Mapping[str, FloatArray] = field(default_factory=dict)
    leftover_each: Mapping[str, FloatArray] = field(default_factory=dict)
    by_target: FloatArray | None = None
    averaged_by_target: Mapping[str, FloatArray] = field(default_factory=dict)

    @classmethod
    def pooled(cls, folds: Sequence[Tested]) -> Tested:
        """Networks that obey the same and were held out different data, taken together."""
        common = folds[0].averaged.keys()
        return cls(
            np.concatenate([f.scores for f in folds]),
            {m: np.concatenate([f.averaged[m] for f in folds]) for m in common},
            {m: float(np.mean([f.told[m] for f in folds])) for m in common},
            {m: float(np.mean([f.accuracy[m] for f in folds])) for m in common},
            max((f.within for f in folds if f.within is not None), default=None),
            _together([f.leftover for f in folds]),
            _together([f.leftover_each for f in folds]),
            _together([{"": f.by_target} for f in folds if f.by_target is not None]).get(""),
            _together([f.averaged_by_target for f in folds]),
        )


def _together(folds: Sequence[Mapping[str, FloatArray]]) -> dict[str, FloatArray]:
    """Values that all folds have, one after the other."""
    common = [n for n in (folds[0] if folds else ()) if all(n in f for f in folds)]
    return {n: np.concatenate([f[n] for f in folds]) for n in common}
