"""A user's own images."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from groupella.data import DataError, from_folder, from_npz, load


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    "names",
    [
        ("train_x", "train_y", "test_x", "test_y"),
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_splits_in_an_npz_are_kept(rng, tmp_path: Path, names: tuple[str, ...]) -> None:
    x = rng.integers(0, 256, (12, 6, 6), dtype=np.uint8)
    y = np.arange(12) % 3
    values = (x[:8], y[:8], x[8:], y[8:])
    images = from_npz(write(tmp_path / "mine.npz", **dict(zip(names, values, strict=True))))
    assert images.name == "mine"
    np.testing.assert_array_equal(images.train_x[:, 0], x[:8])
    np.testing.assert_array_equal(images.test_y, y[8:])
    data = load(tmp_path / "mine.npz", "rot90")
    assert data.name == "mine:rot90"
    assert data.lattice == (6, 6)
    assert load(f"{tmp_path / 'mine.npz'}:mirrored", size=8).lattice == (8, 8)


def test_one_set_is_split_within_every_class(rng, tmp_path: Path) -> None:
    x = rng.random((70, 6, 6))
    y = np.repeat([3, 5, 9], [50, 15, 5])
    path = write(tmp_path / "mine.npz", x=x, y=y)
    images = from_npz(path, seed=1)
    assert images.classes == ("3", "5", "9")
    assert torch.bincount(images.test_y).tolist() == [10, 3, 1]
    assert torch.bincount(images.train_y).tolist() == [40, 12, 4]
    both = torch.cat([images.train_x, images.test_x]).flatten(1)
    assert len({bytes(row) for row in both.numpy()}) == 70
    assert not torch.equal(from_npz(path, seed=2).test_x, images.test_x)
    assert torch.equal(from_npz(path, seed=1).test_x, images.test_x)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 9, 9), (1, 9, 9)),
        ((4, 9, 8, 3), (3, 9, 8)),
        ((4, 5, 9, 8), (5, 9, 8)),
        ((4, 1, 9, 9), (1, 9, 9)),
        ((4, 9, 9, 2), (2, 9, 9)),
    ],
)
def test_the_shorter_axis_is_the_channels(rng, tmp_path: Path, shape, expected) -> None:
    x = rng.random(shape)
    path = write(tmp_path / "a.npz", x_train=x, y_train=[0, 1, 0, 1], x_test=x, y_test=[0, 1, 0, 1])
    images = from_npz(path)
    assert tuple(images.train_x.shape[1:]) == expected
    channels_last = x.ndim == 4 and expected[0] == shape[3]
    first = np.moveaxis(x[0], -1, 0) if channels_last else x[0].reshape(expected)
    np.testing.assert_allclose(images.train_x[0], first, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int64, np.int16, np.uint16, np.uint8])
def test_integers_up_to_255_are_8_bit_values(rng, tmp_path: Path, dtype: type) -> None:
    x = rng.integers(0, 256, (12, 6, 6))
    x[0, 0, 0], x[0, 0, 1] = 0, 255
    y = np.arange(12) % 3
    path = write(tmp_path / "a.npz", train_x=x.astype(dtype), train_y=y, test_x=x[:6], test_y=y[:6])
    images = from_npz(path)
    assert images.train_x.dtype == images.test_x.dtype == torch.uint8
    data = load(path)
    np.testing.assert_allclose(data.pixels(data.train_x)[:, 0], x / 255, atol=1e-6)
    np.testing.assert_allclose(data.pixels(data.test_x)[:, 0], x[:6] / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(255, float), (4095, int), (16, int), (1, int), (1, bool), (1e-3, float)],
)
def test_other_ranges_are_shown_from_black_to_white(
    rng, tmp_path: Path, scale: float, dtype: type
) -> None:
    x = (rng.integers(0, 2, (12, 6, 6)) * scale).astype(dtype)
    y = np.arange(12) % 3
    data = load(write(tmp_path / "a.npz", train_x=x, train_y=y, test_x=x, test_y=y))
    np.testing.assert_allclose(data.pixels(data.train_x)[:, 0], x.astype(float) / scale, atol=1e-5)
    normal = (x - x.mean(dtype=float)) / x.std(dtype=float)
    np.testing.assert_allclose(data.train_x[:, 0], normal, atol=1e-4)


def test_negative_values_are_shown(rng, tmp_path: Path) -> None:
    x = rng.uniform(-1, 1, (12, 6, 6))
    y = np.arange(12) % 3
    data = load(write(tmp_path / "a.npz", train_x=x, train_y=y, test_x=x, test_y=y))
    expected = (x - x.min()) / (x.max() - x.min())
    np.testing.assert_allclose(data.pixels(data.train_x)[:, 0], expected, atol=1e-6)


def test_values_between_0_and_1_are_shown_as_they_are(rng, tmp_path: Path) -> None:
    x = rng.uniform(0.2, 0.7, (12, 6, 6))
    y = np.arange(12) % 3
    data = load(write(tmp_path / "a.npz", train_x=x, train_y=y, test_x=x, test_y=y))
    np.testing.assert_allclose(data.pixels(data.train_x)[:, 0], x, atol=1e-6)


def test_training_and_test_images_have_one_scale(rng, tmp_path: Path) -> None:
    y = np.arange(12) % 3
    small, large = rng.integers(0, 256, (12, 6, 6)), rng.integers(0, 4096, (12, 6, 6))
    path = write(tmp_path / "a.npz", train_x=small, train_y=y, test_x=large, test_y=y)
    images = from_npz(path)
    np.testing.assert_array_equal(images.train_x[:, 0], small)
    np.testing.assert_array_equal(images.test_x[:, 0], large)
    path = write(tmp_path / "b.npz", train_x=small, train_y=y, test_x=small / 255, test_y=y)
    with pytest.raises(DataError, match="are int64, test samples float64; expected integers in bo"):
        from_npz(path)


def test_strings_and_named_classes(rng, tmp_path: Path) -> None:
    x = rng.random((6, 5, 5))
    path = write(tmp_path / "a.npz", x=x, y=np.array(["dog", "cat"] * 3))
    assert from_npz(path).classes == ("cat", "dog")
    path = write(tmp_path / "b.npz", x=x, y=[0, 2] * 3, classes=["zero", "one", "two"])
    assert from_npz(path).classes == ("zero", "one", "two")
    path = write(tmp_path / "c.npz", x=x, y=[0, 3] * 3, classes=["zero", "one", "two"])
    with pytest.raises(DataError, match="not indices of its 3 classes"):
        from_npz(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.zeros(3)}, "holds pictures; expected"),
        ({"x": np.zeros((4, 5, 5)), "y": np.zeros(4)}, "all data have one class"),
        ({"x": np.zeros((4, 5, 5)), "y": np.zeros((4, 2), int)}, "all data have the same labels"),
        ({"x": np.zeros((4, 5, 5)), "y": np.zeros((4, 2, 2))}, "does not go with"),
        ({"x": np.zeros((4, 5, 5)), "y": np.zeros(3, int)}, "does not go with"),
        ({"x": np.zeros(4), "y": np.arange(4) % 2}, "samples along the first"),
        ({"x": np.zeros((4, 3, 3, 3, 3)), "y": np.arange(4) % 2}, "fewer channels than sites"),
        ({"x": np.full((4, 5, 5), np.nan), "y": np.arange(4) % 2}, "not finite"),
        ({"x": np.full((4, 5, 5), "a"), "y": np.arange(4) % 2}, "expected real numbers"),
        ({"x": np.zeros((0, 5, 5)), "y": np.zeros(0, int)}, "shape .0,."),
    ],
)
def test_wrong_arrays_are_clear_errors(tmp_path: Path, arrays, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_npz(write(tmp_path / "a.npz", **arrays))


def test_a_wrong_shape_is_named_as_the_file_has_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((40, 20)), y=np.arange(40) % 2)
    with pytest.raises(DataError, match=r"x of shape \(40, 20\); expected \(n, h, w\)"):
        from_npz(tmp_path / "a.npz", axes=2)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.float64(1), "y": np.arange(4) % 2}, r"x of shape \(\) does not go with y"),
        (
            {"x": np.zeros((4, 5, 5)), "y": np.arange(4) % 2, "classes": np.array("cat")},
            r"classes of shape \(\); expected a list of their names",
        ),
        ({"x": np.zeros((4, 5, 5)), "y": np.arange(4)}, "4 images of 4 classes; expected two or"),
    ],
)
def test_arrays_that_cannot_be_split_or_named_are_clear_errors(
    tmp_path: Path, arrays, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        from_npz(write(tmp_path / "a.npz", **arrays))


def test_one_array_and_damaged_bytes_are_clear_errors(rng, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", rng.random((4, 5, 5)))
    (tmp_path / "a.npy").rename(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"a.npz' cannot be read as an .npz: it is one array"):
        from_npz(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "b.npz", x=rng.random((40, 5, 5)), y=np.arange(40) % 2)
    content = bytearray((tmp_path / "b.npz").read_bytes())
    for damage in (b"\x00", b"\xff"):  # what is found out by numpy's parser, and by zlib
        content[200:260] = 60 * damage
        (tmp_path / "b.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"b.npz' cannot be read as an .npz: "):
            load(tmp_path / "b.npz")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("x", b"no array")
    with pytest.raises(DataError, match=r"c.npz' cannot be read as an .npz: x is not an array"):
        from_npz(tmp_path / "c.npz")


@pytest.mark.parametrize("name", ["cifar10", "cifar-like", "mnist"])
@pytest.mark.parametrize("kind", ["npz", "folder"])
def test_a_name_of_ones_own_is_only_a_name(rng, tmp_path: Path, name: str, kind: str) -> None:
    x = rng.integers(0, 256, (12, 28, 28), dtype=np.uint8)
    y = np.arange(12) % 3
    if kind == "npz":
        place = write(tmp_path / f"{name}.npz", x=x, y=y)
    else:
        place = tmp_path / name
        for k, array in enumerate(x):
            picture(place / str(y[k]) / f"{k}.png", array)
    data = load(place)
    assert data.name == name
    assert data.augmentation is None
    assert data.lattice == (28, 28)


def test_files_that_are_no_npz_are_clear_errors(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 but not really a zip")
    with pytest.raises(DataError, match=r"a.npz' cannot be read"):
        from_npz(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.array([{}], dtype=object), y=np.array([1]))
    with pytest.raises(DataError, match=r"b.npz' cannot be read"):
        from_npz(tmp_path / "b.npz")
    (tmp_path / "a.txt").write_text("1,2")
    with pytest.raises(DataError, match=r"expected an .npz file, a .csv file or a folder"):
        load(tmp_path / "a.txt")


def picture(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.fromarray(array).save(path)


def test_a_folder_with_a_subfolder_for_each_class(rng, tmp_path: Path) -> None:
    shown = {}
    for name in ("cat", "dog"):
        for k in range(10):
            shown[name, k] = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            picture(tmp_path / "pets" / name / f"{k}.png", shown[name, k])
    (tmp_path / "pets" / "cat" / "notes.txt").write_text("not an image")
    images = from_folder(tmp_path / "pets")
    assert images.classes == ("cat", "dog")
    assert images.train_x.shape == (16, 1, 8, 8)
    assert torch.bincount(images.test_y).tolist() == [2, 2]
    known = {array.tobytes(): name for (name, _), array in shown.items()}
    for x, y in zip(images.train_x, images.train_y, strict=True):
        assert known[x.numpy().tobytes()] == images.classes[y]
    assert load(tmp_path / "pets", size=16).lattice == (16, 16)


def test_given_splits_colours_and_sizes(rng, tmp_path: Path) -> None:
    base = tmp_path / "pets"
    for name in ("cat", "dog"):
        picture(base / "train" / name / "a.png", rng.integers(0, 256, (8, 8), dtype=np.uint8))
        picture(base / "train" / name / "b.png", rng.integers(0, 256, (8, 8, 3), dtype=np.uint8))
        picture(base / "test" / name / "c.png", rng.integers(0, 256, (10, 14), dtype=np.uint8))
    images = from_folder(base, size=6)
    assert images.train_x.shape == (4, 3, 6, 6)
    assert images.test_x.shape == (2, 3, 6, 6)
    with pytest.raises(DataError, match="give a size"):
        from_folder(base)


def test_pictures_are_cut_to_their_central_square(tmp_path: Path) -> None:
    wide = np.zeros((4, 8), dtype=np.uint8)
    wide[:, 2:6] = 200
    for name in ("a", "b"):
        picture(tmp_path / "p" / name / "1.png", wide)
        picture(tmp_path / "p" / name / "2.png", wide)
    images = from_folder(tmp_path / "p")
    assert (images.train_x == 200).all()


def test_bad_folders_are_clear_errors(rng, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images in the subfolders"):
        from_folder(tmp_path / "empty")
    picture(tmp_path / "p" / "a" / "1.png", rng.integers(0, 256, (8, 8), dtype=np.uint8))
    picture(tmp_path / "p" / "a" / "2.png", rng.integers(0, 256, (9, 9), dtype=np.uint8))
    with pytest.raises(DataError, match="are of 2 sizes; give one size"):
        from_folder(tmp_path / "p")
    whole = (tmp_path / "p" / "a" / "1.png").read_bytes()
    (tmp_path / "p" / "a" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"2.png' is not a readable image"):
        from_folder(tmp_path / "p")


@pytest.mark.parametrize("other", ["val", "valid", "validation"])
def test_validation_images_are_tested_on_where_there_are_no_others(
    rng, tmp_path: Path, other: str
) -> None:
    shades = {"train": 10, other: 20}
    for split, shade in shades.items():
        for name in ("cat", "dog"):
            picture(tmp_path / split / name / "a.png", np.full((8, 8), shade, dtype=np.uint8))
    images = from_folder(tmp_path)
    assert images.classes == ("cat", "dog")
    assert images.train_x.unique().tolist() == [10]
    assert images.test_x.unique().tolist() == [20]
    picture(tmp_path / "test" / "cat" / "a.png", np.full((8, 8), 30, dtype=np.uint8))
    assert from_folder(tmp_path).test_x.unique().tolist() == [30]


@pytest.mark.parametrize("trained", [("cat", "dog"), ("cat",)])
def test_a_class_that_is_only_tested_on_is_a_clear_error(
    tmp_path: Path, trained: tuple[str, ...]
) -> None:
    x = np.zeros((2, 8, 8), dtype=np.uint8)
    for name in trained:
        picture(tmp_path / "p" / "train" / name / "1.png", x[0])
    picture(tmp_path / "p" / "test" / "eel" / "1.png", x[0])
    file = write(
        tmp_path / "a.npz", x_train=x, y_train=["cat", trained[-1]], x_test=x, y_test=["cat", "eel"]
    )
    words = "class 'eel' has images to test on, but none to train on"
    with pytest.raises(DataError, match=words):
        from_folder(tmp_path / "p")
    with pytest.raises(DataError, match=words):
        from_npz(file)


def test_a_size_beyond_this_machine_is_refused_before_any_resizing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "dog"):
        for number in range(2):
            picture(tmp_path / name / f"{number}.png", np.zeros((8, 8), dtype=np.uint8))
    monkeypatch.setattr("groupella.data._sizes.memory_of_machine", lambda: 2**30)
    with pytest.raises(DataError, match=r"images of 20000×20000 need at least 1.5 GiB, .* has 1.0"):
        load(tmp_path, size=20_000)
    monkeypatch.setattr("groupella.data._transforms.F.interpolate", None)
    with pytest.raises(DataError, match=r"images of 400×400 need at least 1.1 GiB, .* has 1.0 GiB"):
        load("digits", size=400)


def test_a_folder_without_images_to_test_on_is_a_clear_error(rng, tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        picture(tmp_path / "p" / name / "1.png", rng.integers(0, 256, (8, 8), dtype=np.uint8))
        picture(tmp_path / "q" / "train" / name / "1.png", np.zeros((8, 8), dtype=np.uint8))
    with pytest.raises(DataError, match="2 images of 2 classes; expected two or more of some cla"):
        from_folder(tmp_path / "p")
    with pytest.raises(DataError, match=r"expected .* beside test/CLASS/.* \(or val/, valid/, val"):
        from_folder(tmp_path / "q")
