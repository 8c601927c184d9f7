"""A user's picture files, as square arrays."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ._errors import DataError

if TYPE_CHECKING:
    import PIL.Image

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_GREY = {"1", "L", "LA"}
_16_BIT = {"I;16", "I;16L", "I;16B", "I;16N"}
_16_BIT_AS_32 = {"PNG", "PPM"}  # whose 16-bit values Pillow may hold as 32-bit integers


def read_picture(file: Path, size: int | None) -> npt.NDArray[Any]:
    """Its central square: (h, w) if it is grey, (h, w, 3) if not; upright, as its EXIF data say.

    8-bit values are ``uint8``, 16-bit ones ``float32`` from 0 to 1.
    """
    import PIL.Image
    import PIL.ImageOps

    try:
        with PIL.Image.open(file) as image:
            kind = image.format
            upright = PIL.ImageOps.exif_transpose(image)
    except (
        OSError,
        ValueError,
        SyntaxError,
        EOFError,
        struct.error,
        PIL.Image.DecompressionBombError,
    ) as error:
        raise DataError(f"{str(file)!r} is not a readable image: {error}") from error
    picture = _plain(upright, kind, file)
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    picture = picture.crop((left, top, left + side, top + side))
    if size is not None and size != side:
        picture = picture.resize((size, size), PIL.Image.Resampling.BILINEAR)
    return np.asarray(picture)


def _plain(image: PIL.Image.Image, kind: str | None, file: Path) -> PIL.Image.Image:
    """In one of the modes "L", "RGB" and, scaled to [0, 1], "F"."""
    import PIL.Image

    mode = image.mode
    if mode in _16_BIT or (mode == "I" and kind in _16_BIT_AS_32):
        return PIL.Image.fromarray(np.asarray(image).astype(np.float32) / 65535)
    if mode in {"I", "F"}:
        raise DataError(
            f"{str(file)!r} has pixels of mode {mode} (32-bit numbers), of which black and white "
            f"are not known; expected 8 or 16 bits. Put such images into an .npz"
        )
    return image.convert("L" if mode in _GREY else "RGB")


def same_scale(pictures: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """All ``uint8``, or all ``float32`` from 0 to 1 where one is."""
    if all(picture.dtype == np.uint8 for picture in pictures):
        return pictures
    return [p.astype(np.float32) / 255 if p.dtype == np.uint8 else p for p in pictures]
