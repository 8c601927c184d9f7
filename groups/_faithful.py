"""Membership in a generated group, exact whatever its order.

An element is a map of the sites and one of the fibre; each permutes points of its own:

permutations           the sites (or components) themselves
signed permutations    ±e_i, where a generator has a sign
other matrices         the orbit of the basis vectors, which spans: finite for a finite group

A chain of stabilisers on these points decides. The points of the sites come first, so an element
that leaves them alone acts on the fibre only. Where orbits of vectors have more than MOST_IMAGES
points, all elements are listed instead, up to ``max_order`` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ._chain import Chain
from ._elements import SiteElement, signed_permutation
from ._enumerate import enumerate_group

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

MOST_IMAGES = 3_000
_GRID = 1e-6
_OFFSET = 0.3137


class GeneratedGroup(Protocol):
    """What is decided about a group that is known by generators."""

    def __contains__(self, g: SiteElement, /) -> bool: ...

    @property
    def order(self) -> int:
        """The number of elements."""

    @property
    def has_internal_elements(self) -> bool:
        """Whether an element other than the identity leaves every site alone."""


@lru_cache(maxsize=32)
def generated_group(
    name: str, generators: tuple[SiteElement, ...], max_order: int
) -> GeneratedGroup:
    """The group of these generators; ValueError if it must be enumerated and is too large."""
    try:
        return _Permuting(generators)
    except OverflowError:
        return _Listed(enumerate_group(name, generators, max_order))


class _Listed:
    def __init__(self, elements: Sequence[SiteElement]) -> None:
        self._elements = frozenset(elements)

    def __contains__(self, g: SiteElement) -> bool:
        return g in self._elements

    @property
    def order(self) -> int:
        return len(self._elements)

    @cached_property
    def has_internal_elements(self) -> bool:
        return any(g.fixes_sites and not g.is_identity for g in self._elements)


class _Permuting:
    def __init__(self, generators: Sequence[SiteElement]) -> None:
        self._sites = _Part([_on_sites(g) for g in generators])
        self._fibre = _Part([g.fibre for g in generators])
        self._generators = tuple(generators)

    @cached_property
    def _chain(self) -> Chain:
        moved = [p for p in map(self._points, self._generators) if p is not None]
        return Chain(moved, self._sites.count + self._fibre.count)

    @property
    def order(self) -> int:
        return self._chain.order

    @property
    def has_internal_elements(self) -> bool:
        return self._fibre.count > 0 and self._chain.fixing(self._sites.count)

    def __contains__(self, g: SiteElement) -> bool:
        points = self._points(g)
        return points is not None and points in self._chain

    def _points(self, g: SiteElement) -> IntArray | None:
        sites, fibre = self._sites.permutation(_on_sites(g)), self._fibre.permutation(g.fibre)
        if sites is None or fibre is None:
            return None
        return np.asarray(np.concatenate([sites, fibre + len(sites)]))


Map = FloatArray | tuple[IntArray, FloatArray]


def _on_sites(g: SiteElement) -> Map:
    return g.site_matrix if g.sites is None or g.signs is None else (g.sites, g.signs)


def _signed(given: Map) -> tuple[IntArray, FloatArray] | None:
    return given if isinstance(given, tuple) else signed_permutation(given)


def _matrix(given: Map) -> FloatArray:
    if not isinstance(given, tuple):
        return given
    images, signs = given
    dense = np.zeros((len(images),) * 2)
    dense[images, np.arange(len(images))] = signs
    return dense


class _Part:
    """The points on which maps of the sites, or of the fibre, act; none if all are the identity."""

    def __init__(self, maps: Sequence[Map]) -> None:
        signed = [s for s in map(_signed, maps) if s is not None]
        self._size = len(maps[0][0]) if isinstance(maps[0], tuple) else len(maps[0])
        self._vectors: FloatArray | None = None
        self._has_signs = any((signs < 0).any() for _, signs in signed)
        if len(signed) < len(maps):
            self._vectors = _vector_orbits([_matrix(m) for m in maps])
            self._number = {key: k for k, key in enumerate(_keys(self._vectors))}
            self.count = len(self._vectors)
        elif not self._has_signs and all((p == np.arange(self._size)).all() for p, _ in signed):
            self.count = 0
        else:
            self.count = self._size * (2 if self._has_signs else 1)

    def permutation(self, given: Map) -> IntArray | None:
        """What a map does to the points; ``None`` if it takes one of them elsewhere."""
        if self._vectors is not None:
            moved = [self._number.get(key) for key in _keys(self._vectors @ _matrix(given).T)]
            known = [k for k in moved if k is not None]
            return np.array(known, np.intp) if len(known) == len(moved) else None
        signed = _signed(given)
        if signed is None:
            return None
        images, signs = signed
        minus = (signs < 0).astype(np.intp)
        if self._has_signs:
            pairs = np.stack([2 * images + minus, 2 * images + 1 - minus], axis=1)
            return np.asarray(pairs.ravel())
        if minus.any() or (not self.count and (images != np.arange(self._size)).any()):
            return None
        return images if self.count else images[:0]


def _vector_orbits(matrices: Sequence[FloatArray]) -> FloatArray:
    """The images of the basis vectors under the group, as rows; OverflowError if too many."""
    size = len(matrices[0])
    known: dict[bytes, FloatArray] = {}
    for start in np.eye(size):
        frontier = start[None]
        while len(frontier):
            fresh = {
                key: row
                for key, row in zip(_keys(frontier), frontier, strict=True)
                if key not in known
            }
            known.update(fresh)
            if len(known) > MOST_IMAGES:
                raise OverflowError(f"more than {MOST_IMAGES} images of the basis vectors")
            rows = np.array(list(fresh.values())).reshape(-1, size)
            frontier = np.concatenate([rows @ m.T for m in matrices])
    return np.array(list(known.values()))


def _keys(rows: FloatArray) -> list[bytes]:
    """One key for every row, on a grid that keeps 0, ±1, ±1/2… off its boundaries."""
    return [row.tobytes() for row in np.floor(rows / _GRID + _OFFSET).astype(np.int64)]
