"""Constants that follow a parameter's precision without ever losing their own.

`module.float()` would round a buffer, and `module.double()` would not restore it; such a basis is
equivariant to 1e-8 only. Here the float64 array is kept and cast on request.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Constant:
    """A float64 array, available as a tensor of any dtype on any device."""

    def __init__(self, array: npt.ArrayLike) -> None:
        self.array = np.array(array, dtype=np.float64, order="C")
        self._cast: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def like(self, tensor: Tensor) -> Tensor:
        """The array in the dtype and on the device of `tensor`."""
        key = (tensor.dtype, tensor.device)
        if key not in self._cast:
            self._cast[key] = torch.from_numpy(self.array).to(
                device=tensor.device, dtype=tensor.dtype
            )
        return self._cast[key]

    def __getstate__(self) -> npt.NDArray[np.float64]:
        return self.array

    def __setstate__(self, array: npt.NDArray[np.float64]) -> None:
        self.array, self._cast = array, {}
