"""Orthogonal increments of a family of subspaces of maps.

Subspaces of equivariant maps are ordered by inclusion: the larger the group, the smaller the space.
The family is first closed under intersection; the common part of two members that do not contain
each other becomes an internal member named after both, `p4&flips`. The increment of a member is
then what it adds: its subspace minus the sum of all strictly smaller ones,

    D_m = S_m ⊖ Σ_{S_j ⊊ S_m} S_j,       S_m = Σ_{S_j ⊆ S_m} D_j.

Increments of nested members are orthogonal. Those of incomparable members are orthogonal when the
projectors commute; the pairs that are not are reported in `overlapping`. Those may even be linearly
dependent, as three lines of one plane are: then `rank` is less than the number of rows. No
independent parts can span all members in that case; on request, each part keeps only what is
orthogonal to its intersection with the sum of those before it,

    D′_m = D_m ⊖ (D_m ∩ Σ_{j before m} D′_j),

so that all parts together still span everything, and `missing` counts what members have lost.

Empty increments are dropped, and one member represents all that have the same subspace (that of the
largest point group, or the first).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from ._basis import Basis
from ._subspaces import Rows, complement, cross, intersection, lies_inside, squared_norm

_OVERLAP = 1e-8


@dataclass(frozen=True, eq=False)
class Increments:
    """Orthogonal parts, by name: members in the order given, then intersections.

    Attributes
    ----------
    bases
        An orthonormal basis of every part.
    members
        For every member, the names of the parts that together span its subspace.
    overlapping
        The pairs of parts that are not orthogonal to each other.
    rank
        The dimension of the sum of all parts: `rows` where they are linearly independent.
    missing
        For members that their parts do not span, how many dimensions lack. Empty unless parts
        were made independent.
    """

    bases: Mapping[str, Basis]
    members: Mapping[str, tuple[str, ...]]
    overlapping: tuple[tuple[str, str], ...]
    rank: int
    missing: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """The number of basis maps of all parts."""
        return sum(basis.dim for basis in self.bases.values())

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
        if self.rank < self.rows:
            shared += f", {self.rows} rows of rank {self.rank}"
        lost = f", missing={dict(self.missing)}" if self.missing else ""
        return f"Increments({parts}{shared}{lost})"


def increments(bases: Mapping[str, Basis], independent: bool = False) -> Increments:
    """Orthogonal increments of a family of subspaces, closed under intersection.

    Parameters
    ----------
    bases
        Named bases of maps of one shape.
    independent
        Make the parts linearly independent where they are not, smaller subspaces first. Parts of
        a member then may not span it, see `Increments.missing`.

    Returns
    -------
    Increments
        The non-empty parts, which of them span each member, and which overlap.

    Raises
    ------
    ValueError
        If there is no basis, if their shapes differ, or if a basis has the name of an intersection.
    """
    if not bases:
        raise ValueError("increments needs at least one basis, got none")
    shapes = {name: basis.shape for name, basis in bases.items()}
    if len(set(shapes.values())) > 1:
        raise ValueError(f"all bases must be of maps of one shape, got {shapes}")
    family, stands_for = _closed(bases)
    names = family.names
    below = {name: [n for n in names if n != name and family.inside(n, name)] for name in names}
    parts: dict[str, Rows | None] = {}
    overlaps: list[tuple[str, str]] = []
    for name in sorted(names, key=family.dim):
        smaller = [other for other in below[name] if other in parts]
        clean = not any(a in smaller and b in smaller for a, b in overlaps)
        rows = [_times(parts[other], family.gram(other, name)) for other in smaller]
        part = complement(rows, orthogonal=clean) if rows else None
        if not (family.dim(name) if part is None else part.shape[0]):
            continue
        for other in parts:
            if other not in smaller and _overlap(family, (other, parts[other]), (name, part)):
                overlaps.append((other, name))
        parts[name] = part
    order = [name for name in names if name in parts]
    inside = {
        member: tuple(part for part in order if part == name or part in below[name])
        for member, name in stands_for.items()
    }
    found = {name: _expanded(family.bases[name], parts[name]) for name in order}
    pairs = tuple(p for p in combinations(order, 2) if p in overlaps or p[::-1] in overlaps)
    rank = _rank(found, pairs)
    total = sum(basis.dim for basis in found.values())
    if not independent or rank == total:
        return Increments(found, inside, pairs, rank)
    kept = _independent({name: found[name] for name in parts})
    found = {name: kept[name] for name in order if kept[name].dim}
    inside = {member: tuple(n for n in names if n in found) for member, names in inside.items()}
    missing = {
        member: lost
        for member, names in inside.items()
        if (lost := family.dim(stands_for[member]) - sum(found[n].dim for n in names))
    }
    pairs = tuple(
        (a, b)
        for a, b in pairs
        if a in found and b in found and squared_norm(cross(found[a], found[b])) > _OVERLAP
    )
    return Increments(found, inside, pairs, rank, missing)


class _Family:
    """Subspaces by name, with the products A Bᵀ of their bases, each computed once."""

    def __init__(self, bases: Mapping[str, Basis]) -> None:
        self.bases = dict(bases)
        self._grams: dict[tuple[str, str], Rows] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.bases)

    def dim(self, name: str) -> int:
        return self.bases[name].dim

    def gram(self, first: str, second: str) -> Rows:
        if (second, first) in self._grams:
            gram = self._grams[second, first].T
            return gram if isinstance(gram, np.ndarray) else gram.tocsr()
        if (first, second) not in self._grams:
            self._grams[first, second] = cross(self.bases[first], self.bases[second])
        return self._grams[first, second]

    def inside(self, first: str, second: str) -> bool:
        if self.dim(first) > self.dim(second):
            return False
        return lies_inside(self.dim(first), self.gram(first, second))


def _times(left: Rows | None, right: Rows) -> Rows:
    """left · right, where None is the identity."""
    return right if left is None else left @ right


def _overlap(
    family: _Family, first: tuple[str, Rows | None], second: tuple[str, Rows | None]
) -> bool:
    between = _times(first[1], family.gram(first[0], second[0]))
    if second[1] is not None:
        between = between @ second[1].T
    return squared_norm(between) > _OVERLAP


def _expanded(space: Basis, part: Rows | None) -> Basis:
    """A part, given in the coordinates of its space, as a basis of maps."""
    if part is None:
        return space
    rows: Rows
    if isinstance(part, np.ndarray) or isinstance(space.form, np.ndarray):
        dense = part if isinstance(part, np.ndarray) else part.toarray()
        rows = space.expand(dense).reshape(len(dense), space.size)
    else:
        rows = sp.csr_array(part @ space.matrix)
    return type(space)(space.shape, rows, "increment")


def _dependencies(bases: Sequence[Basis]) -> Rows:
    """Coefficients (…, rows of all bases) of the combinations of basis maps that are zero."""
    table = [[cross(first, second) for second in bases] for first in bases]
    if any(isinstance(gram, np.ndarray) for line in table for gram in line):
        dense = [[g if isinstance(g, np.ndarray) else g.toarray() for g in line] for line in table]
        return complement([np.block(dense)], orthogonal=False)
    return complement([sp.csr_array(sp.block_array(table))], orthogonal=False)


def _rank(parts: Mapping[str, Basis], overlapping: Sequence[tuple[str, str]]) -> int:
    """The dimension of the sum of all parts."""
    shared = [basis for name, basis in parts.items() if any(name in pair for pair in overlapping)]
    rows = sum(basis.dim for basis in parts.values())
    return rows - (_dependencies(shared).shape[0] if shared else 0)


def _independent(parts: Mapping[str, Basis]) -> dict[str, Basis]:
    """Every part without its intersection with the sum of those before it."""
    kept: dict[str, Basis] = {}
    for name, basis in parts.items():
        zero = _dependencies([*kept.values(), basis])[:, -basis.dim :]
        kept[name] = (
            _expanded(basis, complement([zero], orthogonal=False)) if zero.shape[0] else basis
        )
    return kept


def _closed(bases: Mapping[str, Basis]) -> tuple[_Family, dict[str, str]]:
    """The distinct subspaces closed under intersection, and which of them every member is."""
    given = _Family(bases)
    stands_for: dict[str, str] = {}
    for name in bases:
        equal = [n for n in bases if given.dim(n) == given.dim(name) and given.inside(name, n)]
        stands_for[name] = max(equal, key=lambda n: bases[n].strictness)
    family = given
    for name, same in stands_for.items():
        if name != same:
            del family.bases[name]
    made_of = {name: frozenset([name]) for name in family.names}
    tried = set(made_of.values())
    queue = list(family.names)
    while queue:
        one = queue.pop(0)
        for other in family.names:
            together = made_of[one] | made_of[other]
            if together in tried:
                continue
            tried.add(together)
            if family.inside(one, other) or family.inside(other, one):
                continue
            common = intersection(family.bases[one], family.bases[other])
            name = "&".join(member for member in bases if member in together)
            known = (
                common.dim == basis.dim and lies_inside(common.dim, cross(common, basis))
                for basis in family.bases.values()
            )
            if not common.dim or any(known):
                continue
            if name in bases:
                raise ValueError(
                    f"the basis named {name!r} is not the intersection of those members"
                )
            family.bases[name], made_of[name], stands_for[name] = common, together, name
            queue.append(name)
    return family, stands_for
