"""What is left of a space of maps when smaller ones inside it are taken out.

In the coordinates of the space the smaller ones are rows R, and the answer is ker R. Sparse rows
fall apart into small blocks, one for every connected component of the coordinates they share, and
blocks of one shape are solved together. Where the smaller spaces are orthogonal to each other R has
orthonormal rows, and a complete QR decomposition gives ker R without a decision about rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ._arrays import FloatArray, IntArray
from ._subspaces import Rows

_RANK_TOLERANCE = 1e-8
_NOISE = 1e-14


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
        ranks = (values > _RANK_TOLERANCE).sum(axis=1)
        for rank in np.unique(ranks):
            chosen = np.flatnonzero(ranks == rank)
            yield chosen, right[chosen, rank:]


def _sparse_kernel(rows: sp.csr_array, orthogonal: bool) -> sp.csr_array:
    _drop(rows)
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


def _drop(rows: sp.csr_array) -> None:
    """Remove rounding noise where zeros belong."""
    rows.data[np.abs(rows.data) < _NOISE] = 0
    rows.eliminate_zeros()
    rows.sort_indices()
