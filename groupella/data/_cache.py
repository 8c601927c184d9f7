"""Parsed data sets, kept between runs in the user's cache directory.

Decoding CIFAR-10 from a tar.xz takes a quarter of a minute; reading it back from here, a fraction
of a second. An entry remembers the fingerprint of the files it was made from and a checksum of its
arrays; an entry that is damaged, or made from other files, counts as absent. Entries appear
complete or not at all.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import platformdirs
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ._images import Images

_VERSION = "1"
_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def cache_directory() -> Path:
    """Where parsed data sets and downloads are kept (not created)."""
    return Path(platformdirs.user_cache_dir("groupella", appauthor=False)) / "data"


def cached(name: str, fingerprint: str | None, parse: Callable[[], Images]) -> Images:
    """The entry ``name``, or ``parse()`` kept for the next time."""
    images = stored(name, fingerprint)
    if images is None:
        images = parse()
        try:
            _store(images, name, fingerprint or "")
        except OSError as error:
            logging.getLogger(__name__).warning(
                "%s is not kept for the next run: %s", name, error.strerror
            )
    return images


def stored(name: str, fingerprint: str | None = None) -> Images | None:
    """The entry ``name`` if it is sound and, when a fingerprint is given, made from those files."""
    path = _path(name)
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as entry:
            header = entry.metadata() or {}
            if header.get("version") != _VERSION:
                return None
            if fingerprint is not None and header.get("fingerprint") != fingerprint:
                return None
            arrays = {key: entry.get_tensor(key) for key in _ARRAYS}
            if header.get("checksum") != _checksum(arrays):
                return None
            return Images(name=name, classes=tuple(json.loads(header["classes"])), **arrays)
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _path(name: str) -> Path:
    return cache_directory() / f"{name}.safetensors"


def _checksum(arrays: dict[str, Tensor]) -> str:
    total = 0
    for key in _ARRAYS:
        array = arrays[key].contiguous().numpy()
        total = zlib.crc32(array.reshape(-1).view(np.uint8).data, total)
    return str(total)


def _store(images: Images, name: str, fingerprint: str) -> None:
    arrays = {key: getattr(images, key).contiguous() for key in _ARRAYS}
    header = {
        "version": _VERSION,
        "fingerprint": fingerprint,
        "checksum": _checksum(arrays),
        "classes": json.dumps(images.classes),
    }
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path) as scratch:
        save_file(arrays, scratch, metadata=header)
        os.replace(scratch, path)


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A scratch file in the same directory (so that a rename is atomic), gone at the end."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
