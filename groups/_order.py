"""Inclusion of groups, and the group that several generate together.

Catalogue symmetries compare by their translations and point matrices. Where a generator-defined
group is involved, both are taken on its lattice, and every generator of the smaller must be an
element of the larger. Against a catalogue symmetry that is decided at once: the image of one site
leaves one candidate for each point matrix. Against a generated group, by a chain of stabilisers on
points that it permutes faithfully: exact whatever its order. A continuous group contains another if
its Lie algebra contains the other's, and it contains the other's discrete generators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import scipy.linalg

from ._elements import Element, LatticeElement, SiteElement
from ._faithful import generated_group
from ._lattice import Lattice
from ._lie import Infinitesimal, closed, contains, spans
from ._matrices import closure, permutes_unequal_axes
from ._symmetry import Symmetry
from ._tensors import Layout, blocks_of


def as_site_element(g: Element, fibre_size: int) -> SiteElement:
    """The same element, given by what it does to sites and to a fibre of that size."""
    if isinstance(g, LatticeElement):
        return SiteElement(g.sites(g.shape), None, None, np.eye(fibre_size), g.name)
    assert isinstance(g, SiteElement)
    if g.fibre.shape[0] == fibre_size:
        return g
    return SiteElement(g.sites, g.signs, g.matrix, np.eye(fibre_size), g.name)


def lift(g: Element, own: Layout, layout: Layout) -> SiteElement:
    """The same element on the fibres of ``layout``: the identity on those that are not its own."""
    if not isinstance(g, SiteElement):
        return as_site_element(g, max(1, sum(size for _, size in layout)))
    if own == layout:
        return g
    blocks = blocks_of(g.fibre, own)
    maps = [blocks.get(name, np.eye(size)) for name, size in layout]
    fibre = scipy.linalg.block_diag(*maps) if maps else np.eye(1)
    return SiteElement(g.sites, g.signs, g.matrix, fibre, g.label)


def common_layout(symmetries: Sequence[Symmetry]) -> Layout:
    """All fibres of the symmetries, each once; ValueError if one has two sizes."""
    found: dict[str, int] = {}
    for symmetry in symmetries:
        for name, size in symmetry.layout:
            if found.setdefault(name, size) != size:
                sizes = sorted({found[name], size})
                raise ValueError(
                    f"{_listed(symmetries)} act on fibres of different sizes {sizes}; give fibres "
                    'names where they are different ones, fibre={"name": maps}'
                )
    return tuple(found.items())


@lru_cache(maxsize=4096)
def is_inside(smaller: Symmetry, larger: Symmetry) -> bool:
    """Whether every element of ``smaller`` is one of ``larger``."""
    if smaller.is_trivial or smaller.key == larger.key:
        return True
    if smaller.is_catalogue and larger.is_catalogue:
        if smaller.dim != larger.dim or (smaller.translations and not larger.translations):
            return False
        if larger.turns != 0 and (smaller.turns == 0 or larger.turns % smaller.turns):
            return False
        dim = smaller.dim or 0
        return set(smaller.point_in(dim)) <= set(larger.point_in(dim))
    lattice = common_lattice((smaller, larger))
    if lattice is None or smaller.is_approximate:
        return False
    try:
        layout = common_layout((smaller, larger))
    except ValueError:
        return False
    if smaller.algebra or larger.algebra:
        return _inside_continuous(smaller, larger, lattice, layout)
    generators = [lift(g, smaller.layout, layout) for g in smaller.generators(lattice)]
    if larger.is_catalogue:
        return all(_in_catalogue(g, larger, lattice) for g in generators)
    lifted = tuple(lift(g, larger.layout, layout) for g in larger.site_generators)
    if set(generators) <= {*lifted, *(g.inverse() for g in lifted)}:
        return True
    group = generated_group(larger.name, lifted, larger.max_order)
    return all(g in group for g in generators)


def normalises(symmetry: Symmetry, member: Symmetry) -> bool:
    """Whether g h g⁻¹ is an element of ``member`` for all g of ``symmetry`` and h of ``member``."""
    if member.is_trivial or is_inside(symmetry, member):
        return True
    if symmetry.is_catalogue and member.is_catalogue:
        if symmetry.translations and not member.translations:
            return False  # the centre of its rotations moves
        dim = member.dim or 0
        point = [np.array(m) for m in member.point_in(dim)]
        turned = (g @ h @ g.T for g in map(np.array, symmetry.point_in(dim)) for h in point)
        return {h.tobytes() for h in turned} <= {h.tobytes() for h in point}
    if symmetry.is_catalogue or member.is_catalogue:
        return False  # not both act on one fibre
    for g in symmetry.generators(member.lattice or ()):
        assert isinstance(g, SiteElement)
        back = g.inverse()
        moved = replace(
            member,
            site_generators=tuple(g * h * back for h in member.site_generators),
            algebra=tuple(Infinitesimal(g.fibre @ x.fibre @ back.fibre) for x in member.algebra),
        )
        if not is_inside(moved, member):
            return False
    return True


def _inside_continuous(
    smaller: Symmetry, larger: Symmetry, lattice: Lattice, layout: Layout
) -> bool:
    """By Lie algebras, then the discrete generators of the smaller one by one."""
    around = [x.fibre for x in lifted_algebra(larger, layout)]
    if not spans(around, [x.fibre for x in lifted_algebra(smaller, layout)]):
        return False
    discrete = tuple(discrete_generators(larger, lattice, layout))
    return all(
        contains(larger.name, discrete, around, g, larger.max_order)
        for g in discrete_generators(smaller, lattice, layout)
    )


def lifted_algebra(symmetry: Symmetry, layout: Layout) -> list[Infinitesimal]:
    """Its Lie algebra on the fibres of ``layout``."""
    return [x.lifted(symmetry.layout, layout) for x in symmetry.algebra]


def discrete_generators(symmetry: Symmetry, lattice: Lattice, layout: Layout) -> list[SiteElement]:
    """Its generators other than exponentials, on the fibres of ``layout``."""
    own = symmetry.generators(lattice) if symmetry.is_catalogue else symmetry.site_generators
    return [lift(g, symmetry.layout, layout) for g in own]


def common_lattice(symmetries: Sequence[Symmetry]) -> Lattice | None:
    """The lattice that the generator-defined ones share, if all act on it."""
    lattices = {s.lattice for s in symmetries if s.lattice is not None}
    if len(lattices) != 1:
        return None
    lattice = lattices.pop()
    for s in symmetries:
        if s.is_catalogue and not s.is_trivial and s.dim != lattice.dim:
            return None
        if any(permutes_unequal_axes(m, lattice.shape) for m in s.point):
            return None
    return lattice


def _in_catalogue(g: SiteElement, symmetry: Symmetry, lattice: Lattice) -> bool:
    if g.sites is None or not g.permutes_sites:
        return False
    if not np.array_equal(g.fibre, np.eye(len(g.fibre))):
        return False
    zero = (0,) * lattice.dim
    target = np.unravel_index(int(g.sites[0]), lattice.shape)
    for point in symmetry.point_in(lattice.dim):
        start = LatticeElement(point, zero, lattice.shape).sites(lattice.shape)[0]
        origin = np.unravel_index(int(start), lattice.shape)
        shift = tuple(int(a - b) for a, b in zip(target, origin, strict=True))
        if any(shift) and not symmetry.translations:
            continue
        candidate = LatticeElement(point, shift, lattice.shape)
        if np.array_equal(candidate.sites(lattice.shape), g.sites):
            return True
    return False


def joined(symmetries: Sequence[Symmetry], name: str) -> Symmetry:
    """The group that the symmetries generate together.

    Maps that are equivariant to it are those that are equivariant to all of them.
    """
    if all(s.is_catalogue for s in symmetries):
        dims = {s.dim for s in symmetries if s.dim is not None}
        if len(dims) > 1:
            raise ValueError(f"{_listed(symmetries)} act on lattices of different dimension")
        if not dims:
            return Symmetry(name)
        dim = dims.pop()
        matrices = {m for s in symmetries for m in s.point}
        translations = any(s.translations for s in symmetries)
        turns = math.lcm(*(s.turns for s in symmetries))
        return Symmetry(name, dim, translations, closure(matrices, dim), turns=turns)
    lattice = common_lattice(symmetries)
    inexact = [s for s in symmetries if s.is_approximate]
    if inexact:
        raise ValueError(
            f"{_listed(inexact)} turns images by interpolation and goes with groups of the "
            f"catalogue, not with {_listed([s for s in symmetries if not s.is_catalogue])}"
        )
    if lattice is None:
        raise ValueError(f"{_listed(symmetries)} do not act on one and the same lattice")
    layout = common_layout(symmetries)
    lifted = [g for s in symmetries for g in discrete_generators(s, lattice, layout)]
    algebra = closed(
        [x.fibre for s in symmetries for x in lifted_algebra(s, layout)],
        [g.fibre for g in lifted],
    )
    bound = max(s.max_order for s in symmetries)
    generators = tuple(dict.fromkeys(g for g in lifted if not g.is_identity)) or tuple(lifted[:1])
    named = layout if any(label for label, _ in layout) else ()
    return Symmetry(
        name,
        lattice.dim,
        False,
        (),
        lattice,
        generators,
        bound,
        named,
        tuple(map(Infinitesimal, algebra)),
    )


def _listed(symmetries: Sequence[Symmetry]) -> str:
    return ", ".join(s.name for s in symmetries)
