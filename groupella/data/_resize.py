"""Images of another size."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ._images import CHUNK


def unit(x: Tensor) -> Tensor:
    """``float32``, 8-bit values divided by 255."""
    return x.to(torch.float32) / 255 if x.dtype == torch.uint8 else x.to(torch.float32)


def resize(x: Tensor, size: int | None) -> Tensor:
    """(n, channels, size, size) by bilinear interpolation, as ``float32``; ``None`` keeps the size.

    Pixel i of m samples the input at (i + ½)·n/m − ½, so that the image keeps its centre and
    turning or mirroring it by a symmetry of the square commutes with resizing. Smoothed beforehand
    only when shrunk by more than two, where neighbouring samples would skip pixels.
    """
    if size is None or x.shape[-2:] == (size, size):
        return unit(x)
    smooth = max(x.shape[-2:]) > 2 * size
    out = torch.empty(len(x), x.shape[1], size, size)
    for start in range(0, len(x), CHUNK):
        chunk = unit(x[start : start + CHUNK])
        out[start : start + CHUNK] = F.interpolate(
            chunk, size=(size, size), mode="bilinear", align_corners=False, antialias=smooth
        )
    return out


def on_canvas(x: Tensor, size: int, corner: bool = False) -> Tensor:
    """The images on a black square of that size, in the middle or in the top left corner."""
    height, width = x.shape[-2:]
    if size < max(height, width):
        raise ValueError(f"images of {height}×{width} do not fit on a canvas of {size}×{size}")
    top, left = (0, 0) if corner else ((size - height) // 2, (size - width) // 2)
    out = x.new_zeros(len(x), x.shape[1], size, size)
    out[..., top : top + height, left : left + width] = x
    return out
