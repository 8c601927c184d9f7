"""Invariants of a tensor product of representations: three methods, one answer.

A problem is a tensor space R^{n_1} ⊗ … ⊗ R^{n_r} on which every group element acts by one factor
per axis, either a signed permutation or an orthogonal matrix. All equivariant maps are of this
kind: W: V_in → V_out is equivariant if and only if it is invariant in V_out ⊗ V_in (orthogonal
representations are their own duals), and a k×k kernel if and only if it is invariant in
fibre_out ⊗ fibre_in ⊗ window.

orbits      signed permutations only; generators, never the group (`_orbits`)
reynolds    the projector P = mean of all elements. Its trace, the mean product of characters, is
            the dimension d; P maps d random tensors to a basis, and QR makes it orthonormal.
            Translations, a normal subgroup T that permutes, are averaged as orbits: P = P_K P_T.
nullspace   ker Σ_g (g − 1)ᵀ(g − 1) = ker Σ_g (2 − g − gᵀ) over generators, by a dense eigensolver
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ._arrays import FloatArray, SignedPermutation, tensor_signed
from ._orbits import Orbits, pair_orbits

Factor: TypeAlias = "SignedPermutation | FloatArray"
Factors: TypeAlias = "tuple[Factor, ...]"
Method: TypeAlias = Literal["orbits", "reynolds", "nullspace"]
MethodChoice: TypeAlias = Literal["auto", "orbits", "reynolds", "nullspace"]

NULLSPACE_LIMIT = 4_000
REYNOLDS_LIMIT = 100_000_000


@dataclass(frozen=True, eq=False)
class Problem:
    """The invariants of a group on a tensor space, given by generators.

    `split` axes belong to the rows of the map, the others to its columns. `translations` says
    which generators generate the permuting normal subgroup T. `cosets` lists one element for
    every coset of T; `elements` the whole group. Both are only called by the methods that need
    them.
    """

    shape: tuple[int, ...]
    split: int
    generators: tuple[Factors, ...]
    translations: tuple[int, ...]
    cosets: Callable[[], Iterable[Factors]]
    elements: Callable[[], Iterable[Factors]]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def is_signed(self) -> bool:
        return all(isinstance(f, tuple) for factors in self.generators for f in factors)


def choose_method(problem: Problem, method: str) -> Method:
    if method not in get_args(MethodChoice):
        raise ValueError(f"method must be one of {get_args(MethodChoice)}, got {method!r}")
    if method == "auto":
        return "orbits" if problem.is_signed else "reynolds"
    if method == "orbits" and not problem.is_signed:
        raise ValueError(
            "method 'orbits' needs (signed) permutation representations, and one of these is "
            "neither; use method='reynolds' or 'auto'"
        )
    return cast(Method, method)


def solve(problem: Problem, method: Method) -> Orbits | FloatArray:
    """Orbits, or an orthonormal basis as rows (dimension, size)."""
    if method == "orbits":
        return _orbits(problem, problem.generators)
    if method == "reynolds":
        return _reynolds(problem)
    return _nullspace(problem)


def character_dimension(problem: Problem) -> int:
    """dim of the invariants = mean over the group of the product of the factors' characters."""
    total, order = 0.0, 0
    for factors in problem.elements():
        total += float(np.prod([_trace(factor) for factor in factors]))
        order += 1
    dimension = total / order
    if abs(dimension - round(dimension)) > 1e-6:
        raise ValueError(
            f"the characters give dimension {dimension:.6f}, not a whole number: the site and "
            "fibre actions are not representations of one group"
        )
    return round(dimension)


def _trace(factor: Factor) -> float:
    if not isinstance(factor, tuple):
        return float(np.trace(factor))
    perm, sign = factor
    fixed = perm == np.arange(len(perm))
    return float(fixed.sum() if sign is None else sign[fixed].sum())


def apply(factors: Factors, tensors: FloatArray) -> FloatArray:
    """One group element on a batch of tensors (batch, n_1, …, n_r)."""
    for axis, factor in enumerate(factors, start=1):
        if isinstance(factor, tuple):
            perm, sign = factor
            if sign is not None:
                tensors = tensors * sign.reshape(-1, *[1] * (tensors.ndim - axis - 1))
            tensors = tensors.take(np.argsort(perm), axis=axis)
        else:
            tensors = np.moveaxis(np.tensordot(tensors, factor, axes=(axis, 1)), -1, axis)
    return tensors


def _orbits(problem: Problem, generators: tuple[Factors, ...]) -> Orbits:
    def part(factors: Factors) -> SignedPermutation:
        signed = cast("tuple[SignedPermutation, ...]", factors)
        return reduce(tensor_signed, signed)

    sizes = problem.shape[: problem.split], problem.shape[problem.split :]
    return pair_orbits(
        [part(factors[: problem.split]) for factors in generators],
        [part(factors[problem.split :]) for factors in generators],
        (int(np.prod(sizes[0])), int(np.prod(sizes[1]))),
    )


def _reynolds(problem: Problem, seed: int = 0) -> FloatArray:
    dimension = character_dimension(problem)
    if dimension * problem.size > REYNOLDS_LIMIT:
        raise ValueError(
            f"Reynolds averaging would need {dimension} × {problem.size} numbers "
            f"(the limit is {REYNOLDS_LIMIT:.0e}); take a smaller lattice or fibre"
        )
    translated = None
    if problem.translations:
        chosen = tuple(problem.generators[k] for k in problem.translations)
        translated = orbit_matrix(_orbits(problem, chosen), problem.size)
    cosets = list(problem.cosets())
    tensors = np.random.default_rng(seed).standard_normal((dimension, problem.size))
    # The first pass is as ill-conditioned as a random square matrix; the second repairs that.
    for _ in range(2):
        if translated is not None:
            tensors = (translated.T @ (translated @ tensors.T)).T
        cube = tensors.reshape(dimension, *problem.shape)
        averaged = np.zeros_like(cube)
        for factors in cosets:
            averaged += apply(factors, cube)
        flat = averaged.reshape(dimension, problem.size) / len(cosets)
        tensors = np.linalg.qr(flat.T)[0].T
    return np.ascontiguousarray(tensors)


def orbit_matrix(orbits: Orbits, size: int) -> sp.csr_array:
    """Orthonormal rows, one for every orbit, by a counting sort of the labels."""
    indptr = np.arange(size + 1, dtype=np.int64 if size >= 1 << 31 else np.int32)
    labels, signs = orbits.labels, orbits.signs
    if signs is None:
        columns = sp.csc_array((np.ones(size, np.int8), labels, indptr), (orbits.count, size))
    else:
        alive = labels >= 0
        indptr[1:] = np.cumsum(alive)
        columns = sp.csc_array((signs[alive], labels[alive], indptr), (orbits.count, size))
    rows = columns.tocsr()
    lengths = np.diff(rows.indptr)
    norms = np.repeat(1 / np.sqrt(lengths), lengths)
    data = norms if signs is None else norms * rows.data
    return sp.csr_array((data, rows.indices, rows.indptr), rows.shape)


def _nullspace(problem: Problem) -> FloatArray:
    size = problem.size
    if size > NULLSPACE_LIMIT:
        raise ValueError(
            f"method 'nullspace' is a check for small spaces: {size} index pairs are more than "
            f"{NULLSPACE_LIMIT}; use method='auto'"
        )
    penalty = np.zeros((size, size))
    for factors in problem.generators:
        action = reduce(lambda a, b: sp.kron(a, b, format="csr"), map(_matrix, factors)).toarray()
        penalty += 2 * np.eye(size) - action - action.T
    values, vectors = scipy.linalg.eigh(penalty, driver="evd")
    return np.ascontiguousarray(vectors[:, values < 1e-9].T)


def _matrix(factor: Factor) -> sp.csr_array:
    if not isinstance(factor, tuple):
        return sp.csr_array(factor)
    perm, sign = factor
    data = np.ones(len(perm)) if sign is None else sign.astype(np.float64)
    return sp.csr_array((data, (perm, np.arange(len(perm)))), shape=(len(perm), len(perm)))
