"""A group acting on a tensor space R^{n_1} ⊗ … ⊗ R^{n_r}, one factor for every axis.

A factor is a signed permutation or an orthogonal matrix. Equivariant maps are invariants of such a
space: W: V_in → V_out is equivariant if and only if it is invariant in V_out ⊗ V_in (orthogonal
representations are their own duals), and a k×k kernel if and only if it is invariant in
fibre_out ⊗ fibre_in ⊗ window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ._arrays import FloatArray, IntArray, SignedPermutation, signed_permutation, tensor_signed
from ._orbits import Orbits, pair_orbits

Factor: TypeAlias = "SignedPermutation | FloatArray"
Factors: TypeAlias = "tuple[Factor, ...]"


@dataclass(frozen=True, eq=False)
class Problem:
    """The invariants of a group on a tensor space, given by generators.

    `split` axes belong to the rows of the map, the others to its columns. `translations` says
    which generators generate the permuting normal subgroup T. `cosets` lists one element for
    every coset of T; `elements` the whole group. Both are only called by the methods that need
    them. `is_small` says whether the elements are few enough to be listed.
    """

    shape: tuple[int, ...]
    split: int
    generators: tuple[Factors, ...]
    translations: tuple[int, ...]
    cosets: Callable[[], Iterable[Factors]]
    elements: Callable[[], Iterable[Factors]]
    is_small: Callable[[], bool] = lambda: True

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_signed(self) -> bool:
        return all(isinstance(f, tuple) for factors in self.generators for f in factors)


def orbits_under(problem: Problem, generators: Iterable[Factors]) -> Orbits:
    """Orbits of the tensor's entries under generators whose factors are all signed permutations."""
    rows, columns = [], []
    for factors in generators:
        signed = cast("tuple[SignedPermutation, ...]", factors)
        rows.append(reduce(tensor_signed, signed[: problem.split]))
        columns.append(reduce(tensor_signed, signed[problem.split :]))
    sizes = (
        np.prod(part) for part in (problem.shape[: problem.split], problem.shape[problem.split :])
    )
    n_rows, n_columns = map(int, sizes)
    return pair_orbits(rows, columns, (n_rows, n_columns))


def apply(factors: Factors, tensors: FloatArray) -> FloatArray:
    """One group element on a batch of tensors (batch, n_1, …, n_r)."""
    for axis, factor in enumerate(factors, start=1):
        if isinstance(factor, tuple):
            perm, sign = factor
            if sign is not None:
                tensors = tensors * sign.reshape(-1, *[1] * (tensors.ndim - axis - 1))
            tensors = tensors.take(np.argsort(perm), axis=axis)
        else:
            shape = tensors.shape
            flat = tensors.reshape(
                math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
            )
            tensors = (factor @ flat).reshape(*shape[:axis], len(factor), *shape[axis + 1 :])
    return tensors


def diagonal(factor: Factor) -> FloatArray:
    """The diagonal entries, whose sum is the character."""
    if not isinstance(factor, tuple):
        return np.asarray(np.diagonal(factor))
    perm, sign = factor
    fixed = (perm == np.arange(len(perm))).astype(np.float64)
    return fixed if sign is None else np.asarray(fixed * sign)


def restricted(factor: Factor, index: IntArray) -> Factor:
    """The factor on some coordinates that it leaves among themselves."""
    if isinstance(factor, tuple):
        perm, sign = factor
        place = np.empty(len(perm), dtype=np.int64)
        place[index] = np.arange(len(index))
        return place[perm[index]], None if sign is None else sign[index]
    block = np.ascontiguousarray(factor[np.ix_(index, index)])
    signed = signed_permutation(block)
    return block if signed is None else signed


def sparse(factor: Factor) -> sp.csr_array:
    """The factor as a matrix, without rounding noise where zeros belong."""
    if not isinstance(factor, tuple):
        return sp.csr_array(np.where(np.abs(factor) < 1e-12, 0.0, factor))
    perm, sign = factor
    data = np.ones(len(perm)) if sign is None else sign.astype(np.float64)
    return sp.csr_array((data, (perm, np.arange(len(perm)))), shape=(len(perm), len(perm)))
