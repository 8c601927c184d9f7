"""A user's own images: an ``.npz`` file, or a folder with one subfolder per class."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ._axes import Axes, channels_first
from ._bounds import LARGEST_NUMBER, LARGEST_PICTURE, check_archive
from ._coding import Coding, check_class_names, checked, guessed, sample_weights
from ._errors import DataError
from ._images import Images
from ._sizes import check_resized

if TYPE_CHECKING:
    import PIL.Image

Array = npt.NDArray[Any]

_SPLIT_NAMES = (
    ("train_x", "train_y", "test_x", "test_y"),
    ("x_train", "y_train", "x_test", "y_test"),
    ("train_images", "train_labels", "test_images", "test_labels"),
)
_WHOLE_NAMES = (("x", "y"), ("images", "labels"), ("data", "labels"))
_TEST_FOLDERS = ("test", "val", "valid", "validation")
_TEST_FRACTION = 0.2
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
_GREY = {"1", "L", "LA"}
_16_BIT = {"I;16", "I;16L", "I;16B", "I;16N"}
_16_BIT_AS_32 = {"PNG", "PPM"}  # whose 16-bit values Pillow may hold as 32-bit integers


def from_npz(path: Path, seed: int = 0, axes: Axes = None, task: str | None = None) -> Images:
    """Images, sequences, voxels or points, and their targets, from an ``.npz`` file.

    The file has either ``train_x, train_y, test_x, test_y`` (or Keras' ``x_train, …``) or ``x, y``
    (or ``images, labels``), of which a random fifth of every class becomes the test set. Images are
    (n, h, w), (n, h, w, channels) or (n, channels, h, w), the shorter axis being the channels.
    Sequences are (n, length) or (n, channels, length), voxels (n, d, h, w) or (n, channels, d, h,
    w), points (n, points) or (n, points, features). Integers from 0 to 255 of any type are 8-bit
    values; all other numbers are kept. Labels are (n,), integers or strings. ``classes`` may name
    the classes 0, 1, …. Real targets (n,) or (n, outputs) make a regression, a 0/1 matrix several
    labels for each sample. ``weights`` (or ``train_weights``) has a weight for each sample,
    ``class_weights`` one for each class.

    Parameters
    ----------
    path : the file
    seed : random seed for the choice of the test set
    axes : what the samples are, see `axes_of`; by default (n, features) are points, three or four
        axes images, and five voxels with channels
    task : "classes", "regression" or "multilabel"; by default as the targets are

    Raises
    ------
    DataError
        If the file cannot be read or its arrays do not fit this description.
    """
    arrays = _arrays(path)
    if isinstance(axes, tuple) and len(axes) > 1:
        axes = len(axes)  # images may still be resized to the lattice of the groups
    with _about(path):
        given = arrays.pop("classes", None)
        of_samples = _first(arrays, "weights", "sample_weight", "train_weights")
        of_classes = _first(arrays, "class_weights", "class_weight")
        train_x, train_y, test_x, test_y, chosen = _split(arrays, seed, axes, task)
        kind = task or guessed(np.concatenate([train_y, test_y]))[0]
        coding: Coding | None = None
        if kind == "classes" and train_y.ndim == 1 and train_y.dtype.kind in "iubU":
            classes, labels, test_labels = _numbered(train_y, test_y, given)
        else:
            coding = Coding.of(train_y, kind)
            labels, test_labels = coding.encode(train_y), coding.encode(test_y)
            classes = tuple(map(str, coding.names))
            coding = None if kind == "classes" else coding
        train, test = _as_images(train_x, test_x, axes)
        if train.shape[1:] != test.shape[1:]:
            raise DataError(
                f"training samples are {tuple(train.shape[1:])}, test samples "
                f"{tuple(test.shape[1:])}"
            )
        for images, targets in ((train, labels), (test, test_labels)):
            if len(images) != len(targets) or not len(targets):
                raise DataError(f"{len(images)} samples for {len(targets)} targets")
        if of_samples is not None and chosen is not None:
            if of_samples.shape != (len(train_y) + len(test_y),):
                raise DataError(
                    f"weights of shape {of_samples.shape} for {len(train_y) + len(test_y)} samples"
                )
            of_samples = of_samples[chosen]
        known = coding or Coding("classes", tuple(range(len(classes))))
        plain = labels.numpy() if coding is None else train_y
        weights = sample_weights(plain, of_samples, of_classes, known)
    return Images(
        path.stem, train, labels, test, test_labels, classes, coding=coding, weights=weights
    )


def _first(arrays: dict[str, Array], *names: str) -> Array | None:
    """The first of the arrays with one of these names, which is taken out."""
    return next((arrays.pop(name) for name in names if name in arrays), None)


def from_folder(path: Path, size: int | None = None, seed: int = 0) -> Images:
    """Images from ``train/CLASS/…`` and ``test/CLASS/…``, or from ``CLASS/…``.

    Without ``test``, ``val``, ``valid`` or ``validation`` takes its place; without any, a random
    fifth of every class becomes the test set. Each image is cropped to its central square. Grey
    images stay grey if all are.

    Parameters
    ----------
    path : the folder
    size : the side to which images are resized; ``None`` requires images of one size
    seed : random seed for the choice of the test set

    Raises
    ------
    DataError
        If there are no images, or an image cannot be read or is of another size.
    """
    tested = [path / name for name in _TEST_FOLDERS if (path / name).is_dir()]
    if (path / "train").is_dir() and tested:
        x, y = _read_folder(path / "train", size)
        test_x, test_y = _read_folder(tested[0], size)
        x, test_x = _same_scale([x, test_x])
        if x.shape[1] != test_x.shape[1]:  # grey images beside coloured ones
            x, test_x = (a if a.shape[1] == 3 else np.repeat(a, 3, axis=1) for a in (x, test_x))
    else:
        x, y = _read_folder(path, size)
        with _about(path):
            train, test = _stratified(y, seed)
        x, y, test_x, test_y = x[train], y[train], x[test], y[test]
    if x.shape[1:] != test_x.shape[1:]:
        raise DataError(f"{str(path)!r}: training and test images differ in size; give a size")
    with _about(path):
        classes, labels, test_labels = _numbered(y, test_y, None)
    images, test_images = torch.from_numpy(x), torch.from_numpy(test_x)
    return Images(path.name, images, labels, test_images, test_labels, classes)


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """Errors inside are about this file."""
    try:
        yield
    except DataError as error:
        raise DataError(f"{str(path)!r}: {error}") from error


def _arrays(path: Path) -> dict[str, Array]:
    try:
        # Opened here, since numpy leaves the file open if it is not a zip.
        with path.open("rb") as file:
            check_archive(file)
            with np.load(file, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
        for key, value in arrays.items():
            if not isinstance(value, np.ndarray):
                raise DataError(f"{key} is not an array")
    except Exception as error:  # from the system, zipfile, zlib or numpy: too many to list
        words = " ".join(str(error).split())  # numpy's may have several lines
        raise DataError(f"{str(path)!r} cannot be read as an .npz: {words}") from error
    return arrays


def _split(
    arrays: dict[str, Array], seed: int, axes: Axes, task: str | None
) -> tuple[Array, Array, Array, Array, npt.NDArray[np.intp] | None]:
    """Samples and targets to train on and to test on, by the first names that fit.

    The last is which samples of the whole are trained on, where it had to be split.
    """
    for a, b, c, d in _SPLIT_NAMES:
        if {a, b, c, d} <= arrays.keys():
            train_y, test_y = (checked(arrays[y]) for y in (b, d))
            return arrays[a], train_y, arrays[c], test_y, None
    for x, y in _WHOLE_NAMES:
        if not {x, y} <= arrays.keys():
            continue
        images, labels = arrays[x], arrays[y]
        if images.shape[:1] != labels.shape[:1] or labels.ndim not in (1, 2):
            raise DataError(
                f"{x} of shape {images.shape} does not go with {y} of shape {labels.shape}"
            )
        labels = checked(labels)
        channels_first(images, axes, x)  # refused as the file has it, not as it is split
        train, test = split(labels, seed, task)
        return images[train], labels[train], images[test], labels[test], train
    expected = " or ".join(", ".join(names) for names in (*_SPLIT_NAMES, *_WHOLE_NAMES))
    raise DataError(f"it holds {', '.join(arrays) or 'nothing'}; expected {expected}")


def split(
    targets: Array, seed: int, task: str | None = None
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices to train on and to test on: a random fifth is tested on, of every class if any."""
    if task is not None:
        Coding.of(targets, task)  # refuses targets of another kind
    if (task or guessed(targets)[0]) == "classes":
        return _stratified(targets if targets.ndim == 1 else targets.argmax(1), seed)
    order = np.random.default_rng(seed).permutation(len(targets))
    count = max(round(_TEST_FRACTION * len(targets)), 1)
    if count >= len(targets):
        raise DataError(f"{len(targets)} samples; expected two or more, to test on one")
    return np.sort(order[count:]), np.sort(order[:count])


def _stratified(labels: Array, seed: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices to train on and to test on: a fifth of every class, at least one image, is tested on.

    A class with one image is trained on.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    _, start, count = np.unique(labels[order], return_index=True, return_counts=True)
    rank = np.arange(len(labels)) - np.repeat(start, count)
    if not (count > 1).any():
        raise DataError(
            f"{len(labels)} images of {len(count)} classes; expected two or more of some class, to "
            f"test on one. Add images, or give training and test images separately"
        )
    wanted = np.maximum(1, np.round(_TEST_FRACTION * count)).astype(int)
    test = rank < np.repeat(np.where(count > 1, wanted, 0), count)
    return np.sort(order[~test]), np.sort(order[test])


def _as_images(train: Array, test: Array, axes: Axes) -> tuple[Tensor, Tensor]:
    """(n, channels, *lattice), both 8-bit or both floats: one scale for both.

    float64 is kept: it is rounded once it is standardised.
    """
    for x in (train, test):
        if x.dtype.kind not in "buif":
            raise DataError(f"samples of type {x.dtype}; expected real numbers")
    if (train.dtype.kind == "f") != (test.dtype.kind == "f"):
        raise DataError(
            f"training samples are {train.dtype}, test samples {test.dtype}; expected integers in "
            f"both or floats in both, since 8-bit integers are divided by 255"
        )
    eight_bit = train.dtype.kind != "f" and all(
        x.min() >= 0 and x.max() <= 255 for x in (train, test) if x.size
    )
    wide = any(x.dtype.itemsize > 4 for x in (train, test))
    dtype = np.uint8 if eight_bit else np.float64 if wide else np.float32
    first, second = (
        torch.from_numpy(np.ascontiguousarray(channels_first(x, axes), dtype))
        for x in (train, test)
    )
    if any(not bool((x.abs() < LARGEST_NUMBER).all()) for x in (first, second)):
        raise DataError(f"some values are not finite numbers below {LARGEST_NUMBER:.0e}")
    largest = max(float(x.abs().max()) for x in (first, second) if x.numel())
    if 0 < largest <= 1 / LARGEST_NUMBER:
        raise DataError(f"the largest value is {largest:.0e}: choose other units")
    return first, second


def _numbered(
    train: Array, test: Array, given: Array | None
) -> tuple[tuple[str, ...], Tensor, Tensor]:
    """Class names, and the labels as indices into them."""
    for y in (train, test):
        if y.ndim != 1 or y.dtype.kind not in "iubU":
            raise DataError(
                f"labels of shape {y.shape} and type {y.dtype}; expected one integer or string for "
                f"each image"
            )
    labels = np.concatenate([train, test])
    values, numbers = np.unique(labels, return_inverse=True)
    if len(values) < 2:
        raise DataError(f"all data have one class, {str(values[0])!r}: there is nothing to learn")
    if given is not None:
        if given.ndim != 1:
            raise DataError(f"classes of shape {given.shape}; expected a list of their names")
        if values.dtype.kind == "U" or ((labels < 0) | (labels >= len(given))).any():
            raise DataError(f"labels are not indices of its {len(given)} classes")
        values, numbers = given, labels
    indices = torch.from_numpy(numbers.astype(np.int64))
    names = tuple(str(value) for value in values)
    check_class_names(names)
    unknown = np.setdiff1d(numbers[len(train) :], numbers[: len(train)])
    if len(unknown):
        raise DataError(
            f"class {names[unknown[0]]!r} has images to test on, but none to train on. Add some, "
            f"or leave the class out"
        )
    return names, indices[: len(train)], indices[len(train) :]


def _read_folder(path: Path, size: int | None) -> tuple[Array, Array]:
    """The images (n, channels, h, w) in the subfolders, and the names of their subfolders."""
    files = [
        (file, folder.name)
        for folder in sorted(path.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in _SUFFIXES and not file.name.startswith(".")
    ]
    if not files:
        others = ", ".join(f"{name}/" for name in _TEST_FOLDERS[1:])
        raise DataError(
            f"no images in the subfolders of {str(path)!r}; expected CLASS/*.png (or .jpg, …) for "
            f"each class, or train/CLASS/*.png beside test/CLASS/*.png (or {others})"
        )
    for file, _ in files:
        if not file.is_file():
            raise DataError(f"{str(file)!r} is not a file, or a link to none")
    if size is not None:
        check_resized(len(files), size, bytes_each=1)
    images = _same_scale([np.atleast_3d(read_picture(file, size)) for file, _ in files])
    sizes = {image.shape[:2] for image in images}
    if len(sizes) > 1:
        raise DataError(f"the images in {str(path)!r} are of {len(sizes)} sizes; give one size")
    channels = max(image.shape[2] for image in images)
    stacked = np.stack([np.broadcast_to(image, (*image.shape[:2], channels)) for image in images])
    return np.ascontiguousarray(np.moveaxis(stacked, 3, 1)), np.array([name for _, name in files])


def _same_scale(pictures: list[Array]) -> list[Array]:
    """All ``uint8``, or, if one is not, all ``float32`` from 0 to 1."""
    if all(picture.dtype == np.uint8 for picture in pictures):
        return pictures
    return [p.astype(np.float32) / 255 if p.dtype == np.uint8 else p for p in pictures]


def read_picture(file: Path, size: int | None) -> Array:
    """The central square of a picture, upright by its EXIF data: grey (h, w) or colour (h, w, 3).

    8-bit values are ``uint8``, 16-bit values ``float32`` from 0 to 1.
    """
    import PIL.Image
    import PIL.ImageOps

    damaged = (OSError, ValueError, SyntaxError, EOFError, struct.error)
    try:
        with _without_warnings(), PIL.Image.open(file) as image:
            if image.width * image.height > LARGEST_PICTURE:
                raise DataError(
                    f"{str(file)!r} has {image.width}×{image.height} pixels; expected at most "
                    f"{LARGEST_PICTURE:,}. Make it smaller"
                )
            kind = image.format
            upright = PIL.ImageOps.exif_transpose(image)
    except (*damaged, PIL.Image.DecompressionBombError) as error:
        raise DataError(f"{str(file)!r} is not a readable image: {error}") from error
    picture = _plain(upright, kind, file)
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    picture = picture.crop((left, top, left + side, top + side))
    if size is not None and size != side:
        picture = picture.resize((size, size), PIL.Image.Resampling.BILINEAR)
    return np.asarray(picture)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of large pictures, which are refused here."""
    import PIL.Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
        yield


def _plain(image: PIL.Image.Image, kind: str | None, file: Path) -> PIL.Image.Image:
    """The image in mode "L", "RGB" or, scaled to [0, 1], "F"."""
    import PIL.Image

    mode = image.mode
    if mode in _16_BIT or (mode == "I" and kind in _16_BIT_AS_32):
        return PIL.Image.fromarray(np.asarray(image).astype(np.float32) / 65535)
    if mode in {"I", "F"}:
        raise DataError(
            f"{str(file)!r} has pixels of mode {mode} (32-bit numbers), whose black and white are "
            f"unknown; expected 8 or 16 bits. Put such images into an .npz"
        )
    return image.convert("L" if mode in _GREY else "RGB")
