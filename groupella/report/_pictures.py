"""Small pictures as PNG data URIs: they live inside the page."""

from __future__ import annotations

import base64
import io

import numpy as np

from ._content import FloatArray

POSITIVE, NEGATIVE = (214, 94, 0), (0, 114, 178)  # told apart by the colour blind


def signed(values: FloatArray, scale: float) -> str:
    """Positive orange, negative blue, zero transparent; full strength at |value| = scale."""
    strength = np.clip(np.abs(values) / scale, 0.0, 1.0) if scale > 0 else np.zeros(values.shape)
    pixels = np.empty((*values.shape, 4), dtype=np.uint8)
    pixels[..., :3] = np.where((values >= 0)[..., None], POSITIVE, NEGATIVE)
    pixels[..., 3] = np.round(255 * strength)
    return _png(pixels, "RGBA")


def image(pixels: FloatArray) -> str:
    """Grey (height, width) or coloured (height, width, 3), from 0 to 1."""
    values = np.round(255 * np.clip(pixels, 0.0, 1.0)).astype(np.uint8)
    return _png(values, "L" if values.ndim == 2 else "RGB")


def _png(pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]], mode: str) -> str:
    from PIL import Image

    height, width = pixels.shape[:2]
    stream = io.BytesIO()
    Image.frombytes(mode, (width, height), np.ascontiguousarray(pixels).tobytes()).save(
        stream, "PNG", optimize=True
    )
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
