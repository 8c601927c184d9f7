"""A group set: the symmetries to choose among, and the ambient one that contains them all.

The ambient group is the smallest catalogue symmetry around the catalogue members, or, when a member
is defined by generators, the group that all members generate. Features carry a representation of it
and each member acts by restriction. A larger group has fewer equivariant maps, and Hom_G ∩ Hom_H is
Hom of the group that G and H generate.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ._catalogue import cubic, named_group, with_own_name
from ._fibre import make_fibre
from ._lattice import Lattice
from ._order import is_inside, joined
from ._points import is_known
from ._space import FeatureSpace
from ._symmetry import Symmetry

_DEFAULT_AXIS = (("flips", "flips(1)"), ("mirror", "mirror(1)"))


@dataclass(frozen=True, init=False, repr=False)
class GroupSet:
    """Named symmetries to choose among, in order: ``GroupSet(z2(), p4(), flips(axis=0))``.

    Parameters
    ----------
    *given
        Symmetries with different names, no two of them the same group; or names, as in
        ``GroupSet("z2", "p4", "flips(0)")``.

    Raises
    ------
    TypeError
        If something else than a ``Symmetry`` or a name is given.
    ValueError
        If there is no member, if a name is unknown, if two members are the same or share a name, or
        if they do not act on one lattice.
    """

    members: tuple[Symmetry, ...]

    def __init__(self, *given: Symmetry | str) -> None:
        if not given:
            raise ValueError(
                "a group set has at least one symmetry; for none at all, use trivial()"
            )
        for member in given:
            if not isinstance(member, Symmetry | str):
                raise TypeError(
                    "a group set is made of symmetries or their names, "
                    f"got {member!r}{_remedy(member)}"
                )
        members = tuple(named_group(m) if isinstance(m, str) else m for m in given)
        for a, b in itertools.combinations(members, 2):
            if a.name == b.name:
                raise ValueError(f"two symmetries are named {a.name}: names must differ")
            if _same(a, b):
                raise ValueError(f"{a} and {b} are the same symmetry: name it once")
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "_ambient", _ambient(members))

    @property
    def ambient(self) -> Symmetry:
        """The symmetry that contains all members."""
        ambient: Symmetry = self._ambient  # type: ignore[attr-defined]
        return ambient

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(m.name for m in self.members)

    def space(
        self, lattice: Lattice | Sequence[int] | int, channels: int, fibre: object = None
    ) -> FeatureSpace:
        """Features on a lattice, on which all members act.

        Parameters
        ----------
        lattice
            A ``Lattice`` or its shape, ``(height, width)``; an integer n means ``(n,)``.
        channels
            The number of copies of the fibre.
        fibre
            ``None`` (the regular representation of the ambient point group; for generators, the
            fibre given with them), ``"trivial"``, ``"regular"``, ``"irrep:<id>"`` or any escnn
            ``Representation`` of the ambient point group.

        Raises
        ------
        ValueError
            If a member does not act on the lattice, or if the fibre is not one of the ambient
            symmetry.
        """
        lattice = Lattice.of(lattice)
        for symmetry in (*self.members, self.ambient):
            symmetry.check_lattice(lattice)
        return FeatureSpace(lattice, channels, self.ambient, make_fibre(self.ambient, fibre))

    def contains(self, larger: str, smaller: str) -> bool:
        """Whether the member ``smaller`` is a subgroup of the member ``larger``."""
        return is_inside(self.member(smaller), self.member(larger))

    def subgroups(self, name: str) -> tuple[str, ...]:
        """The members inside a member (itself too), in order."""
        return tuple(n for n in self.names if self.contains(name, n))

    def supergroups(self, name: str) -> tuple[str, ...]:
        """The members around a member (itself too), in order."""
        return tuple(n for n in self.names if self.contains(n, name))

    def maximal(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """The given members (default: all) that no other of them contains properly."""
        among = self.names if names is None else tuple(names)
        return tuple(n for n in among if not any(self._properly(m, n) for m in among))

    def minimal(self, names: Sequence[str] | None = None) -> tuple[str, ...]:
        """The given members (default: all) that contain no other of them properly."""
        among = self.names if names is None else tuple(names)
        return tuple(n for n in among if not any(self._properly(n, m) for m in among))

    @property
    def strictest(self) -> tuple[str, ...]:
        """The largest groups, whose equivariant maps are fewest: the maximal members."""
        return self.maximal()

    def join(self, *names: str) -> Symmetry:
        """The group that members generate: maps equivariant to it are so to all of them."""
        members = [self.member(n) for n in names]
        return joined(members, "&".join(m.name for m in members))

    def intersections(self) -> dict[str, Symmetry]:
        """The joins of members that are no members: what closes their subspaces under intersection.

        ``{"p4&flips": …}`` for {z2, p4, flips}: the maps that are equivariant to p4m.
        """
        found: dict[str, Symmetry] = {}
        keys = {m.key for m in self.members}
        for count in range(2, len(self.members) + 1):
            for names in itertools.combinations(self.names, count):
                if self.maximal(names) != names:
                    continue
                join = self.join(*names)
                if not any(is_inside(join, m) and is_inside(m, join) for m in self.members):
                    if join.key not in keys:
                        found[join.name] = join
                    keys.add(join.key)
        return found

    def _properly(self, larger: str, smaller: str) -> bool:
        return self.contains(larger, smaller) and not self.contains(smaller, larger)

    def member(self, name: str) -> Symmetry:
        """``groups[name]``, with a ValueError that suggests the nearest name if there is none."""
        found = self._find(name)
        if found is None:
            near = difflib.get_close_matches(str(name), self.names, n=1, cutoff=0.3)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"no member {name!r} in {self}{hint}")
        return found

    def _find(self, name: object) -> Symmetry | None:
        """By name; ``"flips(1)"`` and ``"mirror(1)"`` also name those of the default axis."""
        for member in self.members:
            if member.name == name:
                return member
        for member in self.members:
            has_default = member.is_catalogue and member.dim == 2
            if has_default and (member.name, name) in _DEFAULT_AXIS:
                return member
        return None

    def __getitem__(self, name: str) -> Symmetry:
        found = self._find(name)
        if found is None:
            raise KeyError(f"no symmetry is named {name!r} in {self}")
        return found

    def __contains__(self, name: object) -> bool:
        return name in self.members or self._find(name) is not None

    def __iter__(self) -> Iterator[Symmetry]:
        return iter(self.members)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"GroupSet({', '.join(self.names)})"


def _remedy(given: object) -> str:
    """What to write instead of a list of symmetries, or of a function that makes one."""
    if isinstance(given, list | tuple | set | frozenset | GroupSet):
        return ": unpack it, GroupSet(*list)"
    if callable(given):
        return f": call it, {getattr(given, '__name__', 'symmetry')}()"
    return ""


def _same(a: Symmetry, b: Symmetry) -> bool:
    if a.is_catalogue and b.is_catalogue:
        return a.key == b.key
    return is_inside(a, b) and is_inside(b, a)


def _ambient(members: tuple[Symmetry, ...]) -> Symmetry:
    size = max(m.fibre_size for m in members)
    generated = any(not m.is_catalogue for m in members)
    candidates = [m for m in members if m.fibre_size == size and m.is_catalogue != generated]
    around = [m for m in candidates if all(is_inside(n, m) for n in members)]
    if around:
        ambient = around[0]
    else:
        ambient = with_own_name(joined(members, "<" + ",".join(m.name for m in members) + ">"))
    if not ambient.is_catalogue or is_known(ambient.point):
        return ambient
    return cubic(ambient.translations, any(np.linalg.det(m) < 0 for m in ambient.point))
