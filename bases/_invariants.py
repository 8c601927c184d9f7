"""Invariants of a tensor space: three methods, one answer.

orbits      signed permutations only; from generators, never the group (`_orbits`)
reynolds    any; averages over the group, with the dimension known from characters (`_reynolds`)
nullspace   any, small: ker Σ_g (g − 1)ᵀ(g − 1) = ker Σ_g (2 − g − gᵀ) over generators, by a dense
            eigensolver; the independent check
auto        orbits where they apply; else averages, with orbits for the blocks where they apply
"""

from __future__ import annotations

from functools import reduce
from typing import Literal, TypeAlias, cast, get_args

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from ._arrays import FloatArray
from ._basis import Form
from ._problem import Problem, orbits_under, sparse
from ._reynolds import averaged_basis

Method: TypeAlias = Literal["auto", "orbits", "reynolds", "nullspace"]

NULLSPACE_LIMIT = 4_000


def choose_method(problem: Problem, method: str) -> Method:
    """The method asked for, checked; orbits for "auto" where they apply."""
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")
    if method == "auto" and problem.is_signed:
        return "orbits"
    if method == "orbits" and not problem.is_signed:
        raise ValueError(
            "method 'orbits' needs (signed) permutation representations, and one of these is "
            "neither; use method='reynolds' or 'auto'"
        )
    return cast(Method, method)


def solve(problem: Problem, method: Method) -> Form:
    """Orbits, or an orthonormal basis as rows (dimension, size)."""
    if method == "orbits":
        return orbits_under(problem, problem.generators)
    if method == "nullspace":
        return _nullspace(problem)
    return averaged_basis(problem, use_orbits=method == "auto")


def _nullspace(problem: Problem) -> FloatArray:
    size = problem.size
    if size > NULLSPACE_LIMIT:
        raise ValueError(
            f"method 'nullspace' is a check for small spaces: {size} index pairs are more than "
            f"{NULLSPACE_LIMIT}; use method='auto'"
        )
    penalty = np.zeros((size, size))
    for factors in problem.generators:
        action = reduce(lambda a, b: sp.kron(a, b, format="csr"), map(sparse, factors)).toarray()
        penalty += 2 * np.eye(size) - action - action.T
    values, vectors = scipy.linalg.eigh(penalty, driver="evd")
    return np.ascontiguousarray(vectors[:, values < 1e-9].T)
