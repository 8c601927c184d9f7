"""Inclusion of groups, and the group that several generate together.

Catalogue symmetries compare by their translations and point matrices. Where a generator-defined
group is involved, both are taken on its lattice, and every generator of the smaller must be an
element of the larger. Against a catalogue symmetry that is decided at once: the image of one site
leaves one candidate for each point matrix. Against a generated group, first by its orbits on pairs
of indices (a necessary condition), then by its elements where there are few. A group too large for
that (S₁₀₀) is taken to contain whatever preserves its orbits on pairs: every linear map that is
equivariant to it is then equivariant to the smaller group, which is all that paths and bases use.
With more than 1,000 signed points (500 basis vectors of fibre ⊗ sites) the pairs are too many and
orbits of single points stand in: a necessary condition only, so the answer may be a wrong yes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ._action import Action
from ._elements import Element, LatticeElement, SiteElement
from ._generators import enumerate_group
from ._lattice import Lattice
from ._matrices import closure, permutes_unequal_axes
from ._symmetry import Symmetry

FEW = 10_000
PAIRS = 1_000_000


def as_site_element(g: Element, fibre_size: int) -> SiteElement:
    """The same element, given by what it does to sites and to a fibre of that size."""
    if isinstance(g, LatticeElement):
        return SiteElement(g.sites(g.shape), None, None, np.eye(fibre_size), g.name)
    assert isinstance(g, SiteElement)
    if g.fibre.shape[0] == fibre_size:
        return g
    return SiteElement(g.sites, g.signs, g.matrix, np.eye(fibre_size), g.name)


@lru_cache(maxsize=4096)
def is_inside(smaller: Symmetry, larger: Symmetry) -> bool:
    """Whether every element of ``smaller`` is one of ``larger``."""
    if smaller.is_trivial or smaller.key == larger.key:
        return True
    if smaller.is_catalogue and larger.is_catalogue:
        if smaller.dim != larger.dim or (smaller.translations and not larger.translations):
            return False
        dim = smaller.dim or 0
        return set(smaller.point_in(dim)) <= set(larger.point_in(dim))
    lattice = _common_lattice((smaller, larger))
    if lattice is None:
        return False
    if smaller.has_fibre and larger.has_fibre and smaller.fibre_size != larger.fibre_size:
        return False
    size = max(smaller.fibre_size, larger.fibre_size)
    generators = [as_site_element(g, size) for g in smaller.generators(lattice)]
    if larger.is_catalogue:
        return all(_in_catalogue(g, larger, lattice) for g in generators)
    lifted = tuple(as_site_element(g, size) for g in larger.site_generators)
    if set(generators) <= {*lifted, *(g.inverse() for g in lifted)}:
        return True
    if not _preserves_pairs(generators, lifted):
        return False
    try:
        elements = set(enumerate_group(larger.name, lifted, min(FEW, larger.max_order)))
    except ValueError:
        return True
    return set(generators) <= elements


def _common_lattice(symmetries: Sequence[Symmetry]) -> Lattice | None:
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
    if g.sites is None or g.signs is None or (g.signs < 0).any():
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


def _preserves_pairs(smaller: Sequence[SiteElement], larger: Sequence[SiteElement]) -> bool:
    """Whether the elements preserve the orbits of ``larger`` on pairs (single ones when many).

    The points are ±e_i for the basis vectors e_i of fibre ⊗ sites. Says yes where something is no
    signed permutation: then the elements decide.
    """
    points = [_signed_points(g) for g in (*larger, *smaller)]
    moves = [p for p in points if p is not None]
    if len(moves) < len(points):
        return True
    size = len(moves[0])
    if size * size <= PAIRS:
        moves = [(p[:, None] * size + p[None, :]).ravel() for p in moves]
        size *= size
    known, tried = moves[: len(larger)], moves[len(larger) :]
    rows = np.tile(np.arange(size), len(known))
    graph = scipy.sparse.coo_array(
        (np.ones(len(rows), np.int8), (rows, np.concatenate(known))), shape=(size, size)
    )
    _, orbit = connected_components(graph, directed=False)
    return all(np.array_equal(orbit, orbit[p]) for p in tried)


def _signed_points(g: SiteElement) -> NDArray[np.intp] | None:
    """The permutation of the points +e_i (number 2i) and −e_i (number 2i + 1)."""
    signed = Action(g.fibre, g.sites, g.signs, g.matrix).signed()
    if signed is None:
        return None
    moved, signs = signed
    minus = (signs < 0).astype(np.intp)
    points: NDArray[np.intp] = np.stack([2 * moved + minus, 2 * moved + 1 - minus], axis=1)
    return points.ravel()


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
        return Symmetry(name, dim, translations, closure(matrices, dim))
    lattice = _common_lattice(symmetries)
    if lattice is None:
        raise ValueError(f"{_listed(symmetries)} do not act on one and the same lattice")
    sizes = {s.fibre_size for s in symmetries if s.has_fibre}
    if len(sizes) > 1:
        raise ValueError(f"{_listed(symmetries)} act on fibres of different sizes {sorted(sizes)}")
    size = max(sizes, default=1)
    lifted = [as_site_element(g, size) for s in symmetries for g in s.generators(lattice)]
    bound = max(s.max_order for s in symmetries)
    generators = tuple(dict.fromkeys(g for g in lifted if not g.is_identity)) or tuple(lifted[:1])
    return Symmetry(name, lattice.dim, False, (), lattice, generators, bound)


def _listed(symmetries: Sequence[Symmetry]) -> str:
    return ", ".join(s.name for s in symmetries)
