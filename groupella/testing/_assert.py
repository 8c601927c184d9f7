"""`assert_equivariant`: a test that says where a module fails, and what may be the cause."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from groupella.groups import FeatureSpace, Symmetry

from ._equivariance import TOLERANCES, as_symmetries, equivariance_error
from ._hints import likely_causes
from ._rotations import TOLERANCE, turning_error


def assert_equivariant(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    space_out: FeatureSpace | None,
    symmetry: Symmetry | str | Iterable[Symmetry | str],
    *,
    tolerance: float | None = None,
    **options: Any,
) -> None:
    """Raise an AssertionError that lists the error of every element unless `module` is equivariant.

    Parameters
    ----------
    module, space_in, space_out, symmetry, **options
        As in `equivariance_error`.
    tolerance
        The largest relative error allowed; by default 1e-12 in float64 and 1e-5 in float32. Turns
        of images by angles that no grid has ("c8", "so2") are interpolated (`turning_error`): for
        them, 0.1. Their quarter turns are exact.
    """
    __tracebackhide__ = True
    symmetry = as_symmetries(symmetry)
    turns = [member for member in symmetry if member.is_approximate]
    for member in turns:
        allowed = TOLERANCE if tolerance is None else tolerance
        _assert_turns(module, space_in, space_out, member, allowed, options)
    if turns:  # what they allow is not allowed to exact elements
        tolerance = None
    found = equivariance_error(module, space_in, space_out, symmetry, **options)
    limit = TOLERANCES[found.dtype] if tolerance is None else tolerance
    if float(found) <= limit:
        return
    worst = found.worst
    kind = module if not isinstance(module, nn.Module) else type(module)
    wanted = "invariant" if space_out is None else "equivariant"
    message = (
        f"{getattr(kind, '__name__', kind)} is not {wanted}"
        f" under {worst.symmetry.name}: relative error {worst.error:.1e}, allowed {limit:.0e}"
        f" in {str(found.dtype).removeprefix('torch.')}\n"
        f"worst at {worst.name}, sample {worst.sample} of the batch\n{found}"
    )
    causes = likely_causes(module, space_in, space_out, symmetry, limit, **options)
    raise AssertionError("\n".join([message, *causes]))


def _assert_turns(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    space_out: FeatureSpace | None,
    symmetry: Symmetry,
    tolerance: float,
    options: dict[str, Any],
) -> None:
    __tracebackhide__ = True
    taken = {k: v for k, v in options.items() if k in ("batch", "seed", "inputs", "prepare")}
    found = turning_error(module, space_in, space_out, symmetry, **taken)
    if float(found) > tolerance:
        raise AssertionError(
            f"{type(module).__name__} obeys {symmetry} only to within {100 * float(found):.1f} %, "
            f"allowed {100 * tolerance:.1f} %\n{found}"
        )
