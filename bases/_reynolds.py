"""Invariants by averaging over the group.

The Reynolds projector P is the mean of all elements. Its trace, the mean product of characters, is
the dimension d; P maps d random tensors to a basis, and QR makes it orthonormal. Translations, a
normal subgroup T that permutes, are averaged as orbits: P = P_K P_T.

Coordinates of an axis that no generator mixes (the summands of a fibre, the shells of a window) are
blocks, and the invariants of the tensor space are the sum of those of all products of blocks. Each
is averaged alone, or solved by orbits where `use_orbits` is set and only signed permutations are
left of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ._arrays import FloatArray, IntArray
from ._orbits import components, orbit_matrix
from ._problem import Factors, Problem, apply, diagonal, orbits_under, restricted, sparse

LIMIT = 100_000_000
_MOST_PRODUCTS = 256
SPARSE_BELOW = 0.25


def character_dimension(problem: Problem) -> int:
    """dim of the invariants = mean over the group of the product of the factors' characters."""
    whole = [[np.arange(size)] for size in problem.shape]
    return int(_dimensions(problem, whole).item())


def averaged_basis(problem: Problem, use_orbits: bool) -> FloatArray | sp.csr_array:
    """An orthonormal basis as rows (dimension, size), sparse where blocks leave most entries 0."""
    axes = [_blocks(problem, axis) for axis in range(len(problem.shape))]
    if use_orbits:
        axes = [_signed_together(problem, axis, blocks) for axis, blocks in enumerate(axes)]
    axes = _few_products(axes)
    dimensions = _dimensions(problem, axes)
    cosets = list(problem.cosets())
    parts, places = [], []
    for which in itertools.product(*(range(len(blocks)) for blocks in axes)):
        dimension = int(dimensions[which])
        if not dimension:
            continue
        indices = [blocks[k] for blocks, k in zip(axes, which, strict=True)]
        part = _restricted_problem(problem, indices, cosets)
        if use_orbits and part.is_signed:
            parts.append(orbit_matrix(orbits_under(part, part.generators), part.size))
        else:
            parts.append(sp.csr_array(_averaged(part, dimension)))
        places.append(np.ravel_multi_index(np.ix_(*indices), problem.shape).ravel())
    return _assembled(parts, places, problem.size)


def _blocks(problem: Problem, axis: int) -> list[IntArray]:
    """Coordinates of one axis, in sets that no generator mixes."""
    size = problem.shape[axis]
    entries = [sparse(factors[axis]).tocoo() for factors in problem.generators]
    here = np.concatenate([np.arange(size), *(e.row for e in entries)])
    there = np.concatenate([np.arange(size), *(e.col for e in entries)])
    label, count = components(here, there, size)
    return [np.flatnonzero(label == k) for k in range(count)]


def _signed_together(problem: Problem, axis: int, blocks: list[IntArray]) -> list[IntArray]:
    """All blocks where only signed permutations act as one, then the others."""
    signed: list[IntArray] = []
    others: list[IntArray] = []
    for block in blocks:
        kept = all(isinstance(restricted(f[axis], block), tuple) for f in problem.generators)
        (signed if kept else others).append(block)
    return [np.sort(np.concatenate(signed)), *others] if signed else others


def _few_products(axes: list[list[IntArray]]) -> list[list[IntArray]]:
    """Leave axes whole that would make too many products, those with the most blocks first."""
    chosen = list(axes)
    products = 1
    for axis in sorted(range(len(axes)), key=lambda axis: len(axes[axis])):
        products *= len(axes[axis])
        if products > _MOST_PRODUCTS:
            chosen[axis] = [np.sort(np.concatenate(axes[axis]))]
            products //= len(axes[axis])
    return chosen


def _dimensions(problem: Problem, axes: Sequence[Sequence[IntArray]]) -> IntArray:
    """The dimension of the invariants in every product of blocks, from characters."""
    label = [np.empty(size, dtype=np.int64) for size in problem.shape]
    for axis, blocks in enumerate(axes):
        for k, block in enumerate(blocks):
            label[axis][block] = k
    counts = [len(blocks) for blocks in axes]
    total, order = np.zeros(counts), 0
    for factors in problem.elements():
        product = np.ones(())
        for axis, factor in enumerate(factors):
            traces = np.bincount(label[axis], diagonal(factor), counts[axis])
            product = np.multiply.outer(product, traces)
        total += product
        order += 1
    mean = total / order
    found = np.rint(mean)
    if np.abs(mean - found).max(initial=0) > 1e-6:
        raise ValueError(
            f"the characters give dimension {mean.sum():.6f}, not a whole number: the site and "
            "fibre actions are not representations of one group"
        )
    return np.asarray(found, dtype=np.int64)


def _restricted_problem(
    problem: Problem, indices: Sequence[IntArray], elements: Sequence[Factors]
) -> Problem:
    def part(factors: Factors) -> Factors:
        return tuple(restricted(f, index) for f, index in zip(factors, indices, strict=True))

    return Problem(
        shape=tuple(map(len, indices)),
        split=problem.split,
        generators=tuple(map(part, problem.generators)),
        translations=problem.translations,
        cosets=lambda: map(part, elements),
        elements=lambda: map(part, elements),
    )


def _averaged(problem: Problem, dimension: int, seed: int = 0) -> FloatArray:
    if dimension * problem.size > LIMIT:
        raise ValueError(
            f"Reynolds averaging would need {dimension} × {problem.size} numbers "
            f"(the limit is {LIMIT:.0e}); take a smaller lattice or fibre"
        )
    translated = None
    if problem.translations:
        chosen = [problem.generators[k] for k in problem.translations]
        translated = orbit_matrix(orbits_under(problem, chosen), problem.size)
    cosets = list(problem.cosets())
    tensors = np.random.default_rng(seed).standard_normal((dimension, problem.size))
    # The first pass is as ill-conditioned as a random square matrix; the second repairs that.
    for _ in range(2):
        if translated is not None:
            tensors = (translated.T @ (translated @ tensors.T)).T
        cube = tensors.reshape(dimension, *problem.shape)
        mean = np.zeros_like(cube)
        for factors in cosets:
            mean += apply(factors, cube)
        flat = mean.reshape(dimension, problem.size) / len(cosets)
        tensors = np.linalg.qr(flat.T)[0].T
    return tensors


def _assembled(
    parts: list[sp.csr_array], places: list[IntArray], size: int
) -> FloatArray | sp.csr_array:
    """The rows of every part at their places in the whole tensor."""
    if not parts:
        return np.zeros((0, size))
    indices = np.concatenate(
        [place[part.indices] for part, place in zip(parts, places, strict=True)]
    )
    data = np.concatenate([part.data for part in parts])
    lengths = np.concatenate([np.diff(part.indptr) for part in parts])
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    rows = sp.csr_array((data, indices, indptr), (len(lengths), size))
    return rows if rows.nnz < SPARSE_BELOW * len(lengths) * size else rows.toarray()
