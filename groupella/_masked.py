"""Masked arrays, whose mask no tensor has."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_unmasked(values: Any, what: str, error: type[Exception] = ValueError) -> None:
    """Raise an error for a masked array, or a list of such, of which entries are masked.

    `np.asarray` takes what lies under the mask as data.
    """
    parts = values if isinstance(values, list | tuple) else [values]
    masks = [np.ma.getmaskarray(p) for p in parts if isinstance(p, np.ma.MaskedArray)]  # type: ignore[no-untyped-call]
    masked = sum(int(np.count_nonzero(mask)) for mask in masks)
    if masked:
        raise error(
            f"{what} has {masked} masked entries: fill them in (numpy.ma.filled) or leave out "
            "their samples"
        )
