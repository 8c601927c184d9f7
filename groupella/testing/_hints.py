"""Why a module may not be equivariant: the usual mistakes, each one tried out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

from groupella.groups import FeatureSpace, Symmetry

from ._equivariance import equivariance_error, output_shape


def likely_causes(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    space_out: FeatureSpace | None,
    symmetry: Symmetry | str | Iterable[Symmetry | str],
    tolerance: float,
    **options: Any,
) -> tuple[str, ...]:
    """Return sentences about what makes the module fail, each of which was tried.

    Parameters
    ----------
    module, space_in, space_out, symmetry, options
        As in `equivariance_error`.
    tolerance
        The largest relative error that counts as equivariant.
    """
    found: list[str] = []
    prepare = options.get("prepare")
    shape = output_shape(module, space_in, prepare=prepare)
    dim = space_in.lattice.dim
    if space_out is None and dim and len(shape) == dim + 1:
        image = space_in.with_fibre("trivial").with_channels(shape[0])
        image = image.with_lattice(tuple(shape[1:]))
        error = _error(module, space_in, image, symmetry, {**options, "up_to_translation": True})
        says = f", and its error is {error:.1e}" if error is not None and error <= tolerance else ""
        found.append(
            f"the output has the shape {shape} of an image, which need not be invariant: with an "
            f"output space (--out {shape[0]} on the command line) it may move with the input{says}"
        )
    circular = _circular(module)
    if circular is not None:
        before = _error(module, space_in, space_out, symmetry, options)
        error = _error(circular, space_in, space_out, symmetry, options)
        if error is not None and before is not None and error <= max(tolerance, before / 10):
            found.append(
                "zero padding is the likely cause: on a torus a shift must not meet a border. With "
                f'padding_mode="circular" the error would be {error:.1e} instead of {before:.1e}'
            )
    if space_out is not None and space_out.lattice.dim and not options.get("up_to_translation"):
        moved = {**options, "up_to_translation": True}
        error = _error(module, space_in, space_out, symmetry, moved)
        if error is not None and error <= tolerance:
            found.append(
                "up_to_translation=True accepts it (--pools on the command line): a translation "
                "per sample differs, as after a pooling or a stride"
            )
    return tuple(found)


def _error(
    module: Any, space_in: FeatureSpace, space_out: Any, symmetry: Any, options: Any
) -> float | None:
    """The error, None if it cannot be measured."""
    try:
        return float(equivariance_error(module, space_in, space_out, symmetry, **options))
    except (ValueError, TypeError, RuntimeError):
        return None


def _circular(module: Any) -> nn.Module | None:
    """A copy with circular padding where there are zeros; None if there are none."""
    if not isinstance(module, nn.Module):
        return None
    changed = copy.deepcopy(module)
    padded: list[Any] = [m for m in changed.modules() if _pads_with_zeros(m)]
    for m in padded:
        m.padding_mode = "circular"
    return changed if padded else None


def _pads_with_zeros(module: Any) -> bool:
    padding = getattr(module, "padding", 0)
    some = padding == "same" or (padding != "valid" and any(_numbers(padding)))
    return (
        getattr(module, "padding_mode", None) == "zeros"
        and hasattr(module, "_reversed_padding_repeated_twice")
        and some
    )


def _numbers(padding: Any) -> tuple[int, ...]:
    return (padding,) if isinstance(padding, int) else tuple(padding)
