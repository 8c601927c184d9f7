"""A lower bound on the memory that a network's bases need, before any of it is allocated.

For a group m without translations that is contained in a larger group n of the set, a layer holds a
basis of the maps that obey m but not n. It is dense: with V numbers per channel (fibre × sites) and
regular fibres, on which the groups act freely, V²/|m| maps obey m, so the basis has at least
V²/|m| − Σ V²/|n| rows of V² numbers. Channels share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from groupella._machine import memory_of_machine

from .spelling import ArgumentError

if TYPE_CHECKING:
    from groupella.groups import GroupSet

NUMBER = 8  # bytes


@dataclass(frozen=True)
class Need:
    """Return the bytes for the maps that obey `group` and none of `larger`."""

    group: str
    larger: tuple[str, ...]
    bytes: int


def largest_need(groups: GroupSet, lattice: tuple[int, ...]) -> Need | None:
    """Return the largest dense basis of the groups on that lattice; None if there is none."""
    needs = []
    for member in groups:
        if member.is_trivial or member.translations or not member.is_catalogue:
            continue
        larger = [n for n in groups if n != member and groups.contains(n.name, member.name)]
        if larger:
            maps = groups.space(lattice, 1).size ** 2
            rows = maps // member.order(lattice) - sum(maps // n.order(lattice) for n in larger)
            total = NUMBER * max(rows, 0) * maps
            needs.append(Need(member.name, tuple(n.name for n in larger), total))
    return max(needs, key=lambda need: need.bytes, default=None)


def check_memory(groups: GroupSet, lattice: tuple[int, ...]) -> None:
    """Raise if the bases of the groups do not fit into the memory of this machine."""
    need, there = largest_need(groups, lattice), memory_of_machine()
    if need is not None and there is not None and need.bytes > there:
        size, machine = (f"{b / 2**30:.0f} GiB" for b in (need.bytes, there))
        raise ArgumentError(
            f"on {'×'.join(map(str, lattice))} images the maps that obey {need.group} but not "
            f"{' or '.join(need.larger)} take {size}; this machine has {machine}. Use smaller "
            "images, or leave out one of two groups without translations"
        )
