"""Signed permutation matrices: the point groups that move the sites of a lattice exactly.

A matrix M is a nested tuple of integers and acts on array coordinates taken from the array centre
c = (N − 1)/2: the site s moves to M(s − c) + c. Row i has one entry ε = ±1, in column j, so
coordinate i of the image is s_j (ε = 1) or N − 1 − s_j (ε = −1): an integer on odd and even sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

IntMatrix = tuple[tuple[int, ...], ...]


def identity(dim: int) -> IntMatrix:
    return tuple(tuple(int(i == j) for j in range(dim)) for i in range(dim))


def as_matrix(rows: Sequence[Sequence[float]] | NDArray[np.float64]) -> IntMatrix:
    """A signed permutation matrix as nested tuples; ValueError for any other matrix."""
    array = np.asarray(rows, dtype=float)
    rounded = np.rint(array).astype(int)
    signed = (
        array.ndim == 2
        and array.shape[0] == array.shape[1]
        and np.allclose(array, rounded, atol=1e-6)
        and bool((np.abs(rounded).sum(0) == 1).all() and (np.abs(rounded).sum(1) == 1).all())
    )
    if not signed:
        raise ValueError(f"not a signed permutation matrix: {np.asarray(rows).tolist()}")
    return tuple(tuple(int(v) for v in row) for row in rounded)


@lru_cache(maxsize=4096)
def multiply(a: IntMatrix, b: IntMatrix) -> IntMatrix:
    n = len(a)
    return tuple(
        tuple(sum(a[i][k] * b[k][j] for k in range(n)) for j in range(n)) for i in range(n)
    )


def inverse(a: IntMatrix) -> IntMatrix:
    """The transpose: the matrices are orthogonal."""
    return tuple(zip(*a, strict=True)) if a else ()


def negative(a: IntMatrix) -> IntMatrix:
    return tuple(tuple(-v for v in row) for row in a)


def determinant(a: IntMatrix) -> int:
    return round(float(np.linalg.det(np.array(a))))


@lru_cache(maxsize=1024)
def _closure(generators: frozenset[IntMatrix], dim: int) -> tuple[IntMatrix, ...]:
    one = identity(dim)
    found, frontier = {one}, [one]
    while frontier:
        products = {multiply(g, a) for a in frontier for g in generators} - found
        found |= products
        frontier = list(products)
    return tuple(sorted(found))


def closure(generators: Iterable[IntMatrix], dim: int) -> tuple[IntMatrix, ...]:
    """The group that the matrices generate, sorted."""
    return _closure(frozenset(generators), dim)


@lru_cache(maxsize=1024)
def minimal_generators(point: tuple[IntMatrix, ...]) -> tuple[IntMatrix, ...]:
    """A smallest generating set of a point group, the first one in the order of ``point``."""
    if len(point) <= 1:
        return ()
    dim = len(point[0])
    others = [m for m in point if m != identity(dim)]
    for count in range(1, len(others) + 1):
        for chosen in itertools.combinations(others, count):
            if len(closure(chosen, dim)) == len(point):
                return chosen
    raise AssertionError("a finite group generates itself")


def permutes_unequal_axes(matrix: IntMatrix, shape: tuple[int, ...]) -> bool:
    """Whether the matrix exchanges axes of different length."""
    return any(
        value and shape[i] != shape[j]
        for i, row in enumerate(matrix)
        for j, value in enumerate(row)
    )


@lru_cache(maxsize=256)
def site_permutation(
    matrix: IntMatrix, shift: tuple[int, ...], shape: tuple[int, ...]
) -> NDArray[np.intp]:
    """p, where site number s (in C order) moves to number p[s]: M(s − c) + c + t on the torus."""
    if not shape:
        return _frozen(np.zeros(1, np.intp))
    grid = np.indices(shape).reshape(len(shape), math.prod(shape))
    moved = []
    for row, t, n in zip(matrix, shift, shape, strict=True):
        j = next(k for k, v in enumerate(row) if v)
        moved.append(((grid[j] if row[j] > 0 else n - 1 - grid[j]) + t) % n)
    return _frozen(np.asarray(np.ravel_multi_index(moved, shape), dtype=np.intp))


def _frozen(array: NDArray[np.intp]) -> NDArray[np.intp]:
    array.flags.writeable = False
    return array
