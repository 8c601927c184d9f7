"""The data sets as they are: digits, MNIST, CIFAR-10, CIFAR-100."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._cache import cached, stored
from ._catalogue import FileSet, file_set
from ._errors import DataError
from ._fetch import PathLike, download_missing, downloads, fetch_command, warn_of
from ._formats import Bytes, parse_idx, parse_pickle
from ._images import Images
from ._locate import Located, data_directory, locate, read_members

_DIGITS_FOR_TRAINING = 1400
_PAPER: dict[str, dict[str, Any]] = {
    "mnist": {"paper_size": 32},
    "cifar10": {"augment": True},
    "cifar100": {"augment": True},
}


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
    images = _read(name, data_dir, download, progress)
    return replace(images, **_PAPER[name])


def _read(name: str, data_dir: PathLike | None, download: bool, progress: bool) -> Images:
    files = file_set(name)
    directory = data_directory(data_dir)
    copies = locate(files, directory) if directory is not None else []
    copies += [copy for copy in locate(files, downloads()) if not copy.missing]
    if not copies:
        kept = stored(name)
        if kept is not None:
            return kept
        if not download:
            raise DataError(
                f"{name} is not on this machine; get it with `groupella data fetch {name}`, or "
                f"name a directory that holds it with GROUPELLA_DATA or --data-dir"
            )
        download_missing(files, downloads(), None, progress)
        copies = locate(files, downloads())
    return _first_sound(files, copies, data_dir)


def _first_sound(files: FileSet, copies: list[Located], data_dir: PathLike | None) -> Images:
    """The images of the first sound copy; what is wrong with those before it is a warning."""
    for copy in copies:
        kept = None if copy.missing else stored(files.name, copy.fingerprint())
        if kept is not None:
            return kept
    problems = []
    for copy in copies:
        try:
            images = cached(files.name, copy.fingerprint(), functools.partial(_parse, copy))
        except DataError as error:
            problems.append(str(error))
            continue
        if problems:
            warn_of(problems, copy)
        return images
    wrong = "; ".join(problems) or f"{files.name} has gone from this machine"
    raise DataError(f"{wrong}. Get a sound copy with `{fetch_command(files.name, data_dir)}`")


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
