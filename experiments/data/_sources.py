"""The data sets as they are: digits, MNIST, CIFAR-10, CIFAR-100."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._cache import cache_directory, cached, stored
from ._catalogue import FileSet, file_set
from ._download import download as download_file
from ._errors import DataError
from ._formats import Bytes, parse_idx, parse_pickle
from ._images import Images
from ._locate import FileCheck, Located, check_members, data_directory, locate, read_members

PathLike = str | os.PathLike[str]

_DIGITS_FOR_TRAINING = 1400


def digits() -> Images:
    """scikit-learn's 1,797 handwritten digits of 8×8 pixels: 1,400 to train, 397 to test."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = torch.from_numpy(bunch.images[order].astype(np.float32) / 16).unsqueeze(1)
    y = torch.from_numpy(bunch.target[order].astype(np.int64))
    n = _DIGITS_FOR_TRAINING
    return Images("digits", x[:n], y[:n], x[n:], y[n:], tuple("0123456789"))


def public(
    name: str, data_dir: PathLike | None = None, download: bool = True, progress: bool = True
) -> Images:
    """A public data set: from the data directory, else the cache, else the network."""
    files = file_set(name)
    located = _on_this_machine(files, data_dir)
    if located is None:
        kept = stored(name)
        if kept is not None:
            return kept
        if not download:
            raise DataError(
                f"{name} is not on this machine; get it with `groupella data fetch {name}`, or "
                f"name a directory that holds it with GROUPELLA_DATA or --data-dir"
            )
        fetch(name, progress=progress)
        located = _on_this_machine(files, data_dir)
    if located is None:
        raise DataError(f"{name} was downloaded, but has gone from {str(_downloads())!r}")
    return cached(name, located.fingerprint(), lambda: _parse(located))


def fetch(
    name: str,
    data_dir: PathLike | None = None,
    mirror: str | None = None,
    progress: bool = True,
) -> Path:
    """Downloads ``name``, unless it is there and sound, and gives the directory that holds it.

    That is ``data_dir`` where one is given, else a part of the cache directory. ``mirror`` is the
    address of a directory with the files, tried before the public mirrors.
    """
    files = file_set(name)
    base = _downloads() if data_dir is None else Path(data_dir).expanduser()
    located = locate(files, base, incomplete_raises=False)
    if located is None or not all(check.ok for check in check_members(located)):
        for item in files.downloads:
            urls = (f"{mirror.rstrip('/')}/{item.file}",) if mirror else ()
            item = dataclasses.replace(item, urls=urls + item.urls)
            download_file(item, base / files.folders[0], progress)
    return base


def verify(name: str, data_dir: PathLike | None = None) -> list[FileCheck]:
    """Reads every file of ``name`` and compares its checksum with the known one."""
    located = _on_this_machine(file_set(name), data_dir)
    if located is None:
        raise DataError(f"the files of {name} are not on this machine: nothing to verify")
    return check_members(located)


def _downloads() -> Path:
    return cache_directory() / "downloads"


def _on_this_machine(files: FileSet, data_dir: PathLike | None) -> Located | None:
    directory = data_directory(data_dir)
    found = locate(files, directory) if directory is not None else None
    return found or locate(files, _downloads(), incomplete_raises=False)


def _parse(located: Located) -> Images:
    if located.files.name == "mnist":
        return _mnist({m.name: parse_idx(c, m.name) for m, c in read_members(located)})
    batches = {m.name: parse_pickle(c, m.name) for m, c in read_members(located)}
    if located.files.name == "cifar10":
        train = [batches[f"data_batch_{i}"] for i in range(1, 6)]
        names = batches["batches.meta"][b"label_names"]
        return _cifar("cifar10", train, batches["test_batch"], b"labels", names)
    names = batches["meta"][b"fine_label_names"]
    return _cifar("cifar100", [batches["train"]], batches["test"], b"fine_labels", names)


def _mnist(arrays: Mapping[str, Bytes]) -> Images:
    def images(split: str) -> Tensor:
        return torch.from_numpy(arrays[f"{split}-images-idx3-ubyte.gz"].copy()).unsqueeze(1)

    def labels(split: str) -> Tensor:
        return torch.from_numpy(arrays[f"{split}-labels-idx1-ubyte.gz"].astype(np.int64))

    classes = tuple("0123456789")
    return Images(
        "mnist", images("train"), labels("train"), images("t10k"), labels("t10k"), classes
    )


def _cifar(
    name: str,
    train: list[Mapping[bytes, Any]],
    test: Mapping[bytes, Any],
    key: bytes,
    classes: list[bytes],
) -> Images:
    def images(batches: list[Mapping[bytes, Any]]) -> Tensor:
        rows = np.concatenate([batch[b"data"] for batch in batches])
        return torch.from_numpy(rows).view(-1, 3, 32, 32)

    def labels(batches: list[Mapping[bytes, Any]]) -> Tensor:
        return torch.tensor([label for batch in batches for label in batch[key]])

    names = tuple(label.decode() for label in classes)
    return Images(name, images(train), labels(train), images([test]), labels([test]), names)
