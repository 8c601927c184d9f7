"""Which symmetry a layer obeys, given which of its paths are alive.

A path lies in the subspaces of some members of the group set. The layer as a whole obeys a member
when all its live paths lie in that member's subspace. The verdict is the strictest such member; of
several that are not comparable, all. Members with the trivial group are no symmetry.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

MOST_DECADES = 6.0


def verdict(
    live: Collection[str], subspaces: Mapping[str, tuple[str, ...]], groups: Any = None
) -> tuple[str, ...]:
    """The strictest non-trivial members that contain every live path; () is "none"."""
    members = _members(subspaces, groups)
    obeyed = [m for m in members if all(m in subspaces[path] for path in live)]
    return tuple(
        m for m in obeyed if not any(_stricter(o, m, subspaces, groups) for o in obeyed if o != m)
    )


def verdict_text(members: Collection[str]) -> str:
    return " and ".join(members) if members else "none"


def decades_from(threshold: float, value: float) -> float:
    """|log₁₀(value / threshold)|, at most `MOST_DECADES`."""
    if value <= 0:
        return MOST_DECADES
    return min(abs(math.log10(value / threshold)), MOST_DECADES)


def clearness(
    distances: Mapping[str, float],
    live: Collection[str],
    subspaces: Mapping[str, tuple[str, ...]],
    groups: Any = None,
) -> tuple[float, tuple[str, ...] | None]:
    """How far the verdict is from another one, and which.

    `distances` says how far each path is from changing between alive and dead. The answer is the
    smallest one among paths whose change would change the verdict, with the verdict it would
    give; (inf, None) if no single path can.
    """
    now = verdict(live, subspaces, groups)
    nearest: tuple[float, tuple[str, ...] | None] = (math.inf, None)
    for path, distance in distances.items():
        flipped = set(live) ^ {path}
        other = verdict(flipped, subspaces, groups)
        if other != now and distance < nearest[0]:
            nearest = (distance, other)
    return nearest


def _members(subspaces: Mapping[str, tuple[str, ...]], groups: Any) -> list[str]:
    """Names of the non-trivial members, in the order of the group set where there is one."""
    if groups is not None:
        return [name for name in groups.names if not groups[name].is_trivial]
    names = dict.fromkeys(member for members in subspaces.values() for member in members)
    return [name for name in names if name not in ("trivial", "none")]


def _stricter(one: str, other: str, subspaces: Mapping[str, tuple[str, ...]], groups: Any) -> bool:
    """Whether `one` is the larger group: by the group set, else by the paths that obey it."""
    if groups is not None:
        return bool(groups.contains(one, other)) and not bool(groups.contains(other, one))
    mine = {p for p, members in subspaces.items() if one in members}
    theirs = {p for p, members in subspaces.items() if other in members}
    return mine < theirs
