"""Load a data set by name, ready to train a network on."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from groupella.groups import Symmetry, c4, mirror, trivial, z2

from ._augment import Augmentation
from ._axes import Axes
from ._catalogue import DATASETS
from ._errors import DataError
from ._images import ImageData, Images, moments, shown_range
from ._moved import Moved
from ._own import from_folder, from_npz
from ._public import PathLike, digits, public
from ._sizes import FEWEST, Fit, Size, check_resized, chosen_size
from ._tables import from_csv
from ._transforms import Resized, Rotated, Transform, Translated

BASES = ("digits", *DATASETS)
FILES = (".npz", ".csv")
# The published ranges are for 28×28. Smaller images, such as the 8×8 digits, are translated and
# rotated on a black square of twice their side, since little of them would be left otherwise.
_SMALL = 28
TRANSFORMS: dict[str, Callable[[int], Transform]] = {  # by name, for images of that side
    "quadrants": lambda side: Moved(z2(), place="quadrant"),
    "quadrants+label": lambda side: Moved(z2(), obeys=trivial(), place="quadrant"),
    "translated": lambda side: Translated(side // 2, 2 * side) if side < _SMALL else Translated(),
    "rotated": lambda side: Rotated(2 * side if side < _SMALL else None),
    "rot90": lambda side: Moved(c4()),
    "rot90+label": lambda side: Moved(c4(), obeys=trivial()),
    "mirrored": lambda side: Moved(mirror(axis=1)),
    "mirrored+label": lambda side: Moved(mirror(axis=1), obeys=trivial()),
}


def load(
    data: PathLike | Images,
    transform: Transform | str | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    keep: Sequence[str] | None = None,
    train_size: int | None = None,
    test_size: int | None = None,
    data_dir: PathLike | None = None,
    download: bool = True,
    progress: bool = True,
    axes: Axes = None,
    task: str | None = None,
    fit: Fit | None = None,
    most: int | None = None,
    square: bool = False,
) -> ImageData:
    """Return a data set, transformed, resized and normalised; equal arguments give equal data.

    Nothing is downloaded that is found in the data directory or in the cache.

    Parameters
    ----------
    data : "digits", "mnist", "cifar10", "cifar100", the path of an ``.npz`` file, of a folder of
        images or of a ``.csv`` file of vectors, each optionally with a transformation after a colon
        ("mnist:rotated"); or `Images`
    transform : a transformation, or its name
    size : side of the returned images (default: 32 for MNIST, as in the paper; for others the size
        that the transformation gives)
    seed : random seed for motions and for choices of images
    keep : names of the classes to keep
    train_size, test_size : numbers of images to choose at random (default: all)
    data_dir : data directory (default: ``GROUPELLA_DATA``)
    download : whether to download a public data set that is not on this machine
    progress : whether to show the progress of downloads
    axes : what the samples of an ``.npz`` file are: 1 for sequences, 2 for images, 3 for voxels,
        (8,) for 8 points; see `axes_of`
    task : "classes", "regression" or "multilabel"; by default as the targets are
    fit : with `size`, how oblong images become square: "crop", "pad" with black or "stretch"
        (the default); pixels are then means of what they cover
    most : without `size`, images are averaged to about so many pixels if they are larger than
        64×64; see `most_sites` and `chosen_size`
    square : with `most`, whether images must become square, as `fit` says ("crop" by default)

    Raises
    ------
    DataError
        If the data cannot be found or read.
    """
    whole = None if fit is not None else size
    images, named = _open(data, whole, seed, data_dir, download, progress, axes, task)
    if named is not None and transform is not None:
        raise ValueError(f"{data!r} names a transformation, and {transform!r} was given as well")
    transform = named if transform is None else transform
    if isinstance(transform, str) and transform not in TRANSFORMS:
        raise ValueError(f"no transformation {transform!r}; known are {', '.join(TRANSFORMS)}")
    if isinstance(transform, str):
        motion, suffix = TRANSFORMS[transform](max(images.train_x.shape[-2:])), transform
    else:
        motion = transform or Resized()
        suffix = motion.name
    _check_options(images, transform, size, keep, task)
    images = images if keep is None else _kept(images, keep)
    size = images.paper_size if size is None else size
    if size is not None:
        given = ((images.train_x, train_size), (images.test_x, test_size))
        numbers = sum(x.shape[1] * min(len(x), part or len(x)) for x, part in given)
        check_resized(numbers, size)
    scale = 255.0 if images.train_x.dtype == torch.uint8 else 1.0
    smaller = _smaller(images, size, fit, most, square, moved=transform is not None)
    if smaller is not None:
        train, test = smaller(images.train_x), smaller(images.test_x)
        images, size = replace(images, train_x=train, test_x=test), None

    rng, test_rng = (np.random.default_rng([seed, split]) for split in (0, 1))
    chosen = _part(images.train_y, train_size, "train", rng)
    weights = None if images.weights is None else images.weights[chosen]
    train_x, train_y = motion(images.train_x[chosen], images.train_y[chosen], size, rng)
    chosen = _part(images.test_y, test_size, "test", test_rng)
    test_x, test_y = motion(images.test_x[chosen], images.test_y[chosen], size, test_rng)

    meaning = motion.task(images.classes, (int(train_x.shape[-2]), int(train_x.shape[-1])))
    mean, std = moments(train_x)
    shown = shown_range(train_x)
    augmentation = None
    if images.augment and meaning.classes == images.classes:  # else motions would falsify labels
        black = tuple(-m / s for m, s in zip(mean, std, strict=True))
        augmentation = Augmentation(shift=4, flip=True, fill=black)
    return ImageData(
        train_x=_standardised(train_x, images.train_x, mean, std),
        train_y=train_y,
        test_x=_standardised(test_x, images.test_x, mean, std),
        test_y=test_y,
        classes=meaning.classes,
        name=f"{images.name}:{suffix}" if suffix else images.name,
        seed=seed,
        mean=mean,
        std=std,
        augmentation=augmentation,
        obeys=meaning.obeys,
        remarks=(*meaning.remarks, *([] if smaller is None else [str(smaller)])),
        shown=shown,
        coding=images.coding,
        weights=weights,
        scale=scale,
        size=smaller if transform is None else None,
    )


def labelled(
    group: Symmetry,
    obeys: Symmetry | None = None,
    data: PathLike | Images = "digits",
    *,
    everywhere: bool = False,
    **options: Any,
) -> ImageData:
    """Return images moved by random elements of `group`, with labels that obey exactly `obeys`.

    ``labelled(p4())`` and ``labelled(p4(), obeys=trivial())`` differ only in their labels, which
    tell the cosets of `obeys` in `group` apart (see `Moved`). Images take a quadrant of the lattice
    if the group has translations, else its middle.

    Parameters
    ----------
    group : the group that moves the images
    obeys : a subgroup; ``None`` is the group itself, which leaves the labels as they are
    data : as in `load`
    everywhere : whether images also move by all translations of `obeys`
    options : further arguments of `load`
    """
    place: Literal["quadrant", "centre"] = "quadrant" if group.translations else "centre"
    return load(data, Moved(group, obeys, place, everywhere), **options)


def _open(
    data: PathLike | Images,
    size: int | None,
    seed: int,
    data_dir: PathLike | None,
    download: bool,
    progress: bool,
    axes: Axes,
    task: str | None,
) -> tuple[Images, str | None]:
    """The images, and the transformation at the end of the name."""
    if isinstance(data, Images):
        return data, None
    name, transform = os.fspath(data), None
    if ":" in name and name.rpartition(":")[2] in TRANSFORMS:
        name, _, transform = name.rpartition(":")
    if name == "digits":
        return digits(), transform
    if name in DATASETS:
        return public(name, data_dir, download, progress), transform
    check_name(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return from_folder(path, size, seed), transform
    if path.suffix == ".csv":
        return from_csv(path, seed, task), transform
    return from_npz(path, seed, axes, task), transform


def check_name(name: str) -> None:
    """Raise unless ``name`` is a data set, an .npz file or a folder; nothing is read."""
    path = Path(name).expanduser()
    if name in BASES or path.is_dir() or (path.is_file() and path.suffix in FILES):
        return
    if path.is_file():
        raise DataError(f"{name!r}: expected an .npz file, a .csv file or a folder of images")
    if path.suffix in FILES:
        raise DataError(f"no data set {name!r}: there is no such file")
    known = [*BASES, *(f"{base}:{transform}" for base in BASES for transform in TRANSFORMS)]
    near = get_close_matches(name, known, n=1)
    raise DataError(
        f"no data set {name!r}: neither one of {', '.join(BASES)} (with :{', :'.join(TRANSFORMS)} "
        f"if wanted) nor an .npz or .csv file nor a folder of images"
        + (f". Did you mean {near[0]!r}?" if near else "")
    )


def _check_options(
    images: Images,
    transform: Transform | str | None,
    size: int | None,
    keep: Sequence[str] | None,
    task: str | None,
) -> None:
    """Refuse options that are for images, or for classes, where there are none."""
    if images.train_x.ndim != 4 and (transform is not None or size is not None):
        shape = tuple(images.train_x.shape[1:])
        raise DataError(
            f"{images.name}: samples of {shape} are no images; they can be neither "
            "moved nor resized"
        )
    kind = "classes" if images.coding is None else images.coding.kind
    if kind != "classes" and (keep is not None or transform is not None):
        raise DataError(
            f"{images.name}: its targets are no classes ({kind}); images can be moved, "
            "and classes kept, only where there are some"
        )
    if task is not None and task != kind:
        raise DataError(f"{images.name} has {kind}, not {task}")


def _smaller(
    images: Images,
    size: int | None,
    fit: Fit | None,
    most: int | None,
    square: bool,
    moved: bool,
) -> Size | None:
    """How the images are to be averaged; None if they are not. Motions may double their sides."""
    lattice = tuple(int(n) for n in images.train_x.shape[2:])
    if len(lattice) != 2:
        return None
    height, width = lattice
    if size is not None:
        return None if fit is None else Size.fitting((height, width), (size, size), fit)
    if most is None:
        return None
    return chosen_size(lattice, max(most // 4, FEWEST) if moved else most, square, fit)


def _kept(images: Images, keep: Sequence[str]) -> Images:
    """Only the images of those classes, which are numbered in that order."""
    unknown = [name for name in keep if name not in images.classes]
    if unknown or len(set(keep)) != len(keep) or not keep:
        raise ValueError(
            f"keep={list(keep)!r} must name different classes of {', '.join(images.classes)}"
        )
    numbers = torch.full((len(images.classes),), -1)
    numbers[[images.classes.index(name) for name in keep]] = torch.arange(len(keep))
    y, test_y = numbers[images.train_y], numbers[images.test_y]
    return replace(
        images,
        classes=tuple(keep),
        train_x=images.train_x[y >= 0],
        train_y=y[y >= 0],
        test_x=images.test_x[test_y >= 0],
        test_y=test_y[test_y >= 0],
    )


def _part(y: Tensor, size: int | None, split: str, rng: np.random.Generator) -> Tensor | slice:
    """Indices of the images to take: a random part, in the old order, nested for growing sizes."""
    if size is None:
        return slice(None)
    if not 1 <= size <= len(y):
        raise ValueError(f"{split}_size={size}, but there are {len(y)} images to choose from")
    return torch.from_numpy(np.sort(rng.permutation(len(y))[:size]))


def _standardised(
    x: Tensor, original: Tensor, mean: tuple[float, ...], std: tuple[float, ...]
) -> Tensor:
    """(x − mean) / std per channel, in place unless x is a view of the original images."""
    if x.untyped_storage().data_ptr() == original.untyped_storage().data_ptr():
        x = x.clone()
    ones = [1] * (x.ndim - 2)
    x = x.sub_(x.new_tensor(mean).view(-1, *ones)).div_(x.new_tensor(std).view(-1, *ones))
    return x.float()
