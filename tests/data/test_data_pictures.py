"""Picture files of every kind: how their values are scaled, and which side is up."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from groupella.data import DataError, from_folder, load
from groupella.data._own import read_picture

ROTATED = {1: 0, 6: 3, 3: 2, 8: 1}  # EXIF orientation: quarter turns to the left that mend it


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def png_of_16_bits(values: np.ndarray) -> bytes:
    """Written by hand from the specification: grey, 16 bits, most significant byte first."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    height, width = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def pgm_of_16_bits(values: np.ndarray) -> bytes:
    height, width = values.shape
    return f"P5 {width} {height} 65535\n".encode() + values.astype(">u2").tobytes()


def tiff_of_16_bits(values: np.ndarray, order: str) -> bytes:
    """A header, a directory of tags, and the pixels in one strip, in either order of bytes."""
    height, width = values.shape
    tags = {256: width, 257: height, 258: 16, 259: 1, 262: 1, 277: 1, 278: height}
    tags |= {273: 8 + 2 + 12 * 9 + 4, 279: 2 * values.size}
    mark = b"II" if order == "<" else b"MM"
    entries = [struct.pack(order + "HHII", t, 4, 1, v) for t, v in sorted(tags.items())]
    head = mark + struct.pack(order + "HI", 42, 8) + struct.pack(order + "H", len(tags))
    return head + b"".join(entries) + bytes(4) + values.astype(order + "u2").tobytes()


@pytest.mark.parametrize(
    ("name", "encode"),
    [
        ("a.png", png_of_16_bits),
        ("a.pgm", pgm_of_16_bits),
        ("little.tif", lambda values: tiff_of_16_bits(values, "<")),
        ("big.tif", lambda values: tiff_of_16_bits(values, ">")),
    ],
)
def test_16_bit_values_keep_all_their_bits(rng, tmp_path: Path, name: str, encode) -> None:
    values = rng.integers(0, 65536, (8, 8))
    values[0, :2] = 0, 65535
    (tmp_path / name).write_bytes(encode(values))
    np.testing.assert_allclose(read_picture(tmp_path / name, None), values / 65535, atol=1e-7)


def test_a_folder_of_16_bit_images_is_not_white(rng, tmp_path: Path) -> None:
    values = rng.integers(0, 65536, (10, 8, 8))
    for k, array in enumerate(values):
        place = tmp_path / "p" / ("cat", "dog")[k % 2]
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{k}.png").write_bytes(png_of_16_bits(array))
    data = load(tmp_path / "p")
    assert data.train_x.shape == (8, 1, 8, 8)
    known = {k: torch.from_numpy(array / 65535).float() for k, array in enumerate(values)}
    for x in data.pixels(data.train_x)[:, 0]:
        assert any(torch.allclose(x, array, atol=1e-5) for array in known.values())
    assert load(tmp_path / "p", size=4).lattice == (4, 4)


def test_images_of_8_and_16_bits_have_one_scale(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "train" / name).mkdir(parents=True)
        (tmp_path / "test" / name).mkdir(parents=True)
        grey = PIL.Image.fromarray(np.full((4, 4), 51, dtype=np.uint8))
        grey.save(tmp_path / "train" / name / "8.png")
        grey.save(tmp_path / "test" / name / "8.png")
        deep = png_of_16_bits(np.full((4, 4), 13107))
        (tmp_path / "train" / name / "16.png").write_bytes(deep)
    images = from_folder(tmp_path)
    torch.testing.assert_close(images.train_x, torch.full((4, 1, 4, 4), 0.2))
    torch.testing.assert_close(images.test_x, torch.full((2, 1, 4, 4), 0.2))


@pytest.mark.parametrize(("mode", "dtype"), [("F", np.float32), ("I", np.int32)])
def test_values_without_a_known_white_are_refused(tmp_path: Path, mode: str, dtype: type) -> None:
    PIL.Image.fromarray(np.ones((4, 4), dtype=dtype)).save(tmp_path / "a.tif")
    with pytest.raises(DataError, match=rf"a.tif' has pixels of mode {mode} .* into an .npz"):
        read_picture(tmp_path / "a.tif", None)


@pytest.mark.parametrize("orientation", ROTATED)
def test_photographs_are_turned_as_their_camera_says(tmp_path: Path, orientation: int) -> None:
    upright = np.zeros((16, 16), dtype=np.uint8)
    upright[:8, :8] = 250  # top left
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    stored = np.rot90(upright, -ROTATED[orientation])
    PIL.Image.fromarray(np.ascontiguousarray(stored)).save(
        tmp_path / "a.jpg", quality=95, exif=exif
    )
    found = read_picture(tmp_path / "a.jpg", None).astype(int)
    assert np.abs(found - upright).max() < 20


def test_oblong_photographs_are_cut_after_they_are_turned(tmp_path: Path) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    stored = np.zeros((8, 24, 3), dtype=np.uint8)
    stored[:, 8:16] = 200
    PIL.Image.fromarray(stored).save(tmp_path / "a.jpg", quality=95, exif=exif)
    found = read_picture(tmp_path / "a.jpg", None)
    assert found.shape == (8, 8, 3)
    assert found.min() > 150
