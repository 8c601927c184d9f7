"""Which linear maps obey a symmetry, and which convolution kernels do.

Both are invariants of a tensor space, for which there are five methods:

orbits      signed permutations only; from generators, never the group (`_orbits`)
reynolds    any; averages over the group, with the dimension known from characters (`_reynolds`)
nullspace   any, small: ker Σ_g (g − 1)ᵀ(g − 1) = ker Σ_g (2 − g − gᵀ) over generators, by a dense
            eigensolver; the independent check
lie         continuous groups: ker of their Lie algebra (`_lie`), then the discrete elements on it
constraints any; orbits of the generators that are signed permutations, then on their span the
            kernel of Σ_g (2 − g − gᵀ) over the others. For groups with too many elements to average
            over, such as permutations × rotations of the fibre
auto        lie for continuous groups; orbits where they apply; else averages, with orbits for the
            blocks where they apply, or constraints where the group has more than 5,000 elements
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from groupella.groups import FeatureSpace, Symmetry

from ._arrays import FloatArray
from ._basis import Basis, Form, KernelBasis
from ._cache import cached, content_key
from ._lie import lie_dimension
from ._orbits import Orbits, orbit_matrix
from ._problem import Factors, Problem, apply, orbits_under, sparse
from ._reynolds import LIMIT, SPARSE_BELOW, averaged_basis
from ._reynolds import character_dimension as _dimension
from ._spaces import factor, fibre_terms, kernel_problem, map_problem, reduced_problem
from ._turns import turned_kernels

METHODS = ("auto", "orbits", "reynolds", "constraints", "nullspace", "lie")
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
        check); "lie" (continuous groups, the default for them).

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
    if method == "lie" and not symmetry.is_continuous:
        raise ValueError(f"method 'lie' is for continuous groups, and {symmetry} is none")
    shape = tuple(s.fibre_size * s.lattice.size for s in (space_out, space_in))
    form: Form
    if symmetry.is_continuous and method in ("auto", "lie"):
        form = _of_lie_algebra(space_in, space_out, symmetry)
        return Basis(shape, form, "lie", len(symmetry.algebra))
    if symmetry.is_approximate:
        if space_in.lattice.size > 1 or space_out.lattice.size > 1:
            raise ValueError(
                f"{symmetry} turns images by angles that no grid has: only convolutions obey it, "
                "to within a measured error; use kernel_basis"
            )
        rows = turned_kernels(space_in, space_out, symmetry, 1)
        return Basis(shape, rows, "turns", _strictness(symmetry))
    problem = map_problem(space_in, space_out, symmetry)
    form, used = _solved(problem, method)
    return Basis(shape, form, used, _strictness(symmetry))


def kernel_basis(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    size: int | Sequence[int],
    method: str = "auto",
) -> KernelBasis:
    """A basis of all kernels whose circular convolution obeys translations ⋊ point group.

    These are the kernels with W(kδ) = ρ_out(k) W(δ) ρ_in(k)ᵀ for every k of the point group. For
    turns of images by other angles, those of smooth functions with that property, sampled
    (`_turns`): quarter turns stay exact.

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
    shape = (space_out.fibre_size, space_in.fibre_size, *window)
    if symmetry.is_approximate:
        if window[0] != window[1] or method != "auto":
            raise ValueError(
                f"kernels of {symmetry} have equal sides and method 'auto', got {window} and "
                f"{method!r}"
            )
        rows = turned_kernels(space_in, space_out, symmetry, window[0])
        return KernelBasis(shape, rows, "turns", _strictness(symmetry))
    problem = kernel_problem(space_in, space_out, symmetry, window)
    form, used = _solved(problem, method)
    return KernelBasis(shape, form, used, _strictness(symmetry))


def character_dimension(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    size: int | Sequence[int] | None = None,
) -> int:
    """The dimension of either basis from characters alone: ⟨χ_out, χ_in⟩ (× χ_window).

    The arguments are those of `kernel_basis`, or with `size=None` those of `equivariant_basis`.
    Of continuous groups, reductive ones without discrete elements: Weyl's integration formula.
    """
    _check_types(space_in, space_out, symmetry)
    if symmetry.is_continuous:
        return _continuous_dimension(space_in, space_out, symmetry)
    if symmetry.is_approximate:
        raise ValueError(f"{symmetry} is not exact on a grid and has no characters there")
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
        squared = np.eye(size) if _orthogonal(factors) else action.T @ action
        penalty += np.eye(size) + squared - action - action.T
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
        squared = np.eye(count) if _orthogonal(factors) else moved @ moved.T
        penalty += np.eye(count) + squared - inner - inner.T
    values, vectors = scipy.linalg.eigh(penalty, driver="evd")
    return np.ascontiguousarray(vectors[:, values < 1e-9].T @ dense)


def _orthogonal(factors: Factors) -> bool:
    return all(
        isinstance(f, tuple) or np.abs(f @ f.T - np.eye(len(f))).max(initial=0.0) < 1e-9
        for f in factors
    )


def _of_lie_algebra(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry
) -> FloatArray | sp.csr_array:
    """Maps of the fibres that the Lie algebra leaves alone; of these, what discrete elements do."""
    fibres, problem = reduced_problem(space_in, space_out, symmetry)
    count, p_out, p_in = problem.shape
    f_out, f_in = space_out.fibre_size, space_in.fibre_size
    if p_out == p_in == 1 and count <= NULLSPACE_LIMIT:
        # One site: no permutations, and a matrix of each discrete element on the rows.
        return _fixed([f[0] for f in problem.generators], fibres)  # type: ignore[misc]
    if not problem.generators:
        left = sp.csr_array(sp.eye_array(problem.size))
    else:
        signed = tuple((factor(f[0]), *f[1:]) for f in problem.generators)  # type: ignore[arg-type]
        form, _ = _solved(replace(problem, generators=signed), "auto")
        found = orbit_matrix(form, problem.size) if isinstance(form, Orbits) else form
        left = sp.csr_array(found)
    # (row · site_out · site_in) × (row of fibres), times the fibres' maps.
    entries = left.tocoo()
    which, out, into = np.unravel_index(entries.col, problem.shape) if count else (entries.col,) * 3
    places = (entries.row.astype(np.int64) * p_out + out) * p_in + into
    table = sp.coo_array(
        (entries.data, (places, which)), shape=(left.shape[0] * p_out * p_in, count)
    )
    product = sp.coo_array(sp.csr_array(table) @ sp.csr_array(fibres))
    row, rest = np.divmod(product.row.astype(np.int64), p_out * p_in)
    site_out, site_in = np.divmod(rest, p_in)
    fibre_out, fibre_in = np.divmod(product.col.astype(np.int64), f_in)
    columns = ((fibre_out * p_out + site_out) * f_in + fibre_in) * p_in + site_in
    size = f_out * p_out * f_in * p_in
    rows = sp.csr_array(sp.coo_array((product.data, (row, columns)), shape=(left.shape[0], size)))
    return rows if rows.nnz < SPARSE_BELOW * left.shape[0] * size else rows.toarray()


def _fixed(
    matrices: Sequence[FloatArray], rows: FloatArray | sp.csr_array
) -> FloatArray | sp.csr_array:
    """The combinations of the rows that are fixed by all of these matrices of them."""
    if matrices and rows.shape[0]:
        moved = [m - np.eye(len(m)) for m in matrices]
        penalty = sum((m.T @ m for m in moved), start=np.zeros_like(matrices[0]))
        values, vectors = np.linalg.eigh(penalty)
        rows = vectors[:, values < 1e-9].T @ rows
    if isinstance(rows, np.ndarray) or rows.nnz < SPARSE_BELOW * np.prod(rows.shape):
        return rows
    return np.asarray(rows.toarray())


def _continuous_dimension(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry
) -> int:
    if any(not g.is_identity for g in space_in.discrete(symmetry)):
        raise ValueError(
            f"the dimension from characters is for connected groups, and {symmetry} has discrete "
            "elements; use len(equivariant_basis(...))"
        )
    algebra = space_in.infinitesimals(symmetry)
    sums = [
        fibre_terms(space_out.fibre, algebra, dual=False),
        fibre_terms(space_in.fibre, algebra, dual=True),
    ]
    sites = space_out.lattice.size * space_in.lattice.size
    return lie_dimension(sums, np.array([x.fibre for x in algebra])) * sites


def _strictness(symmetry: Symmetry) -> int:
    """The order of the point group; of turns by other angles, their number."""
    return (symmetry.turns or 10**6) if symmetry.is_approximate else len(symmetry.point)


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
