"""Numpy arrays in the guise of a user's tensor: numpy or torch, its device and its dtype."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["gather", "values_like"]


def gather(x: Any, index: NDArray[np.intp]) -> Any:
    """Columns of a matrix x, numpy or torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.index_select(1, torch.as_tensor(np.array(index), device=x.device))
    return np.take(x, index, axis=1)


def values_like(values: NDArray[np.float64], x: Any) -> Any:
    """Coefficients for x, in its dtype; TypeError when x holds integers."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if not (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"this element does not just permute: convert {x.dtype} to floats")
        return torch.as_tensor(np.array(values), dtype=x.dtype, device=x.device)
    if not np.issubdtype(x.dtype, np.inexact):
        raise TypeError(f"this element does not just permute: convert {x.dtype} to floats")
    return values.astype(x.dtype)
