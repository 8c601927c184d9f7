"""How the candidates of a search act on the C numbers at each site of a sample.

Symmetries given by generators may act on these numbers too: a change of sign, a permutation of
colours, a rotation of vectors. The channels of a sample are then copies of a fibre ρ of the ambient
symmetry, and every member gets just that fibre, called `VALUES`.

Where ρ does more than permute its components, networks need features on which a function of single
entries commutes with the group, and which have invariants even where ρ has none (a change of sign).
These are the permutations of the images {ρ(g) e_i} of the basis vectors, called `FEATURES`: they
contain the constants, and ρ itself by x ↦ ⟨x, ρ(g) e_i⟩.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from ._elements import SiteElement, are_permutations
from ._groupset import GroupSet
from ._lattice import Lattice
from ._space import FeatureSpace
from ._symmetry import Symmetry

VALUES, FEATURES = "values of samples", "their images"
MOST_IMAGES = 64

FloatArray = NDArray[np.float64]


def on_values(groups: GroupSet, lattice: tuple[int, ...], channels: int) -> GroupSet:
    """Return the group set with members that act on samples (channels, *lattice) as they should.

    The channels are copies of the product of all fibres that the members were given, or of the
    largest product of some of them of which the size divides `channels` and on which every
    generator does something.

    Raises
    ------
    ValueError
        If there is none: then a symmetry of the values would be one of nothing at all.
    """
    layout = groups.ambient.layout
    names = [name for name, _ in layout]
    if groups.ambient.is_catalogue or not layout or VALUES in names:
        return groups
    sizes = dict(layout)
    some = [c for k in range(len(names) + 1) for c in itertools.combinations(names, k)]
    some.sort(key=lambda c: (-math.prod(sizes[n] for n in c), -len(c)))
    for chosen in some:
        space = groups.space(lattice, 1, list(chosen) or "trivial")
        if channels % space.fibre_size == 0 and all(_does_something(space, m) for m in groups):
            return _acting(groups, space) if chosen else groups
    at = f"{channels} number{'s' if channels > 1 else ''} at each site"
    sizes_said = " and ".join(f"{size} ({name or 'fibre'})" for name, size in layout)
    shared = "; symmetries of the same values need one fibre name" if len(layout) > 1 else ""
    raise ValueError(
        f"{' and '.join(idle(groups))} would do nothing to samples with {at}: they act on fibres "
        f"of size {sizes_said}{shared}"
    )


def value_space(
    groups: GroupSet, lattice: Lattice | tuple[int, ...], channels: int
) -> FeatureSpace:
    """Return the space of samples (channels, *lattice), on which a set of `on_values` acts."""
    sizes = dict(groups.ambient.layout)
    fibre, size = (VALUES, sizes[VALUES]) if VALUES in sizes else ("trivial", 1)
    return groups.space(lattice, channels // size, fibre)


def idle(groups: GroupSet) -> list[str]:
    """Return the names of members that do nothing, or not all they should, to scalar fields."""
    return [
        m.name
        for m in groups
        if m.lattice and not _does_something(GroupSet(m).space(m.lattice, 1, "trivial"), m)
    ]


def feature_fibre(symmetry: Symmetry) -> str | None:
    """Return the fibre of the hidden features of a network that obeys a member of `on_values`."""
    sizes = dict(symmetry.layout)
    return FEATURES if FEATURES in sizes else VALUES if VALUES in sizes else None


def _does_something(space: FeatureSpace, member: Symmetry) -> bool:
    """Whether every generator moves a site, or is no identity on the fibre."""
    if member.is_catalogue:
        return True
    for g in space.generators(member):
        assert isinstance(g, SiteElement)
        still = np.array_equal(space.fibre_matrix(g), np.eye(space.fibre_size))
        if g.fixes_sites and still and not g.is_identity:
            return False
    return True


def _acting(groups: GroupSet, space: FeatureSpace) -> GroupSet:
    """The members with the fibre of that space, and with images of its basis where needed."""
    maps = [space.fibre_matrix(g) for m in groups for g in space.generators(m)]
    images = None if are_permutations(maps) else _images(maps)
    return GroupSet(*(_with_values(m, space, images) for m in groups))


def _with_values(member: Symmetry, space: FeatureSpace, images: FloatArray | None) -> Symmetry:
    if member.is_catalogue or member.is_trivial:
        return member
    elements = space.generators(member)
    maps = [space.fibre_matrix(g) for g in elements]
    fibre: dict[str, list[FloatArray]] | None = {VALUES: maps}
    if all(np.array_equal(m, np.eye(len(m))) for m in maps):
        fibre = None
    elif images is not None:
        fibre = {VALUES: maps, FEATURES: [_permuted(m, images) for m in maps]}
    moves = [g.moves for g in elements if isinstance(g, SiteElement)]
    return Symmetry.from_generators(
        member.name, space.lattice, moves, fibre, member.max_order, internal=True
    )


def _images(maps: list[FloatArray]) -> FloatArray | None:
    """The images of the basis vectors, one a row; None if there are more than `MOST_IMAGES`."""
    found = list(np.eye(len(maps[0])))
    known = {_key(v) for v in found}
    for vector in found:  # which grows
        for image in (m @ vector for m in maps):
            if _key(image) not in known:
                known.add(_key(image))
                found.append(image)
        if len(found) > MOST_IMAGES:
            return None
    return np.array(found)


def _permuted(matrix: FloatArray, images: FloatArray) -> FloatArray:
    """The permutation of the images by a matrix of the group."""
    where = {_key(v): k for k, v in enumerate(images)}
    return np.eye(len(images))[:, [where[_key(matrix @ v)] for v in images]]


def _key(vector: FloatArray) -> bytes:
    return (np.round(vector, 6) + 0.0).tobytes()
