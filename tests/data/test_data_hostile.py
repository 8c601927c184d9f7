"""Files that were made to do harm: refused by name, before memory or time is spent on them."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import struct
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from groupella.data import DataError, _download, load
from groupella.data._catalogue import Download
from groupella.data._download import download
from groupella.data._own import from_folder, from_npz, read_picture

ZIP = b"PK\x05\x06" + bytes(18)  # without members
HUGE = "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000, 1000, 1000), }"


def npy(header: str, data: bytes = b"", version: int = 1) -> bytes:
    """A .npy file with that header, whatever it declares."""
    text = header.encode() + b" " * (-(len(header) + 11) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return path


def saved(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=True)
    return out.getvalue()


def peak() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (npy(HUGE), "declares 800,000,000,000,000 bytes"),
        (npy(HUGE, version=2), "declares 800,000,000,000,000 bytes"),
        (npy(HUGE, version=3), r"is in version 3\.0 of the format; expected 1\.0 or 2\.0"),
    ],
)
def test_a_header_that_declares_more_than_the_file_has(
    tmp_path: Path, header: bytes, words: str
) -> None:
    path = archive(tmp_path / "a.npz", x=header, y=saved(np.arange(4)))
    with pytest.raises(DataError, match=rf"a\.npz.*x\.npy {words}"):
        from_npz(path)


@pytest.mark.parametrize("behind", [b"", ZIP])
def test_one_array_is_no_archive_whatever_it_declares(tmp_path: Path, behind: bytes) -> None:
    """Numpy would ask for the terabytes of its header; also where a zip stands behind it."""
    path = tmp_path / "a.npz"
    path.write_bytes(npy(HUGE) + behind)
    with pytest.raises(DataError, match=r"a\.npz.*it is one array \(\.npy\)") as caught:
        from_npz(path)
    assert str(caught.value).isprintable()


def test_a_header_that_is_too_long_is_refused_in_one_line(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", x=npy("{" * 60_000), y=saved(np.arange(4)))
    with pytest.raises(DataError, match=r"a\.npz.*Header info length") as caught:
        from_npz(path)
    assert "\n" not in str(caught.value)


def test_a_zip_bomb(tmp_path: Path) -> None:
    before = peak()
    path = tmp_path / "bomb.npz"
    part = bytes(1 << 20)
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("x.npy", "w", force_zip64=True) as stream,
    ):
        for _ in range(300):
            stream.write(part)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(DataError, match=r"bomb\.npz.*bytes that unpack to 314,572,800; expected"):
        from_npz(path)
    assert peak() - before < 100 << 20


def test_python_objects_are_not_unpickled(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    objects = np.array([Evil(), Evil()], dtype=object)
    path = archive(tmp_path / "a.npz", x=saved(np.zeros((2, 4, 4))), y=saved(objects))
    with pytest.raises(DataError, match=r"y\.npy holds Python objects, which are not read"):
        from_npz(path)
    assert not (tmp_path / "ran").exists()


def test_members_with_names_that_leave_the_archive_stay_inside(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    path = inner / "a.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("../../escaped.npy", saved(np.zeros(3)))
        file.writestr("x.npy", saved(np.zeros((10, 4, 4))))
        file.writestr("y.npy", saved(np.arange(10) % 2))
    assert len(from_npz(path).classes) == 2
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.npz", "inner"]


def picture_header(width: int, height: int) -> bytes:
    """A PNG that declares a size and has next to no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_000, 13_000, 100_000])
def test_a_picture_that_declares_too_many_pixels(tmp_path: Path, side: int) -> None:
    (tmp_path / "x.png").write_bytes(picture_header(side, side))
    before = peak()
    with pytest.raises(DataError, match=r"x\.png"):
        read_picture(tmp_path / "x.png", 8)
    assert peak() - before < 50 << 20


def folder(tmp_path: Path, *classes: str) -> Path:
    for name in classes:
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(3):
            picture(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


def picture(path: Path) -> None:
    import PIL.Image

    PIL.Image.new("L", (4, 4), 7).save(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_named_as_a_picture_does_not_hang(tmp_path: Path) -> None:
    place = folder(tmp_path, "a", "b")
    os.mkfifo(place / "a" / "x.png")
    with pytest.raises(DataError, match=r"x\.png' is not a file"):
        from_folder(place)


@pytest.mark.skipif(os.name != "posix", reason="needs links")
def test_links_in_a_loop_are_named_and_a_folder_in_itself_is_no_class(tmp_path: Path) -> None:
    place = folder(tmp_path, "a", "b")
    (place / "loop.png").symlink_to(place / "loop.png")
    (place / "a" / "itself").symlink_to(place)
    assert from_folder(place).classes == ("a", "b")
    (place / "a" / "x.png").symlink_to(place / "a" / "x.png")
    with pytest.raises(DataError, match=r"x\.png' is not a file, or a link to none"):
        from_folder(place)


@pytest.mark.skipif(sys.platform != "linux", reason="names are text elsewhere")
def test_a_class_whose_name_cannot_be_printed_is_refused_before_training(tmp_path: Path) -> None:
    place = folder(tmp_path, "a")
    os.mkdir(os.fsencode(place) + b"/b\xff")
    picture(place / os.fsdecode(b"b\xff") / "0.png")
    with pytest.raises(DataError, match=r"a class is named 'b\\udcff'; expected") as caught:
        from_folder(place)
    str(caught.value).encode()


@pytest.mark.parametrize("name", ["\x1b[2J", "two\nlines", "\ud800", "x" * 1000])
def test_labels_that_cannot_be_printed_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros((10, 4, 4)), y=np.array(["a", name] * 5))
    with pytest.raises(DataError, match=r"a\.npz': a class is named") as caught:
        from_npz(path)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((10, 4, 4)), np.zeros(10, int), "all data have one class, '0'"),
        (np.zeros((10, 4, 4, 0)), np.arange(10) % 2, "expected samples along the first"),
        (np.zeros((10, 0, 4)), np.arange(10) % 2, "expected samples along the first"),
        (np.full((10, 4, 4), 1e300), np.arange(10) % 2, "not finite"),
        (np.full((10, 4, 4), np.nan), np.arange(10) % 2, "not finite"),
    ],
)
def test_data_that_cannot_be_learned_from_are_refused(
    tmp_path: Path, x: np.ndarray, y: np.ndarray, message: str
) -> None:
    np.savez(tmp_path / "a.npz", x=x, y=y)
    with np.errstate(over="ignore"), pytest.raises(DataError, match=message):
        load(tmp_path / "a.npz")


def test_a_folder_of_one_class_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all data have one class, 'a'"):
        from_folder(folder(tmp_path, "a"))


CONTENT = bytes(200_000)
ITEM = Download("file.bin", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


def test_a_body_that_does_not_end_is_cut_at_the_size_of_the_file(sites, tmp_path: Path) -> None:
    first, second = sites
    first.pages["file.bin"] = bytes(20_000_000)
    second.pages["file.bin"] = CONTENT
    with pytest.raises(DataError, match="it sends more than 200,000 bytes"):
        download(ITEM, [first.url], tmp_path, progress=False)
    assert [p.name for p in tmp_path.iterdir()] == []
    download(ITEM, [first.url, second.url], tmp_path, progress=False)


def test_a_server_that_sends_a_byte_per_connection_is_given_up(sites, tmp_path: Path) -> None:
    first, _ = sites
    first.pages["file.bin"] = CONTENT
    first.cuts = [1] * 1000
    with pytest.raises(DataError, match=r"could not download file\.bin"):
        download(ITEM, [first.url], tmp_path, progress=False)
    assert len(first.asked) == 20


def test_a_server_that_drips_is_given_up_for_another(
    sites, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte now and then never runs into a limit on the silence between two bytes."""
    monkeypatch.setattr(_download, "_PATIENCE", 0.3)
    first, second = sites
    first.pages["file.bin"] = second.pages["file.bin"] = CONTENT
    first.pause = 0.02
    message = r"it sent \d{1,4} bytes in \d+ s, less than 5,000 a second"
    with pytest.raises(DataError, match=message):
        download(ITEM, [first.url], tmp_path, progress=False)
    download(ITEM, [first.url, second.url], tmp_path, progress=False)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert len(second.asked) == 1
