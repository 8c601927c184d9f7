"""The answer: what was found of each candidate and of the layers, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from groupella._schema import build

from ._differences import Difference
from ._verdict import verdict_text

Outcome = Literal["holds", "rejected", "open"]


@dataclass(frozen=True)
class Finding:
    """What was found of one candidate: against which network, by how much, and the outcome."""

    candidate: str
    against: str
    outcome: Outcome
    probability: float
    averaging: Difference
    imposing: Difference | None  # None: rejected before a network of its own was trained
    margin: float
    reason: str
    leftover: Difference | None = None  # of what the network `against` sees
    part: str | None = None  # that it contains and that clearly fails: nothing else was tested


@dataclass(frozen=True)
class Consequence:
    """What imposing a group on the whole network does; None where it was not measured.

    `name` is a group or a reference such as "chance". All is on held-out data: `log_evidence` is
    log p(held-out | training data) in nats, `accuracy` is from 0 to 1, `r2` is of real targets,
    `nll` is the mean.
    """

    name: str
    log_evidence: float | None = None
    accuracy: float | None = None
    nll: float | None = None
    equivariance_error: float | None = None
    parameters: int | None = None
    note: str = ""
    r2: float | None = None


@dataclass(frozen=True)
class LayersFinding:
    """What was found of a symmetry imposed on the first `depth` layers only."""

    candidate: str
    depth: int
    holds: bool
    probability: float
    imposing: Difference
    margin: float


@dataclass(frozen=True)
class Judgement:
    """The verdict on the network: names, () for none, None for undecided, and why.

    `open` lists the candidates that would add to the verdict and can neither be asserted nor
    excluded. `probability` is that of the whole verdict: that the named groups hold, and that no
    other candidate does. `within` has the measured error of networks that obey a candidate only
    approximately; the verdict then says "so2 to within 3.0 %".
    """

    obeys: tuple[str, ...] | None
    probability: float
    reason: str
    findings: tuple[Finding, ...] = ()
    layers: tuple[LayersFinding, ...] = ()
    open: tuple[str, ...] = ()
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.obeys is None:
            return verdict_text(None)
        return verdict_text(
            [
                f"{name} to within {100 * self.within[name]:.1f} %" if name in self.within else name
                for name in self.obeys
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "probability": self.probability,
            "reason": self.reason,
            "obeys": None if self.obeys is None else list(self.obeys),
            "open": list(self.open),
            "findings": [asdict(f) for f in self.findings],
            "layers": [asdict(f) for f in self.layers],
            "within": dict(self.within),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Judgement:
        """The inverse of `as_dict`; raises `ValueError` for anything else."""
        if not isinstance(content, dict):
            raise ValueError(f"a judgement must be an object, got {content!r:.60}")
        return build(cls, {k: v for k, v in content.items() if k != "verdict"}, "judgement")
