"""How arrays become inputs of a network."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupella._masked import check_unmasked
from groupella._schema import build

from ._axes import channels_first
from ._bounds import LARGEST_NUMBER, check_memory
from ._errors import DataError
from ._sizes import Size


@dataclass(frozen=True)
class Inputs:
    """The shape of a network's inputs, and what to subtract and divide by, per channel.

    Integers are first divided by `scale`: 255 where the training data were 8-bit images. `size`
    says how arrays of another size are brought to the lattice.
    """

    lattice: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1.0
    size: Size | None = None

    @property
    def taken(self) -> tuple[int, ...]:
        """The lattice of the arrays that are taken."""
        return self.lattice if self.size is None else self.size.images

    @property
    def channels(self) -> int:
        return len(self.mean)

    def __call__(self, x: Any) -> Tensor:
        """Return x (n, …, *taken) as (n, channels, *lattice), standardised.

        Raises
        ------
        DataError
            If x has another shape, or holds something else than finite numbers.
        """
        array = numbers(x)
        ordered = channels_first(array, self.taken)
        if ordered.shape[1] != self.channels:
            raise DataError(
                f"x of shape {array.shape} has {ordered.shape[1]} channels; "
                f"expected {self.channels}"
            )
        values = floats(ordered)
        if array.dtype.kind != "f":
            values = values / self.scale
        if self.size is not None:
            values = self.size(values)
        return self.standardised(values)

    def standardised(self, x: Tensor) -> Tensor:
        """(x − mean) / std per channel, in float32; float64 is rounded only then."""
        ones = [1] * len(self.lattice)
        mean, std = (x.new_tensor(m).view(-1, *ones) for m in (self.mean, self.std))
        return ((x - mean) / std).float()

    def as_dict(self) -> dict[str, Any]:
        plain = dict(vars(self))
        if self.size is None:
            del plain["size"]
            return plain
        return {**plain, "size": self.size.as_dict()}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Inputs:
        """The inverse of `as_dict`, from JSON; raises `ValueError` for anything else."""
        if isinstance(content, Mapping) and "size" in content:
            content = {**content, "size": Size.from_dict(content["size"])}
        return build(cls, content, "inputs")


def array_of(values: Any, what: str = "x") -> np.typing.NDArray[Any]:
    """Values as an array; of a tensor also in a type that numpy lacks.

    Raises
    ------
    DataError
        If they are not: lists of different lengths, a sparse tensor, a tensor without values, an
        array with masked entries.
    """
    check_unmasked(values, what, DataError)
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.float() if values.dtype == torch.bfloat16 else values
        return np.asarray(values)
    except ValueError:
        raise DataError(
            f"{what} is not an array: its samples have different shapes. Resize or crop them to one"
        ) from None
    except (TypeError, NotImplementedError) as error:
        raise DataError(f"{what} is not an array: {error}") from error


def numbers(x: Any, what: str = "x") -> np.typing.NDArray[Any]:
    """x as an array of finite real numbers."""
    array = array_of(x, what)
    if not array.ndim:
        raise DataError(f"{what} is {type(x).__name__}; expected an array of samples")
    if array.dtype == object:
        with suppress(TypeError, ValueError, OverflowError):
            array = array.astype(np.float64)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{what} is of type {array.dtype}; expected real numbers")
    check_memory(array.shape, array.itemsize if array.dtype.kind == "f" else 1, what)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = int((~np.isfinite(array)).reshape(len(array), -1).any(1).argmax())
        raise DataError(f"{what} contains NaN or infinity, first in sample {where}")
    largest = float(np.abs(array).max()) if array.dtype.kind == "f" and array.size else 0.0
    if largest and not 1 / LARGEST_NUMBER < largest < LARGEST_NUMBER:
        raise DataError(
            f"the largest number of {what} is {largest:.0e}; expected one between "
            f"{1 / LARGEST_NUMBER:.0e} and {LARGEST_NUMBER:.0e}: choose other units"
        )
    return array


def floats(x: np.typing.NDArray[Any]) -> Tensor:
    """Real numbers as float32, or as float64 where float32 would lose digits of their type."""
    exact = np.result_type(x.dtype, np.float32)
    dtype = np.float32 if exact == np.float32 else np.float64
    check_memory(x.shape, np.dtype(dtype).itemsize, "x")
    # Of a read-only array (a memory map, a worker of scikit-learn) it is a copy.
    return torch.from_numpy(np.require(x, dtype, ["C", "W"]))
