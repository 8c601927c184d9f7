"""Invariants of a tensor product of two signed-permutation representations, by orbits.

Generators g act on pairs (a, b) of row and column indices as e_a ⊗ e_b → ± e_{ga} ⊗ e_{gb}. The
invariant tensors have one basis vector for every orbit of pairs that does not contain a pair with
both signs. The group is never enumerated:

1. Every orbit of rows has a representative r. Walking the Schreier tree from r to a by generators
   carries the column labels along: entry (a, b) gets the label of the column that the walk brings
   to b. There are then (orbits of rows) × (columns) labels, one block per orbit.
2. A generator that is not an edge of the tree closes a loop, which is an element of the stabiliser
   of r (Schreier's lemma: these loops generate it). Labels that a loop identifies are merged, as
   connected components of a graph on the labels. Signs double the labels: 2·label + (0 or 1).

Both steps are gathers over the table of pairs, once for every generator: time and memory are
linear in the number of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ._arrays import IntArray, LabelArray, SignArray, SignedPermutation

Indices: TypeAlias = "IntArray | LabelArray"

_CHUNK = 1 << 21
_MOST_PAIRS = 1 << 30


@dataclass(frozen=True, eq=False)
class Orbits:
    """One label for every pair (−1: no invariant there), its sign (None: all +), their number."""

    labels: LabelArray
    signs: SignArray | None
    count: int


def pair_orbits(
    rows: Sequence[SignedPermutation],
    columns: Sequence[SignedPermutation],
    shape: tuple[int, int],
) -> Orbits:
    """Signed orbits of pairs; generator k acts by rows[k] on the first index, columns[k] on the
    second. Orbits are numbered by their first pair, which has sign +."""
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows)} generators act on rows but {len(columns)} on columns")
    n_rows, n_columns = shape
    if n_rows * n_columns > _MOST_PAIRS:
        raise ValueError(f"{n_rows} × {n_columns} index pairs are more than {_MOST_PAIRS:.0e}")
    row_orbit, row_count = _point_orbits(rows, n_rows)
    column_orbit, column_count = _point_orbits(columns, n_columns)
    if row_count * n_columns <= column_count * n_rows:
        return _schreier(rows, columns, row_orbit, row_count, n_columns)
    turned = _schreier(columns, rows, column_orbit, column_count, n_rows)
    return _transposed(turned, shape)


def _point_orbits(generators: Sequence[SignedPermutation], size: int) -> tuple[LabelArray, int]:
    if not generators:
        return np.arange(size, dtype=np.int32), size
    here = np.tile(np.arange(size), len(generators))
    there = np.concatenate([perm for perm, _ in generators])
    return components(here, there, size)


def components(here: Indices, there: Indices, size: int) -> tuple[LabelArray, int]:
    """Connected components, numbered by their smallest member."""
    edges = sp.coo_array((np.ones(len(here), np.int8), (here, there)), shape=(size, size))
    count, found = connected_components(edges, directed=False)
    _, first = np.unique(found, return_index=True)
    number = np.empty(count, dtype=np.int32)
    number[np.argsort(first)] = np.arange(count, dtype=np.int32)
    return number[found], int(count)


def _schreier(
    rows: Sequence[SignedPermutation],
    columns: Sequence[SignedPermutation],
    row_orbit: LabelArray,
    row_count: int,
    n_columns: int,
) -> Orbits:
    signed = any(sign is not None for _, sign in (*rows, *columns))
    table = _carry_labels(rows, columns, row_orbit, row_count, n_columns, signed)
    size = row_count * n_columns * (2 if signed else 1)
    merged = _merge_loops(table, rows, columns, size, signed)
    if not signed:
        labels = table if merged is None else merged[0][table]
        count = size if merged is None else merged[1]
        return Orbits(labels.ravel(), None, count)
    component = np.arange(size, dtype=np.int32) if merged is None else merged[0]
    plus, minus = component[0::2], component[1::2]
    alive = plus != minus
    first = np.minimum(plus, minus)
    kept, number = np.unique(first[alive], return_inverse=True)
    label_of = np.full(size // 2, -1, dtype=np.int32)
    label_of[alive] = number
    positive = np.where(plus < minus, np.int8(1), np.int8(-1))
    sign_of = np.stack([positive, -positive], axis=1).ravel()
    return Orbits(label_of[table >> 1].ravel(), sign_of[table].ravel(), len(kept))


def _sign_bits(sign: SignArray | None, size: int) -> LabelArray:
    return np.zeros(size, np.int32) if sign is None else (sign < 0).astype(np.int32)


def _carry_labels(
    rows: Sequence[SignedPermutation],
    columns: Sequence[SignedPermutation],
    row_orbit: LabelArray,
    row_count: int,
    n_columns: int,
    signed: bool,
) -> LabelArray:
    """Step 1: the table (rows, columns) of labels, carried along a Schreier forest."""
    n_rows = len(row_orbit)
    table = np.empty((n_rows, n_columns), dtype=np.int32)
    _, frontier = np.unique(row_orbit, return_index=True)
    labels = np.arange(row_count * n_columns, dtype=np.int32).reshape(row_count, n_columns)
    table[frontier] = 2 * labels if signed else labels
    seen = np.zeros(n_rows, dtype=bool)
    seen[frontier] = True
    back = [np.argsort(perm) for perm, _ in columns]
    row_bits = [_sign_bits(sign, n_rows) for _, sign in rows]
    column_bits = [
        _sign_bits(sign, n_columns)[inverse]
        for (_, sign), inverse in zip(columns, back, strict=True)
    ]
    while len(frontier):
        reached = []
        for k, (perm, _) in enumerate(rows):
            image = perm[frontier]
            fresh = ~seen[image]
            target, parent = image[fresh], frontier[fresh]
            if not len(target):
                continue
            seen[target] = True
            reached.append(target)
            for part in range(0, len(target), step := max(1, _CHUNK // n_columns)):
                chosen = slice(part, part + step)
                carried = table[parent[chosen]].take(back[k], axis=1)
                if signed:
                    carried ^= row_bits[k][parent[chosen], None] ^ column_bits[k]
                table[target[chosen]] = carried
        frontier = np.concatenate(reached) if reached else np.empty(0, np.int64)
    return table


def _merge_loops(
    table: LabelArray,
    rows: Sequence[SignedPermutation],
    columns: Sequence[SignedPermutation],
    size: int,
    signed: bool,
) -> tuple[LabelArray, int] | None:
    """Step 2: components of the labels under every loop; None when no loop moves a label.

    A few loops usually generate the stabiliser. So of the rows where a generator still disagrees
    only some are merged at a time, twice as many each round, until none disagrees.
    """
    n_rows, n_columns = table.shape
    merged: tuple[LabelArray, int] | None = None
    step = max(1, _CHUNK // max(n_columns, 1))
    for (row_perm, row_sign), (column_perm, column_sign) in zip(rows, columns, strict=True):
        row_bit, column_bit = _sign_bits(row_sign, n_rows), _sign_bits(column_sign, n_columns)
        flips = row_sign is not None or column_sign is not None
        for start in range(0, n_rows, step):
            some = np.arange(start, min(start + step, n_rows))
            before = table[some]
            if flips:
                before = before ^ row_bit[some, None] ^ column_bit
            after = table[row_perm[some]].take(column_perm, axis=1)
            batch = 4
            while True:
                here = before if merged is None else merged[0][before]
                there = after if merged is None else merged[0][after]
                wrong = np.flatnonzero((here != there).any(axis=1))
                if not len(wrong):
                    break
                before, after = before[wrong], after[wrong]
                merged = _merge(merged, before[:batch], after[:batch], size, signed)
                batch *= 2
    return merged


def _merge(
    merged: tuple[LabelArray, int] | None,
    before: LabelArray,
    after: LabelArray,
    size: int,
    signed: bool,
) -> tuple[LabelArray, int]:
    here, there = before.ravel(), after.ravel()
    if signed:
        here, there = np.concatenate([here, here ^ 1]), np.concatenate([there, there ^ 1])
    if merged is None:
        return components(here, there, size)
    component, count = merged
    number, left = components(component[here], component[there], count)
    return number[component], left


def _transposed(orbits: Orbits, shape: tuple[int, int]) -> Orbits:
    """The same orbits with the two indices exchanged, numbered by their first pair again."""
    n_rows, n_columns = shape
    labels = np.ascontiguousarray(orbits.labels.reshape(n_columns, n_rows).T).ravel()
    signs = orbits.signs
    if signs is not None:
        signs = np.ascontiguousarray(signs.reshape(n_columns, n_rows).T).ravel()
    where = np.flatnonzero(labels >= 0)
    first = np.empty(orbits.count, dtype=np.int64)
    first[labels[where[::-1]]] = where[::-1]
    number = np.full(orbits.count + 1, -1, dtype=np.int32)
    number[np.argsort(first)] = np.arange(orbits.count, dtype=np.int32)
    if signs is not None:
        sign_of = np.append(signs[first], np.int8(1))
        signs = signs * sign_of[labels]
    return Orbits(number[labels], signs, orbits.count)


def orbit_matrix(orbits: Orbits, size: int) -> sp.csr_array:
    """Orthonormal rows, one for every orbit, by a counting sort of the labels."""
    indptr = np.arange(size + 1, dtype=np.int64 if size >= 1 << 31 else np.int32)
    labels = orbits.labels
    signs = np.ones(size, np.int8) if orbits.signs is None else orbits.signs
    alive = labels >= 0
    if not alive.all():
        indptr[1:] = np.cumsum(alive)
        labels, signs = labels[alive], signs[alive]
    rows = sp.csc_array((signs, labels, indptr), (orbits.count, size)).tocsr()
    lengths = np.diff(rows.indptr)
    norms = np.repeat(1 / np.sqrt(lengths), lengths)
    data = norms if orbits.signs is None else norms * rows.data
    return sp.csr_array((data, rows.indices, rows.indptr), rows.shape)
