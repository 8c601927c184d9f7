"""Membership in a permutation group, by a chain of stabilisers (Schreier–Sims).

G_p is the subgroup that leaves the points 0 … p−1 alone. Level p holds generators of (part of) G_p
and the orbit of p under them, as a tree. An element that maps p to a point of the orbit is brought
back along the tree, and so on: it *sifts*. What sifts to the identity is a product of generators,
so "yes" is a proof. "No" is one if the chain is complete, |G| = Π |orbits|.

Two questions come first, as they need no chain. G preserves its orbits on pairs of points, so what
does not is not in it. And a group that is transitive on all n points and has a cycle of prime
length p, n/2 < p < n − 2, has no blocks and contains every even permutation (Jordan 1873).

The chain is built from random elements (Leon 1980), then proved complete, or completed:

cells       Points with the same orbits of pairs with 0 … p−1 as p contain p's orbit under G_p;
            where they are no more than the orbit, at every level, |G| cannot be larger. Enough for
            wreath products, lattice groups…
Schreier    else the generators of each stabiliser, V(sδ) s U(δ) for all δ in an orbit and all
            generators s of the level, must sift through the levels below (Schreier's lemma).
            Levels have few generators, each in the group of the level above.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

IntArray = NDArray[np.intp]

_STABILISER_GENERATORS = 4
_CONSECUTIVE = 20
_CELLS_BELOW = 3_000
_COLOURS_FIRST = 1_000  # points, up to which colours cost less than most chains
_CHUNK = 1 << 22
_TRIES = 200  # random elements; in S_n one in 1.4 log n has a long cycle of prime length


class Chain:
    """The group that permutations of n points generate (point s moves to ``g[s]``)."""

    def __init__(self, generators: Sequence[IntArray], n: int) -> None:
        self.n = n
        self._one = np.arange(n)
        self.generators = [g for g in generators if not np.array_equal(g, self._one)]
        self._rng = np.random.default_rng(0)
        self._proved = False

    @property
    def order(self) -> int:
        """The number of elements, exactly."""
        if self._has_all_even:
            return math.factorial(self.n) // (2 if self._is_even else 1)
        self._prove()
        return math.prod(len(level.orbit) for level in self._levels.values())

    def fixing(self, count: int) -> bool:
        """Whether some element other than the identity leaves the first ``count`` points alone."""
        if self._has_all_even:
            return self.n - count > (2 if self._is_even else 1)
        if not any(p >= count for p in self._levels):
            self._prove()
        return any(p >= count for p in self._levels)

    def __contains__(self, g: IntArray) -> bool:
        if self._has_all_even:
            return not self._is_even or _is_even(g)
        if self.n <= _COLOURS_FIRST and not self._preserves_colours(g):
            return False
        if self._sifts(g):
            return True
        if self._proved or not self._preserves_colours(g):
            return False
        self._prove()
        return self._sifts(g)

    @cached_property
    def _is_even(self) -> bool:
        return all(map(_is_even, self.generators))

    @cached_property
    def _has_all_even(self) -> bool:
        """Whether every even permutation is proved to be an element, by a cycle of prime length."""
        n = self.n
        if n < 8 or len(_Level(0, self.generators, n).orbit) < n:
            return False
        for _, g in zip(range(_TRIES), self._random(self.generators), strict=False):
            # No other cycle is as long, so a power of g is this cycle alone.
            if any(n / 2 < length < n - 2 and _is_prime(length) for length in _cycles(g)):
                return True
        return False

    @cached_property
    def _levels(self) -> dict[int, _Level]:
        levels: dict[int, _Level] = {}
        generators = self.generators
        while generators:
            point = min(int(np.flatnonzero(g != self._one)[0]) for g in generators)
            level = levels[point] = _Level(point, generators, self.n)
            drawn = (level.to_stabiliser(g) for g in self._random(generators))
            some = [next(drawn) for _ in range(_STABILISER_GENERATORS)]
            generators = [g for g in some if not np.array_equal(g, self._one)]
        passed = 0
        for g in self._random(self.generators) if self.generators else ():
            passed = passed + 1 if not self._insert(g, levels) else 0
            if passed == _CONSECUTIVE:
                break
        return levels

    def _random(self, generators: Sequence[IntArray]) -> Iterator[IntArray]:
        """Nearly uniform elements by product replacement (Celler et al. 1995)."""
        slots = [generators[k % len(generators)] for k in range(max(8, len(generators)))]
        accumulator = self._one
        for step in range(1 << 62):
            i, j = self._rng.choice(len(slots), size=2, replace=False)
            factor = slots[j] if self._rng.random() < 0.5 else np.argsort(slots[j])
            slots[i] = slots[i][factor] if self._rng.random() < 0.5 else factor[slots[i]]
            accumulator = accumulator[slots[i]]
            if step >= 40:
                yield accumulator

    def _residue(self, g: IntArray, levels: dict[int, _Level]) -> IntArray:
        for level in sorted(levels):
            if (g[:level] != self._one[:level]).any():
                break
            brought = levels[level].to_stabiliser(g)
            if brought[level] != level:
                break
            g = brought
        return g

    def _sifts(self, g: IntArray) -> bool:
        return np.array_equal(self._residue(g, self._levels), self._one)

    def _insert(self, g: IntArray, levels: dict[int, _Level]) -> bool:
        """Add an element to the chain; False if it was there."""
        residue = self._residue(g, levels)
        moved = np.flatnonzero(residue != self._one)
        if not len(moved):
            return False
        point = int(moved[0])
        if point not in levels:
            levels[point] = _Level(point, [], self.n)
        for p, level in levels.items():
            if p <= point:
                level.add(residue)
        return True

    def _prove(self) -> None:
        if self._proved:
            return
        if not self._cells_are_orbits():
            while (failed := self._failing_schreier_generator()) is not None:
                self._insert(failed, self._levels)
        self._proved = True

    @cached_property
    def _colours(self) -> IntArray | None:
        """The number of the orbit of every pair of points, (n, n)."""
        if self.n > _CELLS_BELOW or not self.generators:
            return None
        size = self.n**2
        moved = [(g[:, None] * self.n + g[None, :]).ravel() for g in self.generators]
        rows = np.tile(np.arange(size), len(moved))
        graph = scipy.sparse.coo_array(
            (np.ones(len(rows), np.int8), (rows, np.concatenate(moved))), shape=(size, size)
        )
        found: IntArray = connected_components(graph, directed=False)[1]
        return found.reshape(self.n, self.n)

    def _preserves_colours(self, g: IntArray) -> bool:
        colours = self._colours
        return colours is None or np.array_equal(colours[np.ix_(g, g)], colours)

    def _cells_are_orbits(self) -> bool:
        colours = self._colours
        if colours is None:
            return not self.generators
        cell = np.diagonal(colours)
        for point in range(self.n):
            size = int((cell == cell[point]).sum())
            level = self._levels.get(point)
            if size != (1 if level is None else len(level.orbit)):
                return False
            both = cell.astype(np.int64) * (int(colours.max()) + 1) + colours[point]
            cell = np.unique(both, return_inverse=True)[1]
        return True

    def _failing_schreier_generator(self) -> IntArray | None:
        below: list[tuple[int, IntArray, NDArray[np.int32]]] = []
        for point in sorted(self._levels, reverse=True):
            level = self._levels[point]
            where, back = level.transversal()
            step = max(1, _CHUNK // self.n)
            for start in range(0, len(back), step):
                rows = back[start : start + step].astype(np.intp)
                forth = np.argsort(rows, axis=1)
                for s in level.generators:
                    moved = s[forth]
                    found = self._batch_residue(_after(back, where[moved[:, point]], moved), below)
                    wrong = np.flatnonzero((found != self._one).any(axis=1))
                    if len(wrong):
                        return np.asarray(found[wrong[0]])
            below.insert(0, (point, where, back))
        return None

    @staticmethod
    def _batch_residue(
        elements: IntArray, levels: Sequence[tuple[int, IntArray, NDArray[np.int32]]]
    ) -> IntArray:
        for point, where, back in levels:
            row = where[elements[:, point]]
            todo = np.flatnonzero((elements[:, point] != point) & (row >= 0))
            if len(todo):
                elements[todo] = _after(back, row[todo], elements[todo])
        return elements


def _cycles(g: IntArray) -> list[int]:
    """The lengths of the cycles."""
    graph = scipy.sparse.coo_array((np.ones(len(g), np.int8), (np.arange(len(g)), g)))
    lengths: list[int] = np.bincount(connected_components(graph, directed=False)[1]).tolist()
    return lengths


def _is_even(g: IntArray) -> bool:
    return (len(g) - len(_cycles(g))) % 2 == 0


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1))


def _after(table: NDArray[np.int32], rows: IntArray, elements: IntArray) -> IntArray:
    """table[rows[k]] after elements[k], for every k."""
    n = table.shape[1]
    return np.asarray(np.take(table.ravel(), elements + rows[:, None] * n), np.intp)


class _Level:
    """Generators, and the orbit of a point under them as a tree of generators."""

    def __init__(self, point: int, generators: Sequence[IntArray], n: int) -> None:
        self.point, self.n = point, n
        self.generators = list(generators)
        self._grow()

    def add(self, generator: IntArray) -> None:
        self.generators.append(generator)
        self._grow()

    def _grow(self) -> None:
        """The orbit, breadth first; ``via[q]`` is the generator that leads to q."""
        self._inverses = [np.argsort(g) for g in self.generators]
        self.via = np.full(self.n, -1)
        self.via[self.point] = len(self.generators)
        frontier = np.array([self.point])
        self._steps: list[tuple[int, IntArray]] = []
        while len(frontier):
            reached = []
            for k, g in enumerate(self.generators):
                image = g[frontier]
                fresh = image[self.via[image] < 0]
                if len(fresh):
                    self.via[fresh] = k
                    reached.append(fresh)
                    self._steps.append((k, fresh))
            frontier = np.concatenate(reached) if reached else frontier[:0]
        self.orbit = np.concatenate([[self.point], *(points for _, points in self._steps)])

    def to_stabiliser(self, g: IntArray) -> IntArray:
        """g brought back along the tree until it leaves the point alone, or left as it is."""
        if self.via[g[self.point]] < 0:
            return g
        while (image := g[self.point]) != self.point:
            g = self._inverses[self.via[image]][g]
        return g

    def transversal(self) -> tuple[IntArray, NDArray[np.int32]]:
        """(where, V): row ``where[q]`` of V is an element that moves q to the point."""
        where = np.full(self.n, -1)
        where[self.orbit] = np.arange(len(self.orbit))
        back = np.empty((len(self.orbit), self.n), dtype=np.int32)
        back[0] = np.arange(self.n)
        for k, points in self._steps:
            inverse = self._inverses[k]
            back[where[points]] = back[where[inverse[points]]][:, inverse]
        return where, back
