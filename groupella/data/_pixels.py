"""Pixels of many images: as floats, and a part at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 2048


def chunks(n: int) -> Iterator[slice]:
    """Slices that divide n images into parts of bounded size, for large intermediate results."""
    return (slice(start, start + CHUNK) for start in range(0, n, CHUNK))


def unit(x: Tensor) -> Tensor:
    """Images as ``float32``, with 8-bit values divided by 255; ``float64`` as they are."""
    if x.dtype == torch.float64:
        return x
    return x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x.to(torch.float32)
