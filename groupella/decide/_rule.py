"""The rule that says which paths of a layer are alive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

By = Literal["evidence", "gamma", "both"]


@dataclass(frozen=True)
class Rule:
    """When a path is alive: the one rule of `fit`, `select`, `settle`, benchmark and report.

    Parameters
    ----------
    by
        "evidence": removing the path costs at least `nats`. "gamma": its share of the layer's
        effective parameters is at least `share`, the sign of life in the paper's figures. "both":
        both hold.
    nats
        What removing a path must cost in log evidence. A path that is not needed reaches 5 nats in
        three of ten thousand cases.
    share
        The least share of the layer's effective parameters, between 0 and 1.
    settled_nats
        What a doubtful path must be worth after the network was trained on with and without it.
    """

    by: By = "evidence"
    nats: float = 5.0
    share: float = 0.01
    settled_nats: float = 10.0

    def __post_init__(self) -> None:
        if self.by not in get_args(By):
            raise ValueError(f"by must be 'evidence', 'gamma' or 'both', got {self.by!r}")
        for name in ("nats", "settled_nats"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and not negative, got {value!r}")
        if not 0 < self.share < 1:
            raise ValueError(f"share must lie between 0 and 1, got {self.share!r}")

    def is_alive(self, removal: float, share: float) -> bool:
        """Whether a path is alive, given its removal (nats) and its share of the layer."""
        by_evidence = self.by == "gamma" or -removal >= self.nats
        by_gamma = self.by == "evidence" or share >= self.share
        return by_evidence and by_gamma

    def distance(self, removal: float, share: float) -> float:
        """How far a path is from changing sides: in nats, or in decades of its share."""
        if self.by == "evidence":
            return abs(-removal - self.nats)
        return (
            MOST_DECADES if share <= 0 else min(abs(math.log10(share / self.share)), MOST_DECADES)
        )

    @property
    def unit(self) -> str:
        """The unit of `distance`."""
        return "nats" if self.by == "evidence" else "decades"

    def __str__(self) -> str:
        """Such as "A path is alive if removing it costs at least 5 nats of log evidence."."""
        costs = f"removing it costs at least {self.nats:g} nats of log evidence"
        shares = f"it has at least {100 * self.share:g} % of the layer's effective parameters"
        return f"A path is alive if {' and '.join(self._conditions(costs, shares))}."

    def _conditions(self, costs: str, shares: str) -> list[str]:
        return {"evidence": [costs], "gamma": [shares], "both": [costs, shares]}[self.by]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Rule:
        return cls(**content)


MOST_DECADES = 6.0
