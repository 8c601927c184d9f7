"""Subspaces of maps, each given by an orthonormal basis: inclusion, intersection, complement.

With M = A Bᵀ for orthonormal rows A and B, the singular values of M are the cosines of the
principal angles. So span A ⊆ span B if and only if |M|² = dim A.

Two orbit bases intersect in an orbit basis: an invariant map is constant (up to sign) on the orbits
of either group, hence on the connected components of their labels.

In the coordinates of a space, smaller ones inside it are rows R, and what is left without them is
ker R. Sparse rows decompose into small blocks, one for every connected component of the coordinates
they share; blocks of one shape are solved together. Where the smaller spaces are orthogonal to each
other, R has orthonormal rows, and a complete QR decomposition gives ker R without a decision about
rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ._arrays import FloatArray, IntArray
from ._basis import Basis, Form
from ._orbits import Orbits, components

Rows: TypeAlias = "FloatArray | sp.csr_array"

_TOLERANCE = 1e-8
_NOISE = 1e-14


def cross(first: Basis, second: Basis) -> Rows:
    """A Bᵀ, dense where one of them is."""
    if isinstance(first.form, Orbits) and isinstance(second.form, Orbits):
        return _orbit_cross(first.form, second.form)
    if isinstance(first.form, np.ndarray):
        if isinstance(second.form, np.ndarray):
            return np.asarray(first.form @ second.form.T)
        return np.asarray((second.matrix @ first.form.T).T)
    if isinstance(second.form, np.ndarray):
        return np.asarray(first.matrix @ second.form.T)
    return sp.csr_array(first.matrix @ second.matrix.T)


def _orbit_cross(first: Orbits, second: Orbits) -> sp.csr_array:
    """Entries shared by every two orbits, counted with their signs."""
    alive = (first.labels >= 0) & (second.labels >= 0)
    signs = np.ones(len(alive)) if first.signs is None else first.signs.astype(np.float64)
    if second.signs is not None:
        signs = signs * second.signs
    places = first.labels[alive], second.labels[alive]
    shape = (first.count, second.count)
    shared = sp.coo_array((signs[alive], places), shape=shape).tocsr()
    shared.eliminate_zeros()
    left, right = (
        sp.diags_array(1 / np.sqrt(np.bincount(o.labels[o.labels >= 0], minlength=o.count)))
        for o in (first, second)
    )
    return sp.csr_array(left @ shared @ right)


def squared_norm(matrix: Rows) -> float:
    data = matrix.data if isinstance(matrix, sp.csr_array) else matrix
    return float(np.square(data).sum())


def lies_inside(dimension: int, gram: Rows) -> bool:
    """Whether the rows' space, of that dimension, lies in the columns' space."""
    return abs(squared_norm(gram) - dimension) < _TOLERANCE * max(1, dimension)


def intersection(first: Basis, second: Basis) -> Basis:
    """The maps in both spans."""
    form: Form
    if isinstance(first.form, Orbits) and isinstance(second.form, Orbits):
        form = _joined(first.form, second.form)
    else:
        angles = cross(first, second)
        dense = angles.toarray() if isinstance(angles, sp.csr_array) else angles
        values, vectors = np.linalg.eigh(dense @ dense.T)
        form = np.asarray((first.matrix.T @ vectors[:, values > 1 - _TOLERANCE]).T)
    return type(first)(first.shape, form, "intersection")


def _joined(first: Orbits, second: Orbits) -> Orbits:
    """Connected components of the labels of both, on nodes 2·label + sign bit.

    Node pairs 0 … n−1 are the labels of `first`, then those of `second`, then one for zero.
    """
    zero = first.count + second.count
    here = np.where(first.labels >= 0, first.labels, zero)
    there = np.where(second.labels >= 0, second.labels + first.count, zero)
    one = np.ones(1, np.int8)
    signs = (one if first.signs is None else first.signs) * (
        one if second.signs is None else second.signs
    )
    flip = np.broadcast_to(signs < 0, here.shape).astype(np.int64)
    codes = np.unique((here.astype(np.int64) * (zero + 1) + there) * 2 + flip)
    pair, flip = codes >> 1, codes & 1
    here, there = 2 * (pair // (zero + 1)), 2 * (pair % (zero + 1)) + flip
    left = np.concatenate([here, here + 1, [2 * zero]])
    right = np.concatenate([there, there ^ 1, [2 * zero + 1]])
    component, _ = components(left, right, 2 * (zero + 1))
    plus, minus = component[0 : 2 * first.count : 2], component[1 : 2 * first.count : 2]
    alive = plus != minus
    kept, number = np.unique(np.minimum(plus, minus)[alive], return_inverse=True)
    label_of = np.full(first.count + 1, -1, dtype=np.int32)
    label_of[:-1][alive] = number
    labels = label_of[first.labels]
    if first.signs is None and second.signs is None:
        return Orbits(labels, None, len(kept))
    sign_of = np.append(np.where(plus < minus, 1, -1), 1).astype(np.int8)
    carried = sign_of[first.labels]
    return Orbits(labels, carried if first.signs is None else carried * first.signs, len(kept))


def complement(smaller: Sequence[Rows], orthogonal: bool) -> Rows:
    """Orthonormal rows that span what is orthogonal to all rows given.

    `orthogonal` says that the rows given are orthonormal, all together.
    """
    if any(isinstance(rows, np.ndarray) for rows in smaller):
        dense = [rows if isinstance(rows, np.ndarray) else rows.toarray() for rows in smaller]
        ((_, kernel),) = _kernels(np.concatenate(dense)[None], orthogonal)
        return np.ascontiguousarray(kernel[0])
    return _sparse_kernel(sp.csr_array(sp.vstack(smaller)), orthogonal)


def _kernels(stack: FloatArray, orthogonal: bool) -> Iterator[tuple[IntArray, FloatArray]]:
    """Orthonormal rows of the kernels of (batch, height, width), batched by their dimension."""
    batch, height, width = stack.shape
    everyone = np.arange(batch)
    if height == 0:
        yield everyone, np.broadcast_to(np.eye(width), (batch, width, width))
    elif orthogonal:
        full = np.linalg.qr(stack.swapaxes(1, 2), mode="complete")[0]
        yield everyone, full[:, :, height:].swapaxes(1, 2)
    else:
        _, values, right = np.linalg.svd(stack, full_matrices=True)
        ranks = (values > _TOLERANCE).sum(axis=1)
        for rank in np.unique(ranks):
            chosen = np.flatnonzero(ranks == rank)
            yield chosen, right[chosen, rank:]


def _sparse_kernel(rows: sp.csr_array, orthogonal: bool) -> sp.csr_array:
    rows.data[np.abs(rows.data) < _NOISE] = 0
    rows.eliminate_zeros()
    rows.sort_indices()
    n_rows, n_columns = rows.shape
    graph = sp.block_array([[None, rows], [rows.T, None]], format="csr")
    n_blocks, block = connected_components(graph, directed=False)
    row_block, column_block = block[:n_rows], block[n_rows:]
    heights = np.bincount(row_block, minlength=n_blocks)
    widths = np.bincount(column_block, minlength=n_blocks)
    row_place, _ = _placed(row_block, heights)
    column_place, members = _placed(column_block, widths)
    starts = np.cumsum(widths) - widths
    entries = rows.tocoo()
    entry_block = row_block[entries.row]
    data, indices, lengths = [], [], []
    for height, width in sorted(set(zip(heights.tolist(), widths.tolist(), strict=True))):
        chosen = np.flatnonzero((heights == height) & (widths == width))
        slot = np.full(n_blocks, -1)
        slot[chosen] = np.arange(len(chosen))
        mine = slot[entry_block] >= 0
        stack = np.zeros((len(chosen), height, width))
        stack[
            slot[entry_block[mine]],
            row_place[entries.row[mine]],
            column_place[entries.col[mine]],
        ] = entries.data[mine]
        columns = members[starts[chosen][:, None] + np.arange(width)]
        for which, kernels in _kernels(stack, orthogonal):
            dimension = kernels.shape[1]
            data.append(kernels.ravel())
            indices.append(np.repeat(columns[which], dimension, axis=0).ravel())
            lengths.append(np.full(len(which) * dimension, width))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    return sp.csr_array(
        (np.concatenate(data), np.concatenate(indices), indptr), (len(indptr) - 1, n_columns)
    )


def _placed(block: IntArray, sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Each index's place inside its block, and all indices ordered by block."""
    order = np.argsort(block, kind="stable")
    place = np.empty(len(block), dtype=np.int64)
    place[order] = np.arange(len(block)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return place, order
