"""How much memory the bases of a network take at least, before any of it is asked for.

A layer holds, for a group m without shifts that lies in a larger group n of the set, a basis of the
maps that obey m and not n. It is dense: with V numbers a channel (fibre × sites) and regular
fibres, on which the groups act freely, there are V²/|m| maps that obey m, so that the basis has at
least V²/|m| − Σ V²/|n| rows of V² numbers. Channels share it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from groupella.groups import GroupSet

NUMBER = 8  # bytes


@dataclass(frozen=True)
class Need:
    """Bytes for the maps that obey `group` and none of `larger`."""

    group: str
    larger: tuple[str, ...]
    bytes: int


def largest_need(groups: GroupSet, lattice: tuple[int, ...] | None) -> Need | None:
    """Of the groups' bases on that lattice; None where none is dense.

    `lattice=None` asks whether there is any, whatever the lattice: its `bytes` are 0.
    """
    needs = []
    for member in groups:
        if member.is_trivial or member.translations or not member.is_catalogue:
            continue
        larger = [n for n in groups if n != member and groups.contains(n.name, member.name)]
        if not larger:
            continue
        total = 0
        if lattice is not None:
            maps = groups.space(lattice, 1).size ** 2
            rows = maps // member.order(lattice) - sum(maps // n.order(lattice) for n in larger)
            total = NUMBER * max(rows, 0) * maps
        needs.append(Need(member.name, tuple(n.name for n in larger), total))
    return max(needs, key=lambda need: need.bytes, default=None)


def memory_of_machine() -> int | None:
    """In bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
