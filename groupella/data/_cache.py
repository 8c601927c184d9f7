"""Decoded data sets, kept between runs in the user's cache directory.

Decoding CIFAR-10 from a tar.xz takes a quarter of a minute, reading it from here a fraction of a
second. An entry is an ``.npz``, which checks its arrays by their CRC-32, with the fingerprint of
the files it was made from. An entry that is damaged, or made from other files, counts as absent.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import platformdirs
import torch

from groupella._files import replacing

from ._errors import DataArgumentError
from ._images import Images

_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def cache_directory() -> Path:
    """The directory of decoded data sets and downloads, which need not exist."""
    try:
        return Path(platformdirs.user_cache_dir("groupella", appauthor=False)) / "data"
    except RuntimeError as error:
        raise DataArgumentError(
            "this user has no home directory to keep data in: name a directory with GROUPELLA_DATA "
            "or --data-dir"
        ) from error


def stored(name: str, fingerprint: str | None = None) -> Images | None:
    """The entry `name`, if it is sound and, given a fingerprint, made from those files."""
    try:
        # Opened here, since numpy leaves the file open if it is not a zip.
        with _path(name).open("rb") as file, np.load(file, allow_pickle=False) as entry:
            if fingerprint not in {None, str(entry["fingerprint"])}:
                return None
            x, y, test_x, test_y = (torch.from_numpy(entry[key]) for key in _ARRAYS)
            return Images(name, x, y, test_x, test_y, tuple(entry["classes"].tolist()))
    except Exception:  # a damaged zip can raise nearly anything
        return None


def store(images: Images, name: str, fingerprint: str) -> None:
    """Keep a decoded data set for later runs; a failure to write is only a warning."""
    arrays = {key: getattr(images, key).numpy() for key in _ARRAYS}
    try:
        with replacing(_path(name)) as temporary, temporary.open("wb") as file:
            np.savez(file, fingerprint=fingerprint, classes=images.classes, **arrays)
    except (OSError, DataArgumentError) as error:
        logging.getLogger(__name__).warning("%s is not cached: %s", name, error)


def _path(name: str) -> Path:
    return cache_directory() / f"{name}.npz"
