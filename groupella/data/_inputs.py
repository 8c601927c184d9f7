"""How arrays become inputs of a network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._axes import channels_first
from ._errors import DataError


@dataclass(frozen=True)
class Inputs:
    """The shape of a network's inputs, and what to subtract and divide by, per channel.

    Integers are first divided by `scale`: 255 where the training data were 8-bit images.
    """

    lattice: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1.0

    @property
    def channels(self) -> int:
        return len(self.mean)

    def __call__(self, x: Any) -> Tensor:
        """Return x as (n, channels, *lattice), standardised.

        Raises
        ------
        DataError
            If x has another shape, or holds something else than finite numbers.
        """
        array = numbers(x)
        ordered = channels_first(array, self.lattice)
        if ordered.shape[1] != self.channels:
            raise DataError(
                f"x of shape {array.shape} has {ordered.shape[1]} channels; "
                f"expected {self.channels}"
            )
        wide = array.dtype.kind == "f" and array.dtype.itemsize > 4
        dtype = np.float64 if wide else np.float32
        values = torch.from_numpy(np.ascontiguousarray(ordered, dtype=dtype))
        if array.dtype.kind != "f":
            values = values / self.scale
        return self.standardised(values)

    def standardised(self, x: Tensor) -> Tensor:
        """(x − mean) / std per channel, in float32; float64 is rounded only then."""
        ones = [1] * len(self.lattice)
        mean, std = (x.new_tensor(m).view(-1, *ones) for m in (self.mean, self.std))
        return ((x - mean) / std).float()

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Inputs:
        """The inverse of `as_dict`, from JSON."""
        values: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in content.items()
        }
        return cls(**values)


def numbers(x: Any, what: str = "x") -> np.typing.NDArray[Any]:
    """x as an array of finite real numbers."""
    array = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x)
    if array.dtype == object:
        with suppress(TypeError, ValueError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is of type {array.dtype}; expected real numbers")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = int((~np.isfinite(array)).reshape(len(array), -1).any(1).argmax())
        raise DataError(f"{what} contains NaN or infinity, first in sample {where}")
    return array
