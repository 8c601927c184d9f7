"""The symmetries that have names.

In the plane: the ten subgroups of the square's symmetry group about the array centre, each with all
translations of the torus (wallpaper names) or with none (point-group names). On lines and in space:
reflections, rotations about an axis, and the octahedral groups.

`named` registers a maker: the name that a command line takes, and what the group does in a few
words. Nothing else needs to know of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from ._matrices import IntMatrix, as_matrix, identity
from ._symmetry import Symmetry
from .gate import load_group

__all__ = [
    "axial",
    "c2",
    "c4",
    "cm",
    "cmm",
    "cyclic",
    "d2",
    "d4",
    "diagonal",
    "flips",
    "image_turns",
    "inversion",
    "line_reflections",
    "mirror",
    "octahedral",
    "octahedral_point",
    "p2",
    "p4",
    "p4m",
    "permutations",
    "pmm",
    "translations",
    "trivial",
    "z2",
]

ROTATION: IntMatrix = ((0, -1), (1, 0))
HALF_TURN: IntMatrix = ((-1, 0), (0, -1))
TRANSPOSE: IntMatrix = ((0, 1), (1, 0))
ANTITRANSPOSE: IntMatrix = ((0, -1), (-1, 0))


Maker = TypeVar("Maker", bound=Callable[..., Symmetry])


@dataclass(frozen=True)
class Entry:
    """A registered group: how it is made, and what it does in a few words."""

    make: Callable[[], Symmetry]
    meaning: str


CATALOGUE: dict[str, Entry] = {}
_SIZED = re.compile(r"(?P<kind>permutations|cyclic|s(?=\d))\(?(?P<number>[1-9]\d*)?\)?")


def named(*names: str, meaning: str, **arguments: Any) -> Callable[[Maker], Maker]:
    """Register the group that a maker makes with these arguments.

    Parameters
    ----------
    *names
        What a command line may call it. The first should be the symmetry's own name.
    meaning
        What it does, in a few words, as in "shifts and quarter turns".
    **arguments
        Arguments of the maker.
    """

    def register(maker: Maker) -> Maker:
        for name in names:
            if name in CATALOGUE:
                raise ValueError(f"the catalogue already has a group {name!r}")
            CATALOGUE[name] = Entry(partial(maker, **arguments), meaning)
        return maker

    return register


def named_group(name: str, points: int | None = None) -> Symmetry:
    """The group of that name, such as "p4", "flips(0)", "cm(anti)", "z3", "s8" or "none".

    Parameters
    ----------
    name
        A name of the catalogue, or "permutations(8)" ("s8") and "cyclic(8)" on eight points.
    points
        The number of points where the name gives none: "permutations", "cyclic".

    Raises
    ------
    ValueError
        If there is no such group, or if it needs a number of points and none is given.
    """
    plain = "".join(name.split())
    if sized := _SIZED.fullmatch(plain):
        count = sized["number"] or points
        if count is None:
            raise ValueError(
                f"the group {plain!r} acts on a given number of points: write {plain}(8) for eight"
            )
        return (cyclic if sized["kind"] == "cyclic" else permutations)(int(count))
    found = CATALOGUE.get(plain)
    if found is None:
        raise ValueError(
            f"no group {name.strip()!r}; {_meant(name)} are {', '.join(group_names())}"
        )
    return found.make()


def _meant(name: str) -> str:
    """What a name that is not known may mean: one in another spelling, or several names."""
    parts = re.split(r"[\s;+|]+", name.strip())
    if len(parts) > 1 and all(part in CATALOGUE or needs_points(part) for part in parts):
        return f"separate names by commas, {','.join(parts)!r}. Known"
    near = difflib.get_close_matches("".join(name.split()).lower(), CATALOGUE, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}? Known" if near else "known"


def split_names(text: str) -> list[str]:
    """The names in a list such as "z2, flips(0, dim=3)"."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def needs_points(name: str) -> bool:
    """Whether a name leaves the number of points to the data: "permutations", "cyclic"."""
    sized = _SIZED.fullmatch("".join(name.split()))
    return sized is not None and not sized["number"]


def group_names() -> list[str]:
    """The names of the catalogue that take no arguments in parentheses."""
    return [name for name in CATALOGUE if "(" not in name]


def meaning(name: str) -> str:
    """What the group of that name does in a few words; the name itself if it is not known."""
    return CATALOGUE[name].meaning if name in CATALOGUE else name


def flip_matrix(axis: int, dim: int) -> IntMatrix:
    """Reverse one array axis."""
    if axis not in range(dim):
        raise ValueError(f"axis {axis!r} is not an axis of a {dim}-dimensional lattice")
    return tuple(tuple(-v if i == axis else v for v in row) for i, row in enumerate(identity(dim)))


def _named(base: str, axis: int, dim: int, default: int) -> str:
    arguments = [] if (axis == default and dim == 2) or dim == 1 else [str(axis)]
    if dim == 3:
        arguments.append("dim=3")
    return f"{base}({','.join(arguments)})" if arguments else base


@named("none", "trivial", meaning="no symmetry at all")
def trivial() -> Symmetry:
    """The group of one element, on any lattice."""
    return Symmetry("trivial")


@named("z3", meaning="shifts of voxels", dim=3)
@named("z1", meaning="shifts of a sequence", dim=1)
@named("z2", meaning="shifts", dim=2)
def translations(dim: int) -> Symmetry:
    """All translations of a torus of that dimension."""
    if dim not in (1, 2, 3):
        raise ValueError(f"translations are in 1, 2 or 3 dimensions, got {dim!r}")
    return Symmetry.catalogue(f"z{dim}", dim, True)


def z2() -> Symmetry:
    """All translations of an image."""
    return translations(2)


@named("p2", meaning="shifts and half turns")
def p2() -> Symmetry:
    """Translations and rotations by 180°."""
    return Symmetry.catalogue("p2", 2, True, (HALF_TURN,))


@named("p4", meaning="shifts and quarter turns")
def p4() -> Symmetry:
    """Translations and rotations by 90°."""
    return Symmetry.catalogue("p4", 2, True, (ROTATION,))


@named("p4m", meaning="shifts, quarter turns and reflections")
def p4m() -> Symmetry:
    """Translations, rotations by 90° and mirrors."""
    return Symmetry.catalogue("p4m", 2, True, (ROTATION, flip_matrix(1, 2)))


@named("flips(0)", meaning="shifts and up–down reflection", axis=0)
@named("flips", "flips(1)", meaning="shifts and left–right reflection")
def flips(axis: int = 1, dim: int = 2) -> Symmetry:
    """Translations and the reversal of one array axis (pm); the default is left–right."""
    return Symmetry.catalogue(_named("flips", axis, dim, 1), dim, True, (flip_matrix(axis, dim),))


@named("pmm", meaning="shifts and both axial reflections")
def pmm() -> Symmetry:
    """Translations and the reversals of both array axes."""
    return Symmetry.catalogue("pmm", 2, True, (flip_matrix(0, 2), flip_matrix(1, 2)))


@named("cm(anti)", meaning="shifts and reflection about the other diagonal", anti=True)
@named("cm", meaning="shifts and one diagonal reflection")
def cm(anti: bool = False) -> Symmetry:
    """Translations and a diagonal mirror: the transposition, or that about the other diagonal."""
    return Symmetry.catalogue(
        "cm(anti)" if anti else "cm", 2, True, (ANTITRANSPOSE if anti else TRANSPOSE,)
    )


@named("cmm", meaning="shifts and both diagonal reflections")
def cmm() -> Symmetry:
    """Translations and both diagonal mirrors."""
    return Symmetry.catalogue("cmm", 2, True, (TRANSPOSE, ANTITRANSPOSE))


@named("c2", meaning="half turns about the centre, no shifts")
def c2() -> Symmetry:
    """Rotations by 180° about the array centre, no translations."""
    return Symmetry.catalogue("c2", 2, False, (HALF_TURN,))


@named("c4", meaning="quarter turns about the centre, no shifts")
def c4() -> Symmetry:
    """Rotations by 90° about the array centre, no translations."""
    return Symmetry.catalogue("c4", 2, False, (ROTATION,))


@named("d4", meaning="quarter turns and reflections about the centre, no shifts")
def d4() -> Symmetry:
    """Rotations by 90° and mirrors through the array centre, no translations."""
    return Symmetry.catalogue("d4", 2, False, (ROTATION, flip_matrix(1, 2)))


@named("se2", meaning="shifts and turns by any angle", n=0, translations=True)
@named("p16", meaning="shifts and turns by 22.5°", n=16, translations=True)
@named("p8", meaning="shifts and turns by 45°", n=8, translations=True)
@named("so2", meaning="turns by any angle about the centre, no shifts", n=0)
@named("c16", meaning="turns by 22.5° about the centre, no shifts", n=16)
@named("c8", meaning="turns by 45° about the centre, no shifts", n=8)
def image_turns(n: int = 0, translations: bool = False) -> Symmetry:
    """Rotations of an image by 360°/n, or by any angle for n = 0.

    On pixels only quarter turns are exact. Networks obey the others to within an error that is
    measured and reported, see the guide on continuous groups.

    Parameters
    ----------
    n
        A multiple of 4 from 8, or 0 for all angles.
    translations
        Whether shifts of the torus belong to the group as well.
    """
    if isinstance(n, bool) or not isinstance(n, int) or n % 4 or n == 4 or n < 0:
        raise ValueError(f"images are turned by 360°/n, n = 8, 12, 16, … or 0 for all; got {n!r}")
    exact = ("p" if translations else "c") + str(n)
    name = exact if n else "se2" if translations else "so2"
    return Symmetry.catalogue(name, 2, translations, (ROTATION,), turns=n)


@named("d2(diagonal)", meaning="both diagonal reflections, no shifts", diagonal=True)
@named("d2", meaning="both axial reflections about the centre, no shifts")
def d2(diagonal: bool = False) -> Symmetry:
    """Two perpendicular mirrors through the array centre (along the axes, or the diagonals)."""
    if diagonal:
        return Symmetry.catalogue("d2(diagonal)", 2, False, (TRANSPOSE, ANTITRANSPOSE))
    return Symmetry.catalogue("d2", 2, False, (flip_matrix(0, 2), flip_matrix(1, 2)))


@named("mirror(0,dim=1)", meaning="reversal of a sequence, no shifts", axis=0, dim=1)
@named("mirror(0)", meaning="up–down reflection about the centre, no shifts", axis=0)
@named("mirror", "mirror(1)", meaning="left–right reflection about the centre, no shifts")
def mirror(axis: int = 1, dim: int = 2) -> Symmetry:
    """The reversal of one array axis, no translations."""
    return Symmetry.catalogue(_named("mirror", axis, dim, 1), dim, False, (flip_matrix(axis, dim),))


@named("diagonal(anti)", meaning="reflection about the other diagonal, no shifts", anti=True)
@named("diagonal", meaning="one diagonal reflection, no shifts")
def diagonal(anti: bool = False) -> Symmetry:
    """A diagonal mirror through the array centre, no translations."""
    return Symmetry.catalogue(
        "diagonal(anti)" if anti else "diagonal", 2, False, (ANTITRANSPOSE if anti else TRANSPOSE,)
    )


@named("line_reflections", "flips(0,dim=1)", meaning="shifts and reversal of a sequence")
def line_reflections() -> Symmetry:
    """Translations and the reversal of a sequence."""
    return Symmetry.catalogue("line_reflections", 1, True, (flip_matrix(0, 1),))


OCTAHEDRAL: tuple[IntMatrix, ...] = (
    ((0, -1, 0), (1, 0, 0), (0, 0, 1)),
    ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
)
INVERSION: IntMatrix = ((-1, 0, 0), (0, -1, 0), (0, 0, -1))


@named("octahedral(mirrors)", meaning="shifts, turns and reflections of voxels", mirrors=True)
@named("octahedral", meaning="shifts and turns of voxels")
def octahedral(mirrors: bool = False) -> Symmetry:
    """Translations of voxels and the 24 rotations of the cube (48 with mirrors)."""
    if mirrors:
        return Symmetry.catalogue("octahedral(mirrors)", 3, True, (*OCTAHEDRAL, INVERSION))
    return Symmetry.catalogue("octahedral", 3, True, OCTAHEDRAL)


@named("oh", meaning="turns and reflections of voxels, no shifts", mirrors=True)
@named("o", meaning="turns of voxels, no shifts")
def octahedral_point(mirrors: bool = False) -> Symmetry:
    """The 24 rotations of the cube about the array centre (48 with mirrors), no translations."""
    if mirrors:
        return Symmetry.catalogue("oh", 3, False, (*OCTAHEDRAL, INVERSION))
    return Symmetry.catalogue("o", 3, False, OCTAHEDRAL)


@named("p-1", meaning="shifts and inversion of voxels", translations=True)
@named("inversion", meaning="inversion of voxels, no shifts")
def inversion(translations: bool = False) -> Symmetry:
    """The reversal of all three axes of voxels, with or without translations."""
    return Symmetry.catalogue("p-1" if translations else "inversion", 3, translations, (INVERSION,))


def axial(order: int = 4, axis: int = 0, translations: bool = True) -> Symmetry:
    """Rotations of voxels by 360°/order (2 or 4) about one array axis, with translations or not."""
    if order not in (2, 4) or axis not in range(3):
        raise ValueError(
            f"axial takes the order 2 or 4 and an axis 0, 1, 2; got {order!r}, {axis!r}"
        )
    a, b = (i for i in range(3) if i != axis)
    quarter = np.zeros((3, 3), dtype=int)
    quarter[axis, axis], quarter[a, b], quarter[b, a] = 1, -1, 1
    matrix = as_matrix(np.linalg.matrix_power(quarter, 4 // order))
    kind = "" if translations else ",point"
    return Symmetry.catalogue(f"axial{order}({axis}{kind})", 3, translations, (matrix,))


def permutations(n: int) -> Symmetry:
    """S_n on a set of n points, from two generators; never enumerated."""
    _check_count("permutations", n)
    swap = np.arange(n)
    swap[:2] = swap[:2][::-1]
    return Symmetry.from_generators(f"s{n}", (n,), [np.roll(np.arange(n), -1), swap])


def cyclic(n: int, fibre: object = None) -> Symmetry:
    """The cyclic shifts of a vector of n entries.

    ``fibre``: a representation of escnn's ``cyclic_group(n)``, by which the shifts act on a fibre.
    """
    _check_count("cyclic", n)
    step = np.roll(np.arange(n), -1)
    if fibre is None:
        return Symmetry.from_generators(f"cyclic{n}", (n,), [step])
    group = load_group().cyclic_group(n)
    if getattr(fibre, "group", None) != group:
        raise ValueError(f"cyclic({n}) takes a representation of escnn's {group}, got {fibre!r}")
    matrix = fibre(group.element(1 % n))  # type: ignore[operator]
    return Symmetry.from_generators(f"cyclic{n}", (n,), [step], fibre=[matrix])


def _check_count(name: str, n: int) -> None:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"{name}(n) takes a positive number of points, got {n!r}")


for _axis in range(3):
    for _make, _shifts in ((flips, "shifts of voxels and "), (mirror, "")):
        named(
            f"{_make.__name__}({_axis},dim=3)",
            meaning=f"{_shifts}reversal of axis {_axis}{'' if _shifts else ', no shifts'}",
            axis=_axis,
            dim=3,
        )(_make)
    for _order, _turns in ((2, "half"), (4, "quarter")):
        named(
            f"axial{_order}({_axis})",
            *([f"axial{_order}"] if _axis == 0 else []),
            meaning=f"shifts of voxels and {_turns} turns about axis {_axis}",
            order=_order,
            axis=_axis,
        )(axial)
        named(
            f"axial{_order}({_axis},point)",
            meaning=f"{_turns} turns of voxels about axis {_axis}, no shifts",
            order=_order,
            axis=_axis,
            translations=False,
        )(axial)


@lru_cache(maxsize=1)
def _by_key(count: int) -> dict[tuple[object, ...], Symmetry]:
    """The first `count` groups of the catalogue, without the trivial one."""
    made = [entry.make() for entry in list(CATALOGUE.values())[count - 1 :: -1]]
    return {s.key: s for s in made if not s.is_trivial}


def with_own_name(symmetry: Symmetry) -> Symmetry:
    """The catalogue's symmetry of the same key, which has a name; else `symmetry` itself."""
    return _by_key(len(CATALOGUE)).get(symmetry.key, symmetry)


def cubic(translations_: bool, mirrors: bool) -> Symmetry:
    """The smallest octahedral symmetry: the refuge of point groups that escnn has no name for."""
    return octahedral(mirrors) if translations_ else octahedral_point(mirrors)
