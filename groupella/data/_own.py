"""A user's own images: an ``.npz`` file, or a folder with one subfolder per class."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ._errors import DataError
from ._images import Images
from ._pictures import SUFFIXES, read_picture, same_scale

Array = npt.NDArray[Any]

_SPLIT_NAMES = (
    ("train_x", "train_y", "test_x", "test_y"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
_WHOLE_NAMES = (("x", "y"), ("images", "labels"), ("data", "labels"))
_TEST_FOLDERS = ("test", "val", "valid", "validation")
_TEST_FRACTION = 0.2


def from_npz(path: Path, seed: int = 0) -> Images:
    """Images and labels in an ``.npz``.

    Either ``train_x, train_y, test_x, test_y`` (or Keras' ``x_train, …``), or ``x, y`` (or
    ``images, labels``), of which a random fifth of every class becomes the test set. Images:
    (n, h, w), (n, h, w, channels) or (n, channels, h, w), the shorter axis being the channels.
    Integers from 0 to 255 are 8-bit values whatever their type; all other numbers stay as they are.
    Labels: (n,), integers or strings. ``classes`` may name the classes 0, 1, ….
    """
    arrays = _arrays(path)
    given = arrays.pop("classes", None)
    for names in _SPLIT_NAMES:
        if all(name in arrays for name in names):
            train_x, train_y, test_x, test_y = (arrays[name] for name in names)
            break
    else:
        train_x, train_y, test_x, test_y = _split_whole(path, arrays, seed)
    classes, (labels, test_labels) = _numbered([train_y, test_y], given, path)
    train, test = _as_images(train_x, test_x, path)
    if train.shape[1:] != test.shape[1:]:
        raise DataError(
            f"{str(path)!r}: training images are {tuple(train.shape[1:])}, test images "
            f"{tuple(test.shape[1:])}"
        )
    for images, targets in ((train, labels), (test, test_labels)):
        if len(images) != len(targets) or not len(targets):
            raise DataError(f"{str(path)!r} has {len(images)} images for {len(targets)} labels")
    return Images(path.stem, train, labels, test, test_labels, classes)


def from_folder(path: Path, size: int | None = None, seed: int = 0) -> Images:
    """Images in ``train/CLASS/…`` and ``test/CLASS/…``, or in ``CLASS/…``, split as above.

    ``val``, ``valid`` or ``validation`` stands for ``test`` where there is none. Each is cut to its
    central square and, with ``size``, resized; without it all must be of one size. Grey images
    stay grey if all are.
    """
    tested = [path / name for name in _TEST_FOLDERS if (path / name).is_dir()]
    if (path / "train").is_dir() and tested:
        x, y = _read_folder(path / "train", size)
        test_x, test_y = _read_folder(tested[0], size)
        x, test_x = same_scale(list(_same_channels(x, test_x)))
    else:
        x, y = _read_folder(path, size)
        train, test = _stratified(y, seed, path)
        x, y, test_x, test_y = x[train], y[train], x[test], y[test]
    if x.shape[1:] != test_x.shape[1:]:
        raise DataError(f"{str(path)!r}: training and test images differ in size; give a size")
    classes, (labels, test_labels) = _numbered([y, test_y], None, path)
    return Images(
        path.name, torch.from_numpy(x), labels, torch.from_numpy(test_x), test_labels, classes
    )


def _arrays(path: Path) -> dict[str, Array]:
    """What an ``.npz`` holds."""
    try:
        # Opened here, since numpy leaves the file open when it is no zip.
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if isinstance(archive, np.ndarray):
                raise DataError("it is one array (.npy); expected several by name (np.savez)")
            with archive:
                arrays = {key: archive[key] for key in archive.files}
    except Exception as error:  # of the system, zipfile, zlib or numpy: there are too many to name
        raise DataError(f"{str(path)!r} cannot be read as an .npz: {error}") from error
    for key, value in arrays.items():
        if not isinstance(value, np.ndarray):
            raise DataError(f"{str(path)!r}: {key} is no array")
    return arrays


def _split_whole(
    path: Path, arrays: Mapping[str, Array], seed: int
) -> tuple[Array, Array, Array, Array]:
    for x, y in _WHOLE_NAMES:
        if x in arrays and y in arrays:
            if arrays[y].ndim != 1 or arrays[x].shape[:1] != arrays[y].shape:
                raise DataError(
                    f"{str(path)!r}: {x} of shape {arrays[x].shape} does not go with {y} of "
                    f"shape {arrays[y].shape}"
                )
            train, test = _stratified(arrays[y], seed, path)
            return arrays[x][train], arrays[y][train], arrays[x][test], arrays[y][test]
    expected = " or ".join(", ".join(names) for names in (*_SPLIT_NAMES, *_WHOLE_NAMES))
    raise DataError(f"{str(path)!r} holds {', '.join(arrays) or 'nothing'}; expected {expected}")


def _stratified(
    labels: Array, seed: int, path: Path
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices to train and to test on: of every class a fifth, and at least one image, to test.

    A class with one image is trained on.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, start, count = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(start, count)
    if not (count > 1).any():
        raise DataError(
            f"{str(path)!r} has {len(labels)} images of {len(count)} classes; expected two or more "
            f"of some class, to test on one. Add images, or give training and test images apart"
        )
    wanted = np.maximum(1, np.round(_TEST_FRACTION * count)).astype(int)
    test = rank < np.repeat(np.where(count > 1, wanted, 0), count)
    return np.sort(order[~test]), np.sort(order[test])


def _as_images(train: Array, test: Array, path: Path) -> tuple[Tensor, Tensor]:
    """(n, channels, h, w), both 8-bit or both float32: one scale for training and test images."""
    for x in (train, test):
        if x.dtype.kind not in "buif":
            raise DataError(f"{str(path)!r}: images of type {x.dtype}; expected real numbers")
    whole = [x.dtype.kind in "bui" for x in (train, test)]
    if whole[0] != whole[1]:
        raise DataError(
            f"{str(path)!r}: training images are {train.dtype}, test images {test.dtype}; expected "
            f"integers in both or floats in both, since 8-bit integers are divided by 255"
        )
    spans = [(x.min(), x.max()) for x in (train, test) if x.size]
    eight_bit = whole[0] and all(low >= 0 and high <= 255 for low, high in spans)
    first, second = (
        _tensor(_channels_first(x, path), np.uint8 if eight_bit else np.float32, path)
        for x in (train, test)
    )
    return first, second


def _channels_first(x: Array, path: Path) -> Array:
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] < min(x.shape[1], x.shape[2]):
        x = np.moveaxis(x, 3, 1)
    elif x.ndim != 4 or x.shape[1] >= min(x.shape[2], x.shape[3]):
        raise DataError(
            f"{str(path)!r}: images of shape {x.shape}; expected (n, h, w), (n, h, w, channels) or "
            f"(n, channels, h, w) with fewer channels than pixels along a side"
        )
    return x


def _tensor(x: Array, dtype: npt.DTypeLike, path: Path) -> Tensor:
    values = torch.from_numpy(np.ascontiguousarray(x, dtype=dtype))
    if not bool(torch.isfinite(values).all()):
        raise DataError(f"{str(path)!r}: some pixels are not finite numbers")
    return values


def _numbered(
    labels: list[Array], given: Array | None, path: Path
) -> tuple[tuple[str, ...], list[Tensor]]:
    """Class names, and labels as indices into them."""
    for y in labels:
        if y.ndim != 1 or y.dtype.kind not in "iubU":
            raise DataError(
                f"{str(path)!r}: labels of shape {y.shape} and type {y.dtype}; expected one "
                f"integer or string for each image"
            )
    values, inverse = np.unique(np.concatenate(labels), return_inverse=True)
    if given is not None:
        if given.ndim != 1:
            raise DataError(
                f"{str(path)!r}: classes of shape {given.shape}; expected a list of their names"
            )
        indices = not len(values) or (
            values.dtype.kind != "U" and values[0] >= 0 and values[-1] < len(given)
        )
        if not indices:
            raise DataError(f"{str(path)!r}: labels are not indices of its {len(given)} classes")
        values, inverse = given, np.concatenate(labels)
    numbers = torch.from_numpy(np.asarray(inverse).reshape(-1).astype(np.int64))
    first = len(labels[0])
    return tuple(str(value) for value in values), [numbers[:first], numbers[first:]]


def _read_folder(path: Path, size: int | None) -> tuple[Array, Array]:
    files = [
        (file, folder.name)
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
    ]
    if not files:
        others = ", ".join(f"{name}/" for name in _TEST_FOLDERS[1:])
        raise DataError(
            f"no images in the subfolders of {str(path)!r}; expected CLASS/*.png (or .jpg, …) for "
            f"each class, or train/CLASS/*.png beside test/CLASS/*.png (or {others})"
        )
    images = same_scale([read_picture(file, size) for file, _ in files])
    sizes = {image.shape[:2] for image in images}
    if len(sizes) > 1:
        raise DataError(f"the images in {str(path)!r} are of {len(sizes)} sizes; give one size")
    colour = any(image.ndim == 3 for image in images)
    planes = [np.atleast_3d(image) for image in images]
    stacked = np.stack(
        [np.broadcast_to(p, (*p.shape[:2], 3)) for p in planes] if colour else planes
    )
    return np.ascontiguousarray(np.moveaxis(stacked, 3, 1)), np.array([name for _, name in files])


def _same_channels(a: Array, b: Array) -> tuple[Array, Array]:
    most = max(a.shape[1], b.shape[1])
    first, second = (
        x if x.shape[1] == most else np.ascontiguousarray(np.repeat(x, most, axis=1))
        for x in (a, b)
    )
    return first, second
