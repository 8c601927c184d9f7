"""`select`: which of these groups do the targets of these arrays obey?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from groupella.data import (
    Axes,
    Coding,
    DataError,
    Fit,
    ImageData,
    Inputs,
    Size,
    array_of,
    axes_of,
    channels_first,
    chosen_size,
    floats,
    moments,
    most_sites,
    needs_square,
    numbers,
    sample_weights,
    shown_range,
)
from groupella.groups import (
    GroupSet,
    Symmetry,
    named_group,
    needs_points,
    on_values,
    split_names,
    trivial,
    value_space,
)
from groupella.nn.standardise import Standardise
from groupella.training import FindSettings, OnEpoch, check_names, find_symmetry, pair_of

from ._answer import Answer
from ._describe import describe

Array = npt.NDArray[Any]
Groups = GroupSet | Symmetry | str | Iterable[Symmetry | str]
# What is tried where no groups are given, by the number of axes of the lattice.
SUGGESTED = {1: ("permutations",), 2: ("z2", "p4"), 3: ("z3", "octahedral")}
AT_ONCE = 1 << 27  # numbers of x that become floats at a time
OBLONG = {2: ("z2", "p2"), 3: ("z3", "p-1")}  # where sides differ


def select(
    x: Any,
    y: Any = None,
    groups: Groups | None = None,
    *,
    task: str | None = None,
    test: Any = None,
    weights: Any = None,
    class_weights: Any = None,
    blocks: Any = None,
    size: int | tuple[int, int] | None = None,
    fit: Fit | None = None,
    title: str | None = None,
    directory: str | Path | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
    **settings: Any,
) -> Answer:
    """Find out which of the groups the targets obey, and train a network that obeys it.

    Trains a network for every group and one that obeys nothing, and tests each group on held-out
    data: by averaging predictions over it, and by imposing it.

    Parameters
    ----------
    x
        Samples: arrays or tensors (n, *lattice), (n, channels, *lattice) or (n, *lattice,
        channels). The groups say what the lattice is: sequences, images, voxels or points. Or a
        `Dataset` or `DataLoader` of pairs (x, y), without `y`.
    y
        Targets: classes (n,), real numbers (n,) or (n, K), or a matrix (n, K) of 0 and 1.
    groups
        The candidates: a `GroupSet`, symmetries, or names as in ``["z2", "p4"]`` or ``"z2,p4"``.
        "permutations" and "cyclic" take the number of points of x. By default z2 and p4 for images,
        z3 and octahedral for voxels, and permutations for vectors.
    task
        "classes", "regression" or "multilabel"; by default as the targets are.
    test
        Further data (x, y) on which the network is scored after every epoch; they decide nothing.
    weights, class_weights
        A weight for each sample; "balanced", or a weight for each class.
    blocks
        A number or name for each sample: samples with the same one belong together, such as images
        of one patient or augmented copies of one image. They are held out together and count as
        one in the tests. By default only copies of one another, exact or nearly so.
    size
        Height and width to which images are averaged, or the side of a square. By default images
        stay as they are up to 64×64; larger ones become 32×32, or an oblong of as many pixels. The
        answer says so, and takes images of the original size.
    fit
        How oblong images become square, where a group turns them by 90° or `size` says so: "crop"
        to the centre (the default), "pad" with zeros, or "stretch".
    title
        The heading of the report.
    directory
        Where trainings are saved; an interrupted search resumes there.
    progress, say
        Whether to show progress bars; a function such as `print`, which is called with a line about
        the data and one after each training.
    **settings
        Fields of `groupella.training.FindSettings`: epochs, lr, width, held_out, seed, ….

    Returns
    -------
    Answer
        The verdict, the table behind it, and the trained network.

    Raises
    ------
    DataError, ValueError, TypeError
        If data, targets, groups or settings cannot be understood or do not fit each other, before
        any training.

    Examples
    --------
    >>> answer = groupella.select(images, labels, "z2,p4")
    >>> answer.verdict, answer.confidence
    """
    check_names(settings, FindSettings, "select", ["groups", *(select.__kwdefaults__ or ())])
    if say is not None and not callable(say):
        raise TypeError(f"say must be a function that takes a line, such as print, got {say!r}")
    chosen = FindSettings(**settings)
    array, targets = _arrays(x, y)
    together = None if blocks is None else _blocks(blocks, len(targets))
    members = _group_set(groups, array)
    axes: Axes = "points" if _names_points(groups) else axes_of(members or ())
    data = _problem(
        array, targets, axes, task, weights, class_weights, chosen.seed, size, fit, members or ()
    )
    if say is not None:
        say(data.described)
        if data.size is not None:
            say(str(data.size))
    members = members or _group_set(_suggested(data.lattice), array)
    assert members is not None
    if test is not None:
        pair = test if isinstance(test, tuple | list) else (test, None)
        if len(pair) != 2 or not (pair is test or isinstance(test, DataLoader | Dataset)):
            raise TypeError(f"test must be a pair (x, y) or a Dataset, got {_named(test)}")
        test_x, test_y = _arrays(*pair)
        data = replace(data, test_x=data.inputs(test_x), test_y=data.targets.encode(test_y))
    heading = title or f"Which of {', '.join(members.names)} do the targets obey?"
    return find(
        data,
        members,
        chosen,
        title=heading,
        blocks=together,
        directory=directory,
        progress=progress,
        say=say,
    )


def find(
    data: ImageData,
    groups: GroupSet,
    settings: FindSettings | None = None,
    *,
    title: str,
    listed: Mapping[str, Any] | None = None,
    blocks: Tensor | None = None,
    directory: str | Path | None = None,
    progress: bool = False,
    say: Callable[[str], None] | None = None,
    on_epoch: OnEpoch | None = None,
) -> Answer:
    """Do what `select` does, with data that are ready for a network.

    Parameters
    ----------
    data, groups, settings
        What to learn from, the candidates, and how to search.
    title, listed
        The heading of the report, and further settings that it lists.
    blocks
        Which samples belong together; see `groupella.training.find_symmetry`.
    directory, progress, say
        As in `select`.
    on_epoch
        Called with each epoch's record and the evidence.
    """
    chosen = settings or FindSettings()
    check_groups(groups, data.lattice)
    groups = on_values(groups, data.lattice, data.channels)
    data = _commuting(data, groups)
    told = dict(listed or asdict(chosen))
    train = (data.train_x, data.train_y)
    found = find_symmetry(
        train,
        groups,
        data.targets.outputs,
        chosen,
        task=data.targets.kind,
        weights=data.weights,
        blocks=blocks,
        validation=(data.test_x, data.test_y) if len(data.test_y) else None,
        directory=directory,
        progress=progress,
        say=say,
        on_epoch=on_epoch,
    )
    content = describe(
        data,
        groups,
        found.fit,
        found.selection(train),
        title=title,
        settings={**told, **found.fit.settings.as_dict()},
        seed=chosen.seed,
        held_out=(found.held_out.outputs, found.held_out.targets),
    )
    content = replace(
        content, consequences=found.consequences, reliability=found.held_out.reliability
    )
    return Answer(
        content,
        found.network,
        data.inputs,
        data.targets,
        found.fit,
        found.temperature,
        found.predictive,
    )


def _commuting(data: ImageData, groups: GroupSet) -> ImageData:
    """Data standardised in a way that commutes with what the groups do to values."""
    space = value_space(groups, data.lattice, data.channels)
    centre = Standardise(space).centre
    return data if space.fibre_size == 1 and centre else data.in_fields(space.fibre_size, centre)


def check_groups(groups: Iterable[Symmetry], lattice: tuple[int, ...]) -> None:
    """Raise `ValueError` if a group does not act on samples of this lattice."""
    for group in groups:
        try:
            group.check_lattice(lattice)
        except ValueError as error:
            if group.dim not in (None, len(lattice)) and len(lattice) in SUGGESTED:
                raise ValueError(f"{error}; {' and '.join(_suggested(lattice))} do") from error
            if len(set(lattice)) == 1 or not needs_square([group]):
                raise
            raise ValueError(
                f'{error}. fit="crop" (--fit crop) cuts images to their central square; "pad" and '
                '"stretch" are other ways'
            ) from error


def _named(given: Any) -> str:
    return f"a {type(given).__name__}" + (f" of {len(given)}" if isinstance(given, tuple) else "")


def _blocks(values: Any, n: int) -> Tensor:
    """Numbers of blocks, from numbers or names."""
    names = array_of(values, "blocks")
    if names.shape != (n,):
        raise DataError(f"blocks must have one entry for each of {n} samples, got {names.shape}")
    return torch.from_numpy(np.unique(names, return_inverse=True)[1])


def _arrays(x: Any, y: Any) -> tuple[Array, Array]:
    """Samples and targets as arrays, from arrays, tensors, a Dataset or a DataLoader."""
    if isinstance(x, DataLoader | Dataset):
        if y is not None:
            raise TypeError(
                f"x is a {type(x).__name__}, which holds its own targets: leave out y, as in "
                "select(x, groups='z2,p4')"
            )
        x, y = _collected(x)
    elif y is None and isinstance(x, Sequence) and not isinstance(x, str):
        x, y = _collected(x)
    elif y is None:
        raise TypeError(
            f"select(x, y, groups): y is missing, and x is {type(x).__name__}, neither a "
            "Dataset nor a DataLoader"
        )
    samples, targets = numbers(x), array_of(y, "y")
    if targets.ndim == 0:
        raise DataError(f"y is {type(y).__name__}; expected an array with a target for each sample")
    if samples.ndim == 0 or targets.ndim == 0 or len(samples) != len(targets):
        raise DataError(f"x has shape {samples.shape}, y {targets.shape}: first axes must agree")
    return samples, targets


def _collected(data: Any) -> tuple[Array, Array]:
    """All samples and all targets of a Dataset, a list of pairs, or a DataLoader."""
    batches = isinstance(data, DataLoader)
    what = "a batch of the loader" if batches else "an example of the data set"
    each = data if batches or not hasattr(data, "__len__") else (data[i] for i in range(len(data)))
    pairs = [pair_of(one, what) for one in each]
    if not pairs:
        raise DataError(f"the {'loader' if batches else 'data set'} is empty")
    join = np.concatenate if batches else np.stack
    found = []
    for name, parts in zip(("x", "y"), zip(*pairs, strict=True), strict=True):
        arrays = [array_of(part, name) for part in parts]
        shapes = [a.shape[1:] if batches else a.shape for a in arrays]
        other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is not None:
            raise DataError(
                f"{name} has shape {arrays[0].shape} in {what}, and {arrays[other].shape} in "
                "another: resize or crop samples to one shape"
            )
        found.append(join(arrays))
    return found[0], found[1]


def _problem(
    x: Array,
    y: Array,
    axes: Axes,
    task: str | None,
    weights: Any,
    class_weights: Any,
    seed: int,
    size: int | tuple[int, int] | None,
    fit: Fit | None,
    groups: Iterable[Symmetry],
) -> ImageData:
    ordered = channels_first(x, axes)
    coding = Coding.of(y, task)
    smaller = _size(ordered.shape[2:], size, fit, groups)
    if smaller is None:
        values = floats(ordered)
    else:
        parts = np.array_split(ordered, math.ceil(ordered.size / AT_ONCE))
        values = torch.cat([smaller(floats(part)) for part in parts])
    mean, std = moments(values)
    lattice = tuple(int(n) for n in values.shape[2:])
    ready = Inputs(lattice, mean, std).standardised(values)
    encoded = coding.encode(y)
    return ImageData(
        ready,
        encoded,
        ready[:0],
        encoded[:0],
        tuple(map(str, coding.names)),
        "arrays",
        seed,
        mean,
        std,
        remarks=() if smaller is None else (str(smaller),),
        shown=shown_range(values),
        coding=coding,
        weights=sample_weights(y, weights, class_weights, coding),
        size=smaller,
    )


def _size(
    lattice: tuple[int, ...],
    size: int | tuple[int, int] | None,
    fit: Fit | None,
    groups: Iterable[Symmetry],
) -> Size | None:
    """How images are averaged before the search, if at all."""
    if size is None:
        fixed = any(not g.is_catalogue for g in groups)
        return None if fixed else chosen_size(lattice, most_sites(), needs_square(groups), fit)
    if len(lattice) != 2:
        raise DataError(f"size={size!r} is for images, and x has the lattice {lattice}")
    given: Any = size
    sides = (given, given) if np.ndim(given) == 0 else tuple(given)
    if len(sides) != 2 or not all(isinstance(n, int | np.integer) and n >= 1 for n in sides):
        raise DataError(f"size must be a number of pixels, or height and width, got {size!r}")
    height, width = map(int, sides)
    return Size.fitting((lattice[0], lattice[1]), (height, width), fit or "crop")


def _group_set(groups: Groups | None, x: Array) -> GroupSet | None:
    """The candidates and, unless a `GroupSet` was given, the trivial group; None for None."""
    if groups is None or isinstance(groups, GroupSet):
        return groups
    points = int(x.shape[1]) if x.ndim > 1 else None
    if points == 1 and x.ndim > 2 and _names_points(groups):
        raise DataError(
            f"x of shape {x.shape} has one point per sample, and {groups} move several: give x as "
            "(n, points) or (n, points, features)"
        )
    members = [named_group(g, points) if isinstance(g, str) else g for g in _listed(groups)]
    if not members:
        raise ValueError("name at least one group, such as 'z2,p4'")
    symmetries = [m for m in members if not (isinstance(m, Symmetry) and m.is_trivial)]
    return GroupSet(trivial(), *symmetries)


def _listed(groups: Groups) -> list[Any]:
    if isinstance(groups, str):
        return list(split_names(groups))
    if isinstance(groups, Symmetry):
        return [groups]
    if not isinstance(groups, Iterable):
        call = f": call it, {getattr(groups, '__name__', 'symmetry')}()" if callable(groups) else ""
        raise TypeError(
            f"groups must be a GroupSet, symmetries or names, got {type(groups).__name__}{call}"
        )
    return list(groups)


def _names_points(groups: Groups | None) -> bool:
    if groups is None or isinstance(groups, GroupSet):
        return False
    return any(isinstance(g, str) and needs_points(g) for g in _listed(groups))


def _suggested(lattice: tuple[int, ...]) -> tuple[str, ...]:
    equal = len(set(lattice)) == 1
    return SUGGESTED[len(lattice)] if equal else OBLONG[len(lattice)]
