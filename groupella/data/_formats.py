"""The two file formats of the public data sets: MNIST's idx files and CIFAR's Python pickles.

An idx file holds two zero bytes, a type code (8: unsigned byte), the number of dimensions, each
dimension as a big-endian 32-bit integer, and the values in row-major order. A CIFAR batch is a
pickled dictionary. Unpickling can run arbitrary code, so only numpy's array constructors may occur
in a pickle; everything else is refused.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ._errors import DataError


def parse_idx(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """The array in an idx file, gzipped or not."""
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{name} is truncated or damaged: {error}") from error
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise DataError(f"{name} is not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{name} is truncated: {len(content)} bytes, less than its header")
    shape = tuple(int(n) for n in np.frombuffer(content[4:start], dtype=">u4"))
    if len(content) - start != math.prod(shape):
        raise DataError(f"{name} is truncated: {len(content)} bytes for the shape {shape}")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def parse_pickle(content: bytes, name: str) -> Mapping[bytes, Any]:
    """The dictionary in a Python 2 pickle of plain containers and arrays."""
    try:
        value = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{name}: {error}") from error
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{name} is not a readable batch: {error!r}") from error
    if not isinstance(value, dict):
        raise DataError(f"{name} holds a {type(value).__name__}, not a dictionary")
    return value


def _dtype(name: bytes | str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Old pickles pass bytes and integers, which newer versions of numpy warn about.
    text = name.decode() if isinstance(name, bytes) else name
    return np.dtype(text, align=bool(align), copy=bool(copy))


_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise DataError(f"the pickle asks for {module}.{name}, which is refused")
        return _ALLOWED[module, name]
