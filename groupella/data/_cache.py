"""Decoded data sets, kept between runs in the user's cache directory.

Decoding CIFAR-10 from a tar.xz takes a quarter of a minute, reading it from here a fraction of a
second. An entry carries the fingerprint of the files it was made from and a checksum of its arrays;
an entry that is damaged, or made from other files, counts as absent.
"""

from __future__ import annotations

import json
import logging
import zlib
from pathlib import Path

import platformdirs
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from groupella._files import replacing

from ._images import Images

_VERSION = "1"
_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def cache_directory() -> Path:
    """The directory of decoded data sets and downloads, which need not exist."""
    return Path(platformdirs.user_cache_dir("groupella", appauthor=False)) / "data"


def stored(name: str, fingerprint: str | None = None) -> Images | None:
    """The entry `name`, if it is sound and, given a fingerprint, made from those files."""
    try:
        with safe_open(_path(name), framework="pt") as entry:
            header = entry.metadata() or {}
            if header.get("version") != _VERSION or fingerprint not in {
                None,
                header["fingerprint"],
            }:
                return None
            arrays = {key: entry.get_tensor(key) for key in _ARRAYS}
            if header["checksum"] != _checksum(arrays):
                return None
            return Images(name=name, classes=tuple(json.loads(header["classes"])), **arrays)
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def store(images: Images, name: str, fingerprint: str) -> None:
    """Keep a decoded data set for later runs; a failure to write is only a warning."""
    arrays = {key: getattr(images, key).contiguous() for key in _ARRAYS}
    header = {
        "version": _VERSION,
        "fingerprint": fingerprint,
        "checksum": _checksum(arrays),
        "classes": json.dumps(images.classes),
    }
    try:
        with replacing(_path(name)) as temporary:
            save_file(arrays, temporary, metadata=header)
    except OSError as error:
        logging.getLogger(__name__).warning("%s is not cached: %s", name, error.strerror)


def _path(name: str) -> Path:
    return cache_directory() / f"{name}.safetensors"


def _checksum(arrays: dict[str, Tensor]) -> str:
    total = 0
    for key in _ARRAYS:
        total = zlib.crc32(arrays[key].contiguous().view(-1).view(torch.uint8).numpy().data, total)
    return str(total)
