"""Subspaces of maps, each given by an orthonormal basis: inclusion and intersection.

With M = A Bᵀ for orthonormal rows A and B, the singular values of M are the cosines of the
principal angles. So span A ⊆ span B if and only if |M|² = dim A.

Two orbit bases intersect in an orbit basis: an invariant map is constant (up to sign) on the orbits
of either group, hence on the connected components of their labels.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from ._arrays import FloatArray
from ._basis import Basis, Form
from ._orbits import Orbits, components

Rows: TypeAlias = "FloatArray | sp.csr_array"

_TOLERANCE = 1e-8


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
