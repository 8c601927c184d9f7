"""Which paths of a layer are the strictest."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def strictest(subspaces: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The paths that lie in the most members: no other path lies in all of theirs and more."""
    inside = {path: set(members) for path, members in subspaces.items()}
    return tuple(p for p in inside if not any(inside[p] < other for other in inside.values()))
