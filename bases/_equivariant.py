"""Which linear maps obey a symmetry, and which convolution kernels do.

Both are invariants of a tensor space, for which there are four methods:

orbits      signed permutations only; from generators, never the group (`_orbits`)
reynolds    any; averages over the group, with the dimension known from characters (`_reynolds`)
nullspace   any, small: ker Σ_g (g − 1)ᵀ(g − 1) = ker Σ_g (2 − g − gᵀ) over generators, by a dense
            eigensolver; the independent check
constraints any; orbits of the generators that are signed permutations, then on their span the
            kernel of Σ_g (2 − g − gᵀ) over the others. For groups with too many elements to average
            over, such as permutations × rotations of the fibre
auto        orbits where they apply; else averages, with orbits for the blocks where they apply, or
            constraints where the group has more than 5,000 elements
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from groupella.groups import FeatureSpace, Symmetry

from ._arrays import FloatArray
from ._basis import Basis, Form, KernelBasis
from ._cache import cached, content_key
from ._orbits import orbit_matrix
from ._problem import Problem, apply, orbits_under, sparse
from ._reynolds import LIMIT, averaged_basis
from ._reynolds import character_dimension as _dimension
from ._spaces import kernel_problem, map_problem

METHODS = ("auto", "orbits", "reynolds", "constraints", "nullspace")
NULLSPACE_LIMIT = 4_000


def equivariant_basis(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry, method: str = "auto"
) -> Basis:
    """A basis of all linear maps W from one channel to another with W g = g W (Finzi et al. 2021).

    Parameters
    ----------
    space_in, space_out
        Feature spaces of one group set, on any two lattices.
    symmetry
        A subgroup of their ambient symmetry.
    method
        "auto"; "orbits" (representations that permute, up to sign); "reynolds" (any);
        "constraints" (any, and groups of any order); "nullspace" (any, small: the independent
        check).

    Returns
    -------
    Basis
        Maps of shape (V_out, V_in), V = fibre × sites of one channel.

    Raises
    ------
    ValueError
        If the method is unknown or does not apply, or if the spaces do not fit the symmetry.
    """
    _check_types(space_in, space_out, symmetry)
    problem = map_problem(space_in, space_out, symmetry)
    f_out, p_out, f_in, p_in = problem.shape
    form, used = _solved(problem, method)
    return Basis((f_out * p_out, f_in * p_in), form, used, len(symmetry.point))


def kernel_basis(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    size: int | Sequence[int],
    method: str = "auto",
) -> KernelBasis:
    """A basis of all kernels whose circular convolution obeys translations ⋊ point group.

    These are the kernels with W(kδ) = ρ_out(k) W(δ) ρ_in(k)ᵀ for every k of the point group.

    Parameters
    ----------
    space_in, space_out
        Feature spaces of one group set.
    symmetry
        Translations ⋊ a point group, a subgroup of their ambient symmetry.
    size
        The odd size of the window: one number, or one for each axis.
    method
        As in `equivariant_basis`.

    Returns
    -------
    KernelBasis
        Kernels of shape (fibre_out, fibre_in, *window), for one pair of channels.
    """
    _check_types(space_in, space_out, symmetry)
    window = _window(space_in, space_out, symmetry, size)
    problem = kernel_problem(space_in, space_out, symmetry, window)
    form, used = _solved(problem, method)
    shape = (space_out.fibre_size, space_in.fibre_size, *window)
    return KernelBasis(shape, form, used, len(symmetry.point))


def character_dimension(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    size: int | Sequence[int] | None = None,
) -> int:
    """The dimension of either basis from characters alone: ⟨χ_out, χ_in⟩ (× χ_window).

    The arguments are those of `kernel_basis`, or with `size=None` those of `equivariant_basis`.
    """
    _check_types(space_in, space_out, symmetry)
    if size is None:
        return _dimension(map_problem(space_in, space_out, symmetry))
    window = _window(space_in, space_out, symmetry, size)
    return _dimension(kernel_problem(space_in, space_out, symmetry, window))


def _solved(problem: Problem, method: str) -> tuple[Form, str]:
    """Orbits, or an orthonormal basis as rows (dimension, size), and the method that found it."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}, got {method!r}")
    if method == "auto" and problem.is_signed:
        method = "orbits"
    if method == "auto" and not problem.is_small():
        method = "constraints"
    if method == "orbits" and not problem.is_signed:
        raise ValueError(
            "method 'orbits' needs (signed) permutation representations, and one of these is "
            "neither; use method='reynolds' or 'auto'"
        )

    def solve() -> Form:
        if method == "orbits":
            return orbits_under(problem, problem.generators)
        if method == "nullspace":
            return _nullspace(problem)
        if method == "constraints":
            return _constrained(problem)
        return averaged_basis(problem, use_orbits=method == "auto")

    key = content_key((method, problem.shape, problem.split, problem.generators))
    return cached(key, solve), "reynolds" if method == "auto" else method


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


def _constrained(problem: Problem) -> FloatArray:
    """⟨v, gv⟩ = |v|² if and only if gv = v: on the span of orbits, the penalties are small."""
    signed = [f for f in problem.generators if all(isinstance(one, tuple) for one in f)]
    others = [f for f in problem.generators if not all(isinstance(one, tuple) for one in f)]
    orbits = orbit_matrix(orbits_under(problem, signed), problem.size)
    count = orbits.shape[0]
    if count > NULLSPACE_LIMIT or count * problem.size > LIMIT:
        raise ValueError(
            f"the generators that are no signed permutations act on {count} orbits of "
            f"{problem.size} index pairs, more than can be solved; take a smaller lattice or fibre"
        )
    dense = orbits.toarray()
    penalty = np.zeros((count, count))
    for factors in others:
        moved = apply(factors, dense.reshape(count, *problem.shape)).reshape(count, -1)
        inner = orbits @ moved.T
        penalty += 2 * np.eye(count) - inner - inner.T
    values, vectors = scipy.linalg.eigh(penalty, driver="evd")
    return np.ascontiguousarray(vectors[:, values < 1e-9].T @ dense)


def _check_types(*given: object) -> None:
    for value, kind in zip(given, (FeatureSpace, FeatureSpace, Symmetry), strict=True):
        if not isinstance(value, kind):
            raise TypeError(f"expected a {kind.__name__}, got {value!r}")


def _window(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    size: int | Sequence[int],
) -> tuple[int, ...]:
    if not symmetry.is_catalogue or not symmetry.translations:
        raise ValueError(
            f"convolutions obey all translations, and {symmetry} does not contain them; "
            "use equivariant_basis, or the symmetry with translations"
        )
    dims = space_in.lattice.dim, space_out.lattice.dim
    if dims != (symmetry.dim, symmetry.dim):
        raise ValueError(
            f"kernels of {symmetry} are {symmetry.dim}-dimensional; "
            f"the lattices have {dims[0]} and {dims[1]} dimensions"
        )
    given = (size,) * dims[0] if isinstance(size, int) else tuple(size)
    window = tuple(operator.index(side) for side in given)
    if len(window) != dims[0] or any(side < 1 or side % 2 == 0 for side in window):
        raise ValueError(f"a kernel size is one odd number, or {dims[0]} of them, got {size}")
    return window
