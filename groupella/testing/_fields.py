"""Modules of escnn and e2cnn: their inputs, and the spaces of their field types.

Neither library is imported unless the module is one of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from groupella.groups import FeatureSpace, from_e2cnn, from_escnn


def library_of(module: Any) -> str | None:
    """ "escnn" or "e2cnn" for an equivariant module of theirs, else None."""
    for base in type(module).__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("escnn", "e2cnn") and base.__name__ == "EquivariantModule":
            return library
    return None


def geometric(module: Any) -> Callable[[Tensor], Any] | None:
    """How to wrap a tensor for a module of escnn or e2cnn; None for any other module."""
    library = library_of(module)
    if library is None:
        return None
    geometric_tensor = importlib.import_module(f"{library}.nn").GeometricTensor
    return lambda x: geometric_tensor(x, module.in_type)


def unwrapped(y: Any) -> Any:
    """The tensor of a `GeometricTensor`; anything else as it is."""
    return y.tensor if type(y).__name__ == "GeometricTensor" else y


def field_space(field_type: Any, lattice: Sequence[int], library: str) -> FeatureSpace:
    """The space of a field type of escnn or e2cnn.

    Raises
    ------
    ValueError
        If its group does not move the sites of a lattice exactly.
    """
    return (from_escnn if library == "escnn" else from_e2cnn)(field_type, tuple(lattice))
