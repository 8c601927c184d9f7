"""Which symmetry layers obey, given which of their paths are alive.

A path lies in the subspaces of some members of the group set. Layers as a whole obey a member when
all their live paths lie in that member's subspace. The verdict is the strictest such member; of
several that are not comparable, all. Members with the trivial group are no symmetry. Where no path
is alive nothing was learned, and the verdict is "undecided". One function answers for a layer and
for the network, from the same list of candidates.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

NONE = "none"
UNDECIDED = "undecided"
NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Candidates:
    """The symmetries to choose among: names in the user's order, and which are contained in which.

    `inside[name]` lists the candidates that are proper subgroups of `name`: the weaker ones.
    `joins[name]` lists incomparable candidates that together generate `name`, where that is known.
    """

    names: tuple[str, ...]
    inside: Mapping[str, tuple[str, ...]]
    joins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Any) -> Candidates:
        """The non-trivial members of a `GroupSet`."""
        names = tuple(name for name in groups.names if not groups[name].is_trivial)
        inside = {
            one: tuple(
                other
                for other in names
                if other != one and groups.contains(one, other) and not groups.contains(other, one)
            )
            for one in names
        }
        return cls(names, inside)

    @classmethod
    def seen_in(cls, subspaces: Iterable[Collection[str]]) -> Candidates:
        """The candidates of layers without a group set, ordered by the paths that obey them."""
        seen = [tuple(members) for members in subspaces]
        names = [m for members in seen for m in members if m not in ("trivial", NONE)]
        paths = {name: {i for i, m in enumerate(seen) if name in m} for name in names}
        inside = {
            one: tuple(other for other in paths if paths[one] < paths[other]) for one in paths
        }
        return cls(tuple(paths), inside)

    def as_dict(self) -> dict[str, list[str]]:
        return {name: list(self.inside[name]) for name in self.names}

    @classmethod
    def from_dict(cls, content: Mapping[str, Collection[str]]) -> Candidates:
        return cls(tuple(content), {name: tuple(inside) for name, inside in content.items()})


def verdict(live: Iterable[Collection[str]], candidates: Candidates) -> tuple[str, ...] | None:
    """Return the strictest candidates that every live path obeys.

    Parameters
    ----------
    live
        For each live path, of one layer or of all, the members in whose subspace it lies.
    candidates
        The symmetries to choose among.

    Returns
    -------
    The names, () if the paths share no symmetry, None if no path is alive.
    """
    paths = list(live)
    if not paths:
        return None
    obeyed = [name for name in candidates.names if all(name in members for members in paths)]
    return tuple(n for n in obeyed if not any(n in candidates.inside[o] for o in obeyed))


def verdict_text(members: Collection[str] | None) -> str:
    """A verdict as it is printed: "p4", "p4 and flips", "none" or "undecided"."""
    if members is None:
        return UNDECIDED
    return " and ".join(members) if members else NONE


def remaining(
    live: Collection[str],
    subspaces: Mapping[str, Collection[str]],
    stationary: Mapping[str, Collection[str]],
) -> list[Collection[str]]:
    """Return the members that each part of a layer obeys that its dead paths leave behind.

    Parameters
    ----------
    live
        The live paths. Where there is none, nothing was learned and the answer is empty.
    subspaces
        For each path the members that it obeys.
    stationary
        For each path of which only the lengthscales can die, the members that the rest obeys: at
        ω = 0 the path is constant, not zero.
    """
    if not live:
        return []
    return [
        subspaces[p] if p in live else stationary[p]
        for p in subspaces
        if p in live or p in stationary
    ]


def clearness(
    distances: Mapping[str, float],
    live: Collection[str],
    subspaces: Mapping[str, Collection[str]],
    candidates: Candidates,
    stationary: Mapping[str, Collection[str]] | None = None,
) -> tuple[float, str | None]:
    """Return how far a layer's verdict is from another one, and the text of that one.

    `distances` says how far each path is from changing between alive and dead. The answer is the
    smallest among the paths whose change would change the verdict; (inf, None) if none would.
    `subspaces` and `stationary` are those of `remaining`.
    """

    def after(alive: Collection[str]) -> str:
        return verdict_text(verdict(remaining(alive, subspaces, stationary or {}), candidates))

    now = after(live)
    others = {path: after(set(live) ^ {path}) for path in distances}
    nearest = min(
        (path for path in distances if others[path] != now),
        key=lambda p: distances[p],
        default=None,
    )
    return (math.inf, None) if nearest is None else (distances[nearest], others[nearest])
