"""The two questions: which linear maps obey a symmetry, and which convolution kernels do."""

from __future__ import annotations

import operator
from collections.abc import Sequence

from groupella.groups import FeatureSpace, Symmetry

from ._basis import Basis, Form, KernelBasis
from ._cache import cached, content_key
from ._invariants import choose_method, solve
from ._problem import Problem
from ._reynolds import character_dimension as _dimension
from ._spaces import kernel_problem, map_problem


def equivariant_basis(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry, method: str = "auto"
) -> Basis:
    """All linear maps W from a channel of `space_in` to one of `space_out` with W g = g W.

    method: "auto"; "orbits" (representations that permute, up to sign); "reynolds" (any);
    "nullspace" (any, small: the independent check). Maps are (V_out, V_in) with V = fibre × sites.
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
    """All kernels of odd `size` whose circular convolution obeys translations ⋊ point group.

    W(kδ) = ρ_out(k) W(δ) ρ_in(k)ᵀ for every k of the point group. The basis is per pair of
    channels, (n_b, fibre_out, fibre_in, *window). `method` as in `equivariant_basis`.
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
    """The dimension of either basis from characters alone: ⟨χ_out, χ_in⟩ (× χ_window)."""
    _check_types(space_in, space_out, symmetry)
    if size is None:
        return _dimension(map_problem(space_in, space_out, symmetry))
    window = _window(space_in, space_out, symmetry, size)
    return _dimension(kernel_problem(space_in, space_out, symmetry, window))


def _solved(problem: Problem, method: str) -> tuple[Form, str]:
    chosen = choose_method(problem, method)
    key = content_key((chosen, problem.shape, problem.split, problem.generators))
    form = cached(key, lambda: solve(problem, chosen))
    return form, "reynolds" if chosen == "auto" else chosen


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
