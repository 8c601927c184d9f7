"""Invariants of a Lie algebra in a tensor product, and their number from weights alone.

X acts on a tensor with axes a by C_X = Σ_a 1 ⊗ … ⊗ X_a ⊗ … ⊗ 1; invariants are the kernel of all
C_X, that of Σ_X C_Xᵀ C_X. Where the tensor is large, commuting normal matrices H of the algebra are
diagonalised on every axis first: entries of an invariant are zero unless their weights add up to
zero, so only those are kept, and C_X of the other X is sparse in that basis.

The number of invariants of a reductive algebra is the constant term of

    χ(t) Π_{α>0} (1 − e^α(t)),

χ the character, a sum of e^w over all weights w, and α the positive roots (Weyl's integration
formula). It holds for non-compact real forms as well: both sides are those of the complexification.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg import lapack

from ._arrays import FloatArray, IntArray

ComplexArray: TypeAlias = npt.NDArray[np.complex128]
Weight: TypeAlias = tuple[int, ...]
Axes: TypeAlias = "Sequence[FloatArray]"  # for every axis, X_a of all generators: (k, n_a, n_a)

SMALL = 100  # entries up to which the whole matrix is solved
DENSE = 300  # entries up to which constraints are dense in the eigenbasis as well
LARGEST = 4_000  # unknowns of a dense eigenvalue problem
MOST_ENTRIES = 50_000_000
_ZERO = 1e-9
_GAP = 1e-5
_GRID = 1e7  # weights are counted in steps of 1/_GRID
_SAME = 1000


def lie_invariants(axes: Axes) -> FloatArray:
    """Orthonormal rows (dimension, entries) of all invariant tensors.

    Raises
    ------
    ValueError
        If the tensor is too large, or if the matrices are too badly scaled to tell zero from small.
    """
    shape = tuple(matrices.shape[1] for matrices in axes)
    size = int(np.prod(shape, dtype=np.int64))
    if not axes or not len(axes[0]):
        return np.eye(size)
    if size > MOST_ENTRIES:
        raise ValueError(
            f"a tensor of shape {shape} has {size} entries, more than {MOST_ENTRIES}; take fewer "
            "or smaller factors"
        )
    cartan = [] if size <= SMALL else _commuting(list({m.tobytes(): m for m in axes}.values()))
    return _by_weights(axes, cartan, shape) if cartan else _directly(axes, size)


def _directly(axes: Axes, size: int) -> FloatArray:
    if size > LARGEST:
        raise ValueError(
            f"{size} entries of a tensor are more than can be solved ({LARGEST}) where no "
            "generator of the Lie algebra is a normal matrix"
        )
    constraints = [_dense([m[k] for m in axes], size) for k in range(len(axes[0]))]
    stacked = np.concatenate(constraints)
    return np.ascontiguousarray(_kernel(stacked.T @ stacked).T)


def _dense(matrices: Sequence[npt.NDArray[Any]], size: int) -> npt.NDArray[Any]:
    """Σ_a 1 ⊗ … ⊗ X_a ⊗ … ⊗ 1."""
    total = np.zeros((size, size), matrices[0].dtype)
    before = 1
    for matrix in matrices:
        n = len(matrix)
        after = size // (before * n)
        cube = total.reshape(before, n, after, before, n, after)
        diagonal = np.einsum("ipjiqj->ijpq", cube)  # a view
        diagonal += matrix
        before *= n
    return total


def _kernel(penalty: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Orthonormal columns that span the kernel of a positive semi-definite matrix."""
    if not penalty.size:
        return np.zeros((len(penalty), 0))
    scale = max(1.0, float(np.abs(penalty).sum(1).max()) * 1e-3)
    # Only the eigenvalues near zero, which is up to twice as fast as all of them.
    solve = lapack.zheevr if np.iscomplexobj(penalty) else lapack.dsyevr
    values, vectors, count, _, failed = solve(penalty, range="V", vl=-scale, vu=_GAP * scale)
    if failed:
        raise ArithmeticError(f"no eigenvalues of the constraints (LAPACK's info is {failed})")
    values, vectors = values[:count], vectors[:, :count]
    if (values > _ZERO * scale).any():
        raise ValueError(
            "the generators are badly scaled: an eigenvalue of their constraints is neither zero "
            "nor clearly different from it; multiply them so that their entries are near 1"
        )
    found: npt.NDArray[np.float64] = vectors[:, values <= _ZERO * scale]
    return found


def _commuting(axes: Axes) -> list[int]:
    """Generators that commute with each other and are normal on every axis."""
    chosen: list[int] = []
    for k in range(len(axes[0])):
        fits = all(
            _near(m[k] @ m[k].T, m[k].T @ m[k])
            and all(_near(m[k] @ m[j], m[j] @ m[k]) for j in chosen)
            for m in axes
        )
        if fits:
            chosen.append(k)
    return chosen


def _near(a: FloatArray, b: FloatArray) -> bool:
    return bool(
        np.abs(a - b).max(initial=0.0) < 1e-12 * max(1.0, float(np.abs(a).max(initial=0.0)))
    )


def _weights(matrices: FloatArray) -> tuple[ComplexArray, FloatArray]:
    """A unitary eigenbasis U of commuting normal matrices; their eigenvalues (n, 2·count), real."""
    mix = np.random.default_rng(1).uniform(1, 2, len(matrices))
    _, basis = scipy.linalg.schur(np.tensordot(mix, matrices, 1).astype(complex), output="complex")
    rotated = basis.conj().T @ matrices @ basis
    values = np.diagonal(rotated, axis1=1, axis2=2).T
    off = np.abs(rotated - np.einsum("nk,nm->knm", values, np.eye(len(basis)))).max(initial=0.0)
    if off > 1e-10 * max(1.0, float(np.abs(matrices).max())):
        raise ValueError("the commuting generators have no common eigenbasis")
    return basis, np.concatenate([values.real, values.imag], axis=1)


def _by_weights(axes: Axes, cartan: list[int], shape: tuple[int, ...]) -> FloatArray:
    found: dict[bytes, tuple[ComplexArray, FloatArray, ComplexArray]] = {}
    others = [k for k in range(len(axes[0])) if k not in cartan]
    bases, turned, totals = [], [], np.zeros((1, 2 * len(cartan)))
    for matrices in axes:
        key = matrices.tobytes()
        if key not in found:
            basis, weights = _weights(matrices[cartan])
            found[key] = basis, weights, basis.conj().T @ matrices[others] @ basis
        basis, weights, rotated = found[key]
        bases.append(basis)
        turned.append(rotated)
        totals = (totals[:, None, :] + weights[None, :, :]).reshape(-1, totals.shape[1])
    kept = np.flatnonzero((np.abs(totals) < 1e-7).all(axis=1))
    size = len(totals)
    del totals
    if len(kept) > LARGEST:
        raise ValueError(
            f"{len(kept)} entries of weight zero in a tensor of shape {shape} are more than can be "
            f"solved ({LARGEST}); take fewer or smaller factors"
        )
    penalty = np.zeros((len(kept), len(kept)), complex)
    for k in range(len(others)):
        factors = [rotated[k] for rotated in turned]
        if size <= DENSE:
            columns = _dense(factors, size)[:, kept]
            penalty += columns.conj().T @ columns
        else:
            constraint = _restricted(factors, kept, shape)
            penalty += (constraint.conj().T @ constraint).toarray()
    vectors = _kernel(penalty).T
    if not len(vectors):
        return np.zeros((0, size))
    rows = np.zeros((len(vectors), size), complex)
    rows[:, kept] = vectors
    tensors = rows.reshape(len(vectors), *shape)
    for axis, basis in enumerate(bases, start=1):
        tensors = np.moveaxis(np.tensordot(tensors, basis, axes=(axis, 1)), -1, axis)
    rows = tensors.reshape(rows.shape)
    # The span is closed under conjugation: real and imaginary parts span its real tensors.
    both = np.concatenate([rows.real, rows.imag])
    mixes = np.linalg.eigh(both @ both.T)[1][:, -len(vectors) :]
    return np.ascontiguousarray(np.linalg.qr((mixes.T @ both).T)[0].T)


def _restricted(
    factors: Sequence[ComplexArray], kept: IntArray, shape: tuple[int, ...]
) -> sp.csr_array:
    """C_X in the eigenbasis, on the columns `kept`; only the rows that it reaches."""
    places = np.unravel_index(kept, shape)
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    rows, columns, data = [], [], []
    for axis, turned in enumerate(factors):
        for i, j in np.argwhere(np.abs(turned) > 1e-13):
            mine = np.flatnonzero(places[axis] == j)
            rows.append(kept[mine] + (i - j) * strides[axis])
            columns.append(mine)
            data.append(np.full(len(mine), turned[i, j]))
    if not rows:
        return sp.csr_array((0, len(kept)), dtype=complex)
    reached, numbers = np.unique(np.concatenate(rows), return_inverse=True)
    entries = (np.concatenate(data), (numbers.ravel(), np.concatenate(columns)))
    return sp.csr_array(sp.coo_array(entries, shape=(len(reached), len(kept))))


def lie_dimension(sums: Sequence[Sequence[Axes]], algebra: FloatArray) -> int:
    """The number of invariants in products of sums of tensor products, from weights.

    Parameters
    ----------
    sums
        One sum for every factor; its summands are axes as for `lie_invariants`, so that the space
        is ⊗_s (⊕_t ⊗ axes).
    algebra
        The Lie algebra in its own matrices (k, n, n), normal and closed.

    Raises
    ------
    ValueError
        If the algebra is not reductive, or not by normal matrices.
    """
    if not _is_reductive(algebra):
        raise ValueError(
            "characters count the invariants of reductive algebras, and this one leaves a subspace "
            "alone that has no invariant complement; use len(equivariant_basis(...))"
        )
    torus = _commuting([algebra])
    positive = _positive_roots(algebra, torus)
    zero: Weight = (0,) * (2 * len(torus))
    total: Counter[Weight] = Counter({zero: 1})
    for summands in sums:
        weights: Counter[Weight] = Counter()
        for axes in summands:
            product: Counter[Weight] = Counter({zero: 1})
            for matrices in axes:
                product = _times(product, _counted(_weights(matrices[torus])[1]))
            weights.update(product)
        total = _times(total, weights)
    for root in positive:
        total = _times(total, Counter({zero: 1, root: -1}))
    return sum(n for weight, n in total.items() if max(map(abs, weight), default=0) < _SAME)


def _is_reductive(algebra: FloatArray) -> bool:
    """Whether every invariant subspace has an invariant complement, in all tensors as well.

    That is so if tr(ab) is not degenerate on the associative algebra that the matrices generate:
    its radical, of which every product with any b is nilpotent, is then zero (Dickson 1923).
    """
    n = algebra.shape[1]
    flat = np.concatenate([np.eye(n)[None], algebra]).reshape(-1, n * n)
    rank = 0
    while True:
        values, rows = np.linalg.svd(flat, full_matrices=False)[1:]
        span = rows[values > 1e-7 * values[0]].reshape(-1, n, n)
        if len(span) == rank:
            break
        rank = len(span)
        products = (span[:, None] @ algebra).reshape(-1, n * n)
        flat = np.concatenate([span.reshape(-1, n * n), products])
    form = np.einsum("aij,bji->ab", span, span)
    return bool(np.linalg.svd(form, compute_uv=False)[-1] > 1e-7)


def _positive_roots(algebra: FloatArray, torus: list[int]) -> list[Weight]:
    """Weights of the adjoint representation on one side of zero; checks that the torus is whole."""
    flat = np.linalg.qr(algebra.reshape(len(algebra), -1).T)[0]
    basis = flat.T.reshape(algebra.shape)
    brackets = [x @ basis - basis @ x for x in algebra[torus]]
    adjoint = np.array([flat.T @ b.reshape(len(algebra), -1).T for b in brackets])
    if not torus:
        raise ValueError("characters need generators that are normal matrices; there is none")
    weights = _weights(adjoint)[1]
    if (np.abs(weights) < 1e-7).all(axis=1).sum() != len(torus):
        raise ValueError(
            "characters need a maximal set of commuting normal matrices among the generators"
        )
    side = np.random.default_rng(2).standard_normal(weights.shape[1])
    found = _counted(weights[weights @ side > 1e-7])
    return list(found.elements())


def _counted(weights: FloatArray) -> Counter[Weight]:
    return Counter(tuple(row) for row in np.rint(weights * _GRID).astype(np.int64).tolist())


def _times(first: Counter[Weight], second: Counter[Weight]) -> Counter[Weight]:
    found: Counter[Weight] = Counter()
    for a, n in first.items():
        for b, m in second.items():
            found[tuple(x + y for x, y in zip(a, b, strict=True))] += n * m
    return found
