"""Finding, verifying and caching the files of a data set."""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tarfile
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import numpy as np
import pytest
import torch

from groupella.data import DataError, Images, _cache, _copies, fetch, load, public, verify
from groupella.data._catalogue import DATASETS, Dataset, Download


def cache_files(tmp_path: Path) -> list[str]:
    base = tmp_path / "user-cache"
    return sorted(p.name for p in base.rglob("*") if p.is_file())


def archive(tiny: object, path: Path, inside: str, mode: str) -> Path:
    source = tiny.write(path.parent / "loose-source")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for file in sorted(source.iterdir()):
            tar.add(file, arcname=f"{inside}/{file.name}")
    return path


@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_loose_mnist_is_found(tiny_mnist, tmp_path: Path, folder: str) -> None:
    tiny_mnist.write(tmp_path / folder)
    images = public("mnist", tmp_path, download=False)
    np.testing.assert_array_equal(images.train_x[:, 0], tiny_mnist.train_x)
    np.testing.assert_array_equal(images.train_y, tiny_mnist.train_y)
    assert images.train_x.dtype == torch.uint8
    assert images.train_y.dtype == torch.int64
    assert images.classes == tuple("0123456789")


@pytest.mark.parametrize("dotted", [False, True])
def test_unpacked_mnist_is_found(tiny_mnist, tmp_path: Path, dotted: bool) -> None:
    for name, content in tiny_mnist.contents.items():
        plain = name.removesuffix(".gz")
        plain = plain.replace("-idx", ".idx") if dotted else plain
        (tmp_path / plain).write_bytes(gzip.decompress(content))
    images = public("mnist", tmp_path, download=False)
    np.testing.assert_array_equal(images.train_x[:, 0], tiny_mnist.train_x)


def test_environment_names_the_data_directory(tiny_mnist, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GROUPELLA_DATA", str(tiny_mnist.write(tmp_path / "mine")))
    assert len(public("mnist", download=False).train_y) == 20


def test_given_directory_goes_before_the_environment(
    tiny_mnist, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("GROUPELLA_DATA", str(tmp_path / "nowhere"))
    given = tiny_mnist.write(tmp_path / "given")
    assert len(public("mnist", given, download=False).train_y) == 20


def test_a_data_directory_that_does_not_exist_is_an_error(tiny_mnist, monkeypatch) -> None:
    monkeypatch.setenv("GROUPELLA_DATA", "/no/such/place")
    with pytest.raises(DataError, match=r"GROUPELLA_DATA '/no/such/place' is not a directory"):
        public("mnist", download=False)


@pytest.mark.parametrize(
    ("file", "mode"),
    [
        ("cifar-10-python.tar.gz", "w:gz"),
        ("cifar10/cifar-10-batches-py.tar.xz", "w:xz"),
        ("cifar10/cifar10.tar", "w:"),
    ],
)
def test_archives_are_read_without_unpacking(
    tiny_cifar10, tmp_path: Path, file: str, mode: str
) -> None:
    path = archive(tiny_cifar10, tmp_path / "d" / file, "cifar-10-batches-py", mode)
    before = sorted(p for p in (tmp_path / "d").rglob("*") if "loose" not in str(p))
    images = public("cifar10", tmp_path / "d", download=False)
    assert images.train_x.shape == (20, 3, 32, 32)
    np.testing.assert_array_equal(images.train_x.reshape(20, -1), tiny_cifar10.train_x)
    np.testing.assert_array_equal(images.train_y, tiny_cifar10.train_y)
    assert images.classes[-1] == "truck"
    assert path.exists()
    assert sorted(p for p in (tmp_path / "d").rglob("*") if "loose" not in str(p)) == before


@pytest.mark.parametrize("packed", [False, True])
def test_cifar100_is_read_with_its_fine_labels(tiny_cifar100, tmp_path: Path, packed: bool) -> None:
    if packed:
        archive(tiny_cifar100, tmp_path / "d" / "cifar-100-python.tar.gz", "batches", "w:gz")
    else:
        tiny_cifar100.write(tmp_path / "d" / "cifar-100-python")
    images = public("cifar100", tmp_path / "d", download=False)
    np.testing.assert_array_equal(images.train_x.reshape(20, -1), tiny_cifar100.train_x)
    np.testing.assert_array_equal(images.train_y, tiny_cifar100.train_y)
    np.testing.assert_array_equal(images.test_y, tiny_cifar100.train_y[:3])
    assert images.test_x.shape == (3, 3, 32, 32)
    assert images.classes == tuple(f"thing {i}" for i in range(100))


def test_an_archive_of_mnist_is_read(tiny_mnist, tmp_path: Path) -> None:
    archive(tiny_mnist, tmp_path / "d" / "mnist.tar.gz", "MNIST/raw", "w:gz")
    assert len(public("mnist", tmp_path / "d", download=False).train_y) == 20


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("cifar-10-python.tar.gz", "cifar10"),
        ("cifar-100-python.tar.gz", "cifar100"),
        ("cifar-10-binary.tar.gz", None),
        ("mnist.tar", "mnist"),
        ("fashion-mnist.tar.gz", None),
    ],
)
def test_an_archive_belongs_to_the_data_set_of_its_name(
    tmp_path: Path, file: str, owner: str | None
) -> None:
    (tmp_path / file).write_bytes(b"not really an archive")
    for name in DATASETS:
        if name == owner:
            assert all(check.path == tmp_path / file for check in verify(name, tmp_path))
        else:
            with pytest.raises(DataError, match="nothing to verify"):
                verify(name, tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty"])
def test_a_damaged_loose_file_is_one_clear_error(tiny_mnist, tmp_path: Path, damage: str) -> None:
    file = tiny_mnist.write(tmp_path / "mnist") / "t10k-images-idx3-ubyte.gz"
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        content = content[:-5]
    elif damage == "altered":
        content[len(content) // 2] ^= 1
    else:
        content.clear()
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz' is truncated or altered"):
        public("mnist", tmp_path)
    assert cache_files(tmp_path) == []
    checks = verify("mnist", tmp_path)
    assert [check.ok for check in checks] == [True, True, False, True]


@pytest.mark.parametrize("mode", ["w:gz", "w:xz", "w:"])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.9])
def test_a_truncated_archive_is_one_clear_error(
    tiny_cifar10, tmp_path: Path, mode: str, fraction: float
) -> None:
    path = archive(tiny_cifar10, tmp_path / "d" / "cifar10.tar.gz", "cifar-10-batches-py", mode)
    content = path.read_bytes()
    path.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(DataError, match="truncated or"):
        public("cifar10", tmp_path / "d")
    assert cache_files(tmp_path) == []
    assert not all(check.ok for check in verify("cifar10", tmp_path / "d"))


def test_an_altered_batch_in_an_archive_is_named(tiny_cifar10, tmp_path: Path) -> None:
    tiny_cifar10.contents["data_batch_3"] += b"\0"
    archive(tiny_cifar10, tmp_path / "d" / "cifar10.tar.gz", "cifar-10-batches-py", "w:gz")
    with pytest.raises(DataError, match=r"'data_batch_3' in .*cifar10.tar.gz' is truncated or alt"):
        public("cifar10", tmp_path / "d")


def test_a_damaged_copy_does_not_hide_a_sound_one(tiny_cifar10, tmp_path: Path, caplog) -> None:
    place = tmp_path / "d"
    archive(tiny_cifar10, place / "cifar10" / "cifar10.tar.gz", "cifar-10-batches-py", "w:gz")
    (tiny_cifar10.write(place / "cifar10") / "data_batch_3").write_bytes(b"altered")
    images = public("cifar10", place, download=False)
    np.testing.assert_array_equal(images.train_y, tiny_cifar10.train_y)
    assert "data_batch_3' is truncated or altered" in caplog.text
    assert "read instead: " + str(place / "cifar10" / "cifar10.tar.gz") in caplog.text
    caplog.clear()
    assert all(check.ok for check in verify("cifar10", place))
    assert "data_batch_3' is truncated or altered" in caplog.text


def test_when_every_copy_is_damaged_all_are_named(tiny_cifar10, tmp_path: Path) -> None:
    place = tmp_path / "a place"
    (tiny_cifar10.write(place / "cifar10") / "data_batch_3").write_bytes(b"altered")
    (place / "cifar10.tar.gz").write_bytes(b"no archive")
    expected = (
        r"data_batch_3' is truncated or altered: .*cifar10.tar.gz' is truncated or damaged: .*"
        r"`groupella data fetch cifar10 --data-dir '.*a place'`"
    )
    with pytest.raises(DataError, match=expected):
        public("cifar10", place)
    assert [check.member for check in verify("cifar10", place) if not check.ok] == ["data_batch_3"]


def test_a_sound_download_stands_in_for_an_incomplete_directory(
    tiny_mnist, tmp_path: Path, caplog
) -> None:
    tiny_mnist.write(_cache.cache_directory() / "downloads" / "mnist")
    (tiny_mnist.write(tmp_path / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    assert len(public("mnist", tmp_path, download=False).train_y) == 20
    assert "is incomplete: missing t10k-labels-idx1-ubyte.gz" in caplog.text
    checks = verify("mnist", tmp_path)
    assert [check.ok for check in checks] == [True, True, True, False]
    assert checks[-1].problem.endswith("t10k-labels-idx1-ubyte.gz' is missing")


def test_links_in_an_archive_are_not_followed(tiny_cifar10, tmp_path: Path) -> None:
    path = tmp_path / "cifar10.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        link = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(DataError, match="'data_batch_1' is not in it"):
        public("cifar10", tmp_path)


def test_an_incomplete_set_says_what_is_missing(tiny_mnist, tmp_path: Path) -> None:
    (tiny_mnist.write(tmp_path / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"is incomplete: missing t10k-labels-idx1-ubyte.gz"):
        public("mnist", tmp_path)


def test_without_files_or_network_the_error_says_what_to_do(tiny_mnist) -> None:
    with pytest.raises(DataError, match=r"groupella data fetch mnist.*GROUPELLA_DATA"):
        public("mnist", download=False)
    with pytest.raises(DataError, match=r"nothing to verify.*groupella data fetch mnist"):
        verify("mnist")


def test_the_second_time_comes_from_the_cache(tiny_mnist, tmp_path: Path, monkeypatch) -> None:
    tiny_mnist.write(tmp_path / "mnist")
    first = public("mnist", tmp_path)
    monkeypatch.setattr(_copies.Copy, "decode", lambda copy: pytest.fail("decoded again"))
    second = public("mnist", tmp_path)
    for name in ("train_x", "train_y", "test_x", "test_y"):
        assert torch.equal(getattr(first, name), getattr(second, name))
    assert second.classes == first.classes
    assert cache_files(tmp_path) == ["mnist.npz"]


def test_the_cache_serves_when_the_files_are_gone(tiny_mnist, tmp_path: Path) -> None:
    public("mnist", tiny_mnist.write(tmp_path / "mine"))
    assert len(public("mnist", download=False).train_y) == 20


def test_changed_files_are_verified_again(tiny_mnist, tmp_path: Path) -> None:
    folder = tiny_mnist.write(tmp_path / "mnist")
    public("mnist", tmp_path)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match="truncated or altered"):
        public("mnist", tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "altered", "noise"])
def test_a_damaged_cache_is_rebuilt(tiny_mnist, tmp_path: Path, damage: str) -> None:
    tiny_mnist.write(tmp_path / "mnist")
    public("mnist", tmp_path)
    entry = _cache.cache_directory() / "mnist.npz"
    content = bytearray(entry.read_bytes())
    if damage == "truncated":
        content = content[:-100]
    elif damage == "altered":
        content[len(content) // 2] ^= 1
    else:
        content[:] = os.urandom(100)
    entry.write_bytes(content)
    assert _cache.stored("mnist") is None
    images = public("mnist", tmp_path)
    np.testing.assert_array_equal(images.train_x[:, 0], tiny_mnist.train_x)
    assert _cache.stored("mnist") is not None


def test_an_interrupted_write_leaves_nothing(tiny_mnist, tmp_path: Path, monkeypatch) -> None:
    tiny_mnist.write(tmp_path / "mnist")

    def interrupted(file: BinaryIO, **arrays: object) -> None:
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        public("mnist", tmp_path)
    assert cache_files(tmp_path) == []


def test_an_unwritable_cache_is_only_a_warning(
    tiny_mnist, tmp_path: Path, monkeypatch, caplog
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    tiny_mnist.write(tmp_path / "mnist")
    with caplog.at_level(logging.WARNING):
        assert len(public("mnist", tmp_path).train_y) == 20
    assert "mnist is not cached" in caplog.text


# As torchvision's and Keras' lists have them, and, of unpacked MNIST files, several others.
MD5 = {
    "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
    "meta": "7973b15100ade9c7d40fb424638fde48",
}
SIZE_AND_SHA256 = {
    "train-images-idx3-ubyte.gz": (
        9912422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    ),
    "train-labels-idx1-ubyte.gz": (
        28881,
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    ),
    "t10k-images-idx3-ubyte.gz": (
        1648877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    ),
    "t10k-labels-idx1-ubyte.gz": (
        4542,
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "cifar-10-python.tar.gz": (
        170498071,
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
    ),
    "cifar-100-python.tar.gz": (
        169001437,
        "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
    ),
}


def test_the_catalogue_has_the_published_checksums() -> None:
    files = [forms for known in DATASETS.values() for forms in known.files.values()]
    forms = {name: digest for forms in files for name, digest in forms.items()}
    assert {name.replace(".idx", "-idx"): digest for name, digest in forms.items()} == MD5
    downloads = [item for known in DATASETS.values() for item in known.downloads]
    assert {item.file: (item.size, item.sha256) for item in downloads} == SIZE_AND_SHA256


def test_every_download_has_mirrors_of_different_hosts() -> None:
    for known in DATASETS.values():
        hosts = {urlsplit(url).hostname for url in known.mirrors}
        assert len(hosts) == len(known.mirrors) >= 2
        assert all(url.startswith("https://") and url.endswith("/") for url in known.mirrors)


def test_an_unknown_public_set_is_an_error() -> None:
    with pytest.raises(DataError, match="known are mnist, cifar10, cifar100"):
        public("imagenet")


def test_a_new_data_set_is_one_entry_in_the_catalogue(sites, tmp_path: Path, monkeypatch) -> None:
    """The recipe: its files with their checksums, its mirrors, and how to decode them."""
    content = bytes(range(200)) * 2  # 25 images of 4×4
    entry = Dataset(
        folders=("stripes", "."),
        archive="stripes",
        files={"stripes.bin": {"stripes.bin": hashlib.md5(content).hexdigest()}},
        downloads=(Download("stripes.bin", 400, hashlib.sha256(content).hexdigest()),),
        mirrors=(sites[0].url,),
        parse=lambda content, file: torch.frombuffer(bytearray(content), dtype=torch.uint8),
        images=lambda files: stripes(files[0].view(25, 1, 4, 4)),
        paper_size=8,
    )
    monkeypatch.setitem(DATASETS, "stripes", entry)
    sites[0].pages["stripes.bin"] = content
    assert load("stripes:rot90", progress=False).train_x.shape == (20, 1, 8, 8)
    images = public("stripes", download=False)  # from the cache or the download
    np.testing.assert_array_equal(images.train_x.flatten(), list(content[:320]))
    assert all(check.ok for check in verify("stripes"))
    assert fetch("stripes", tmp_path / "mine", progress=False) == tmp_path / "mine"
    assert (tmp_path / "mine" / "stripes" / "stripes.bin").read_bytes() == content


def stripes(x: torch.Tensor) -> Images:
    y = torch.arange(25) % 2
    return Images("stripes", x[:20], y[:20], x[20:], y[20:], ("even", "odd"))
