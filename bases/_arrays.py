"""Array types, and signed permutations.

A signed permutation sends e_i to sign[i] · e_perm[i]; `sign` is None when there is no minus among
them. Matrices that come from cosines and changes of basis carry noise: entries within 1e-9 of a
whole number are that number.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

FloatArray: TypeAlias = npt.NDArray[np.float64]
IntArray: TypeAlias = npt.NDArray[np.int64]
LabelArray: TypeAlias = npt.NDArray[np.int32]
SignArray: TypeAlias = npt.NDArray[np.int8]
SignedPermutation: TypeAlias = tuple[IntArray, SignArray | None]

ROUNDING_TOLERANCE = 1e-9


def signed_permutation(matrix: npt.ArrayLike) -> SignedPermutation | None:
    """(perm, sign) of an orthogonal matrix with one ±1 in every column, else None."""
    given = np.asarray(matrix, dtype=np.float64)
    rounded = np.rint(given)
    if np.abs(given - rounded).max(initial=0.0) > ROUNDING_TOLERANCE:
        return None
    magnitude = np.abs(rounded)
    columns, rows = magnitude.sum(axis=0), magnitude.sum(axis=1)
    if not ((columns == 1).all() and (rows == 1).all()):
        return None
    perm = magnitude.argmax(axis=0).astype(np.int64)
    sign = rounded[perm, np.arange(len(perm))].astype(np.int8)
    return perm, None if (sign > 0).all() else sign


def tensor_signed(first: SignedPermutation, second: SignedPermutation) -> SignedPermutation:
    """The signed permutation first ⊗ second, the index of `second` running fastest."""
    (perm_a, sign_a), (perm_b, sign_b) = first, second
    perm = (perm_a[:, None] * len(perm_b) + perm_b[None, :]).ravel()
    if sign_a is None and sign_b is None:
        return perm, None
    left = np.ones(len(perm_a), np.int8) if sign_a is None else sign_a
    right = np.ones(len(perm_b), np.int8) if sign_b is None else sign_b
    return perm, np.multiply.outer(left, right).ravel()
