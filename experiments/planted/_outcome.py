"""What came of one case: the symmetry of every layer that was planted, and the one found.

A layer is right when the verdict is the planted member, the most restrictive true group. A *wrong
symmetry* is the dangerous error: the verdict names a member that the planted one does not contain,
so that the network is made blind to something the data depend on. Finding less symmetry than was
planted is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ._candidates import CANDIDATES

NONE = "none"


@dataclass(frozen=True)
class Outcome:
    """One teacher, or one data set: planted members and verdicts layer by layer.

    `counted` tells which layers count; the others could not have been told apart from a stricter
    member. `obeys` holds the members of every verdict.
    """

    part: str
    key: str
    planted: tuple[str, ...]
    obeys: tuple[tuple[str, ...], ...]
    counted: tuple[bool, ...]
    n: int
    noise: float
    seed: int
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> tuple[str, ...]:
        return tuple(" and ".join(members) or NONE for members in self.obeys)

    @property
    def right(self) -> tuple[bool, ...]:
        pairs = zip(self.planted, self.verdicts, strict=True)
        return tuple(planted == found for planted, found in pairs)

    @property
    def wrong(self) -> tuple[bool, ...]:
        """Where a wrong symmetry is imposed."""
        pairs = zip(self.planted, self.obeys, strict=True)
        return tuple(imposes_wrong(planted, members) for planted, members in pairs)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "verdicts": list(self.verdicts)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Outcome:
        return cls(
            part=content["part"],
            key=content["key"],
            planted=tuple(content["planted"]),
            obeys=tuple(tuple(members) for members in content["obeys"]),
            counted=tuple(content["counted"]),
            n=content["n"],
            noise=content["noise"],
            seed=content["seed"],
            seconds=content["seconds"],
            details=content["details"],
        )


@dataclass(frozen=True)
class Counts:
    """Layers counted, right, and with a wrong symmetry imposed; layers dropped."""

    layers: int
    right: int
    wrong: int
    dropped: int

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> Counts:
        layers = right = wrong = dropped = 0
        for outcome in outcomes:
            for counts, fine, bad in zip(
                outcome.counted, outcome.right, outcome.wrong, strict=True
            ):
                layers += counts
                right += counts and fine
                wrong += counts and bad
                dropped += not counts
        return cls(layers, right, wrong, dropped)


def imposes_wrong(planted: str, obeys: Sequence[str]) -> bool:
    """Whether a verdict names a member that is no subgroup of the planted one."""
    name = "trivial" if planted == NONE else planted
    return any(not CANDIDATES.contains(name, member) for member in obeys)
