"""Orthogonal increments of a family of subspaces of maps.

Subspaces of equivariant maps are ordered by inclusion: the larger the group, the smaller the space.
The family is first closed under intersection; the common part of two members that do not contain
each other becomes an internal member named after both, `p4&flips`. The increment of a member is
then what it adds: its subspace minus the sum of all strictly smaller ones,

    D_m = S_m ⊖ Σ_{S_j ⊊ S_m} S_j,       S_m = Σ_{S_j ⊆ S_m} D_j.

Increments of nested members are orthogonal. Those of incomparable members are orthogonal when the
projectors commute; the pairs that are not are reported in `overlapping`. Empty increments are
dropped, and of members with one and the same subspace one stands for all (that of the largest point
group, or the first).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ._basis import Basis
from ._complement import complement
from ._subspaces import cross, intersection, is_inside, squared_norm

_OVERLAP = 1e-8


@dataclass(frozen=True, eq=False)
class Increments:
    """Orthogonal parts, by name: members in the order given, then intersections.

    bases: an orthonormal basis for every part
    members: for every member, the names of the parts that lie in its subspace and together span it
    overlapping: pairs of parts that are not orthogonal to each other
    """

    bases: Mapping[str, Basis]
    members: Mapping[str, tuple[str, ...]]
    overlapping: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.bases)

    def __len__(self) -> int:
        return len(self.bases)

    def __getitem__(self, name: str) -> Basis:
        return self.bases[name]

    def inside(self, name: str) -> tuple[str, ...]:
        """The parts in the subspace of the member `name`; together they span it."""
        if name not in self.members:
            raise KeyError(f"no member {name!r}; there are {', '.join(self.members)}")
        return self.members[name]

    def __repr__(self) -> str:
        parts = ", ".join(f"{name}: {basis.dim}" for name, basis in self.bases.items())
        shared = f", overlapping={self.overlapping}" if self.overlapping else ""
        return f"Increments({parts}{shared})"


def increments(bases: Mapping[str, Basis]) -> Increments:
    """Close a family of subspaces under intersection and make it orthogonal."""
    _check(bases)
    same, family = _closed(bases)
    below = {
        name: [
            other for other in family if other != name and is_inside(family[other], family[name])
        ]
        for name in family
    }
    parts: dict[str, Basis] = {}
    overlaps: set[tuple[str, str]] = set()
    for name in sorted(family, key=lambda name: family[name].dim):
        smaller = [other for other in below[name] if other in parts]
        clean = not any(a in smaller and b in smaller for a, b in overlaps)
        part = complement(family[name], [parts[other] for other in smaller], orthogonal=clean)
        if not part.dim:
            continue
        for other, basis in parts.items():
            if other not in smaller and squared_norm(cross(part, basis)) > _OVERLAP:
                overlaps.add((other, name))
        parts[name] = part
    order = [name for name in family if name in parts]
    inside = {
        member: tuple(part for part in order if part == name or part in below[name])
        for member, name in same.items()
    }
    place = {name: index for index, name in enumerate(order)}
    pairs = sorted(tuple(sorted(pair, key=place.__getitem__)) for pair in overlaps)
    return Increments(
        MappingProxyType({name: parts[name] for name in order}),
        MappingProxyType(inside),
        tuple((a, b) for a, b in sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))),
    )


def _check(bases: Mapping[str, Basis]) -> None:
    if not bases:
        raise ValueError("increments needs at least one basis, got none")
    shapes = {name: basis.shape for name, basis in bases.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"all bases must be of maps of one shape, got {shapes}")


def _closed(bases: Mapping[str, Basis]) -> tuple[dict[str, str], dict[str, Basis]]:
    """Which name stands for every member, and the distinct subspaces closed under intersection."""
    same: dict[str, str] = {}
    for name, basis in bases.items():
        equal = [n for n in bases if bases[n].dim == basis.dim and is_inside(basis, bases[n])]
        same[name] = max(equal, key=lambda n: bases[n].strictness)
    family = {name: bases[name] for name in bases if same[name] == name}
    made_of = {name: frozenset([name]) for name in family}
    tried: set[frozenset[str]] = set()
    queue = list(family)
    while queue:
        one = queue.pop(0)
        for other in list(family):
            together = made_of[one] | made_of[other]
            if together in tried or together in made_of.values():
                continue
            tried.add(together)
            if is_inside(family[one], family[other]) or is_inside(family[other], family[one]):
                continue
            common = intersection(family[one], family[other])
            if not common.dim or any(
                common.dim == basis.dim and is_inside(common, basis) for basis in family.values()
            ):
                continue
            name = "&".join(member for member in bases if member in together)
            if name in bases:
                raise ValueError(
                    f"the basis named {name!r} is not the intersection of those members"
                )
            family[name], made_of[name] = common, together
            same[name] = name
            queue.append(name)
    return same, family
