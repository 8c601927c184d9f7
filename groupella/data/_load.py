"""From a name to images that a network can be trained on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from groupella.groups import Symmetry, c4, mirror, trivial, z2

from ._augment import Augmentation
from ._catalogue import FILE_SETS
from ._errors import DataError
from ._fetch import PathLike
from ._images import ImageData, Images, moments, shown_range, standardise_
from ._moved import Moved
from ._own import from_folder, from_npz
from ._sources import digits, public
from ._transforms import Resized, Rotated, Transform, Translated

BASES = ("digits", *FILE_SETS)
TRANSFORMS = {
    "quadrants": "in a random quadrant of a black square; the label stays",
    "quadrants+label": "in a random quadrant; the label says which",
    "translated": "moved by whole pixels, uniform in [−8, 8] along each axis",
    "rotated": "turned by an angle uniform on the circle",
    "rot90": "turned by a random multiple of 90 degrees",
    "rot90+label": "turned by a random multiple of 90 degrees; the label says which",
    "mirrored": "mirrored left–right, or not",
    "mirrored+label": "mirrored left–right, or not; the label says which",
}

_SPLITS = {"train": 0, "test": 1}


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
) -> ImageData:
    """A data set, transformed, resized and normalised; the same for the same arguments.

    ``data``: ``"digits"``, ``"mnist"``, ``"cifar10"``, ``"cifar100"``, an ``.npz`` file or a folder
    of images, with a transformation after a colon if wanted (``"mnist:rotated"``), or ``Images``.
    ``size`` is the side of the images that come out; by default 32 for MNIST (as in the paper), for
    the others what the transformation makes of their own. ``keep`` names the classes to keep;
    ``train_size`` and ``test_size`` take a random part. Nothing is downloaded that is found in
    ``data_dir`` (or ``GROUPELLA_DATA``) or in the cache.
    """
    images, named = _open(data, size, seed, data_dir, download, progress)
    if named is not None and transform is not None:
        raise ValueError(f"{data!r} names a transformation, and {transform!r} was given as well")
    transform = named if transform is None else transform
    motion = named_transform(transform, images) if isinstance(transform, str) else transform
    motion = motion or Resized()
    suffix = transform if isinstance(transform, str) else motion.name
    images = _kept(images, keep)
    if size is None:
        size = images.paper_size

    splits = []
    for name, number in _SPLITS.items():
        rng = np.random.default_rng([seed, number])
        x, y = getattr(images, f"{name}_x"), getattr(images, f"{name}_y")
        chosen = _part(len(y), train_size if name == "train" else test_size, name, rng)
        splits.append(motion(x[chosen], y[chosen], size, rng))
    (train_x, train_y), (test_x, test_y) = splits

    task = motion.task(images.classes, (int(train_x.shape[-2]), int(train_x.shape[-1])))
    mean, std = moments(train_x)
    shown = shown_range(train_x)
    return ImageData(
        train_x=standardise_(_owned(train_x, images.train_x), mean, std),
        train_y=train_y,
        test_x=standardise_(_owned(test_x, images.test_x), mean, std),
        test_y=test_y,
        classes=task.classes,
        name=f"{images.name}:{suffix}" if suffix else images.name,
        seed=seed,
        mean=mean,
        std=std,
        augmentation=_augmentation(images, task.classes == images.classes, mean, std),
        obeys=task.obeys,
        remarks=task.remarks,
        shown=shown,
    )


def labelled(
    group: Symmetry,
    obeys: Symmetry | None = None,
    data: PathLike | Images = "digits",
    *,
    everywhere: bool = False,
    **options: Any,
) -> ImageData:
    """Images moved by random elements of ``group``, with labels that obey exactly ``obeys``.

    Labels tell the cosets of ``obeys`` in ``group`` apart (see ``Moved``); ``None`` stands for the
    group itself, whose labels are the ordinary ones. The images take a quadrant of the lattice if
    the group has translations, else its middle. ``options`` are those of ``load``.

    ``labelled(p4())`` and ``labelled(p4(), obeys=trivial())`` differ only in their labels.
    """
    place: Literal["quadrant", "centre"] = "quadrant" if group.translations else "centre"
    return load(data, Moved(group, obeys, place, everywhere), **options)


def named_transform(name: str, images: Images) -> Transform:
    """The transformation of that name, fitted to the size of the images.

    Images as small as the 8×8 digits are translated and rotated on a black square of twice their
    size, since nothing of them would be left otherwise; the published ranges are for 28×28.
    """
    side = max(images.train_x.shape[-2:])
    small = side < 4 * Translated().pixels - 4
    canvas = 2 * side if small else None
    made: dict[str, Transform] = {
        "quadrants": Moved(z2(), place="quadrant"),
        "quadrants+label": Moved(z2(), obeys=trivial(), place="quadrant"),
        "translated": Translated(side // 2, canvas) if small else Translated(),
        "rotated": Rotated(canvas),
        "rot90": Moved(c4()),
        "rot90+label": Moved(c4(), obeys=trivial()),
        "mirrored": Moved(mirror(axis=1)),
        "mirrored+label": Moved(mirror(axis=1), obeys=trivial()),
    }
    if name not in made:
        raise ValueError(f"no transformation {name!r}; known are {', '.join(TRANSFORMS)}")
    return made[name]


def _open(
    data: PathLike | Images,
    size: int | None,
    seed: int,
    data_dir: PathLike | None,
    download: bool,
    progress: bool,
) -> tuple[Images, str | None]:
    """The images, and the transformation that the name ends in."""
    if isinstance(data, Images):
        return data, None
    name, transform = os.fspath(data), None
    if ":" in name and name.rpartition(":")[2] in TRANSFORMS:
        name, _, transform = name.rpartition(":")
    if name == "digits":
        return digits(), transform
    if name in FILE_SETS:
        return public(name, data_dir, download, progress), transform
    path = Path(name).expanduser()
    if path.is_dir():
        return from_folder(path, size, seed), transform
    if path.is_file():
        if path.suffix != ".npz":
            raise DataError(f"{name!r}: expected an .npz file or a folder of images")
        return from_npz(path, seed), transform
    raise DataError(
        f"no data set {name!r}: neither one of {', '.join(BASES)} (with :{', :'.join(TRANSFORMS)} "
        f"if wanted) nor an .npz file nor a folder of images"
    )


def _kept(images: Images, keep: Sequence[str] | None) -> Images:
    if keep is None:
        return images
    unknown = [name for name in keep if name not in images.classes]
    if unknown or len(set(keep)) != len(keep) or not keep:
        raise ValueError(
            f"keep={list(keep)!r} must name different classes of {', '.join(images.classes)}"
        )
    numbers = torch.full((len(images.classes),), -1)
    numbers[[images.classes.index(name) for name in keep]] = torch.arange(len(keep))
    arrays = {}
    for split in _SPLITS:
        y = numbers[getattr(images, f"{split}_y")]
        arrays[f"{split}_x"] = getattr(images, f"{split}_x")[y >= 0]
        arrays[f"{split}_y"] = y[y >= 0]
    return replace(images, classes=tuple(keep), **arrays)


def _part(n: int, wanted: int | None, split: str, rng: np.random.Generator) -> Tensor | slice:
    """Which images to take: a random part, in its old order, nested for growing sizes."""
    if wanted is None:
        return slice(None)
    if not 1 <= wanted <= n:
        raise ValueError(f"{split}_size={wanted}, but there are {n} images to choose from")
    return torch.from_numpy(np.sort(rng.permutation(n)[:wanted]))


def _owned(x: Tensor, original: Tensor) -> Tensor:
    """x, or a copy if normalising it in place would write to the images that were read."""
    shared = x.untyped_storage().data_ptr() == original.untyped_storage().data_ptr()
    return x.clone() if shared else x


def _augmentation(
    images: Images, labels_unchanged: bool, mean: tuple[float, ...], std: tuple[float, ...]
) -> Augmentation | None:
    """The paper's, for CIFAR: unless labels depend on motions, which augmentation would falsify."""
    if not images.augment or not labels_unchanged:
        return None
    black = tuple(-m / s for m, s in zip(mean, std, strict=True))
    return Augmentation(shift=4, flip=True, fill=black)
