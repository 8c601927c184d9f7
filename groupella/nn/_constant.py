"""Constants that follow a parameter's precision without ever losing their own.

A buffer would be rounded by `module.float()` and stay rounded after `module.double()`; a basis so
treated is equivariant to 1e-8 only. Here the float64 array stays and is cast when it is asked for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Constant:
    """A float64 array, as a tensor of whatever dtype and device is needed."""

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
