"""All elements of a generated group, up to a bound."""

from __future__ import annotations

from collections import OrderedDict

from ._elements import SiteElement

_ENUMERATED: OrderedDict[tuple[SiteElement, ...], tuple[SiteElement, ...]] = OrderedDict()


def enumerate_group(
    name: str, generators: tuple[SiteElement, ...], max_order: int
) -> tuple[SiteElement, ...]:
    """Every element of the generated group, the identity first; ValueError above ``max_order``."""
    if not generators:
        return ()
    found = _ENUMERATED.get(generators)
    if found is None:
        found = _breadth_first(name, generators, max_order)
        _ENUMERATED[generators] = found
        while len(_ENUMERATED) > 16:
            _ENUMERATED.popitem(last=False)
    if len(found) > max_order:
        raise ValueError(_too_large(name, max_order))
    return found


def _breadth_first(
    name: str, generators: tuple[SiteElement, ...], max_order: int
) -> tuple[SiteElement, ...]:
    one = generators[0].identity_like()
    found: dict[SiteElement, None] = {one: None}
    frontier = [one]
    while frontier:
        reached = []
        for a in frontier:
            for g in generators:
                b = g * a
                if b not in found:
                    found[b] = None
                    reached.append(b)
            if len(found) > max_order:
                raise ValueError(_too_large(name, max_order))
        frontier = reached
    return tuple(found)


def _too_large(name: str, max_order: int) -> str:
    return (
        f"{name} has more than max_order = {max_order} elements, or infinitely many; "
        "give generators of a smaller group, or raise max_order"
    )
