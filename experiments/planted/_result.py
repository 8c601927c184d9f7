"""The result of one case: the symmetry planted in every layer, and the one found.

A layer is right when the verdict is the planted member, the most restrictive true group. A *wrong
symmetry* is the dangerous error: the verdict names a member that the planted one does not contain,
so that the network is made blind to something the data depend on. Finding less symmetry than was
planted, or being undecided, is neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from groupella.decide import NONE, UNDECIDED
from groupella.groups import GroupSet, flips, p4, p4m, trivial, z2

CANDIDATES = GroupSet(trivial(), z2(), flips(), p4(), p4m())


@dataclass(frozen=True)
class CaseResult:
    """Planted members and verdicts of one teacher, layer by layer.

    verdicts: "p4", "p4 and flips", "none" or "undecided"
    counted: which layers count; the others could not have been told apart from a stricter member
    """

    part: str
    key: str
    planted: tuple[str, ...]
    verdicts: tuple[str, ...]
    counted: tuple[bool, ...]
    n: int
    noise: float
    seed: int
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def right(self) -> tuple[bool, ...]:
        pairs = zip(self.planted, self.verdicts, strict=True)
        return tuple(planted == found for planted, found in pairs)

    @property
    def wrong(self) -> tuple[bool, ...]:
        """Where a wrong symmetry is imposed."""
        pairs = zip(self.planted, self.verdicts, strict=True)
        true = self.details.get("true_members")
        return tuple(imposes_wrong(planted, found, true) for planted, found in pairs)


@dataclass(frozen=True)
class Counts:
    """Layers counted, right, with a wrong symmetry imposed, undecided; layers dropped."""

    layers: int
    right: int
    wrong: int
    undecided: int
    dropped: int

    @classmethod
    def of(cls, results: Iterable[CaseResult]) -> Counts:
        layers = [
            (counts, fine, bad, found == UNDECIDED)
            for r in results
            for counts, fine, bad, found in zip(
                r.counted, r.right, r.wrong, r.verdicts, strict=True
            )
        ]
        counted = [rest for counts, *rest in layers if counts]
        right, wrong, undecided = (sum(column[i] for column in counted) for i in range(3))
        return cls(len(counted), right, wrong, undecided, len(layers) - len(counted))


def imposes_wrong(planted: str, verdict: str, true: Collection[str] | None = None) -> bool:
    """Whether a verdict names a member that is not a subgroup of the planted one.

    `true` has the names of its subgroups where the candidates are not those of the benchmark.
    """
    if verdict in (NONE, UNDECIDED):
        return False
    if true is None:
        true = CANDIDATES.subgroups("trivial" if planted == NONE else planted)
    return not set(verdict.split(" and ")) <= set(true)
