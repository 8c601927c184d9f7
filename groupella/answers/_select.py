"""`select`: which of these groups do the targets of these arrays obey?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from groupella.data import (
    Axes,
    Coding,
    DataError,
    ImageData,
    Inputs,
    axes_of,
    channels_first,
    moments,
    numbers,
    sample_weights,
)
from groupella.groups import (
    GroupSet,
    Symmetry,
    named_group,
    needs_points,
    split_names,
    trivial,
)
from groupella.training import FindSettings, OnEpoch, check_names, find_symmetry, pair_of

from ._answer import Answer
from ._describe import describe

Array = npt.NDArray[Any]
Groups = GroupSet | Symmetry | str | Iterable[Symmetry | str]
# What is tried where no groups are given, by the number of axes of the lattice.
SUGGESTED = {1: ("permutations",), 2: ("z2", "p4"), 3: ("z3", "octahedral")}
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
    title
        The heading of the report.
    directory
        Where trainings are saved; an interrupted search resumes there.
    progress, say
        Whether to show progress bars; a function that is called with a line after each training.
    **settings
        Fields of `groupella.training.FindSettings`: epochs, lr, width, held_out, seed, ….

    Returns
    -------
    Answer
        The verdict, the table behind it, and the trained network.

    Raises
    ------
    ValueError, TypeError
        If data, targets or groups cannot be understood or do not fit each other, before any
        training.

    Examples
    --------
    >>> answer = groupella.select(images, labels, "z2,p4")
    >>> answer.verdict, answer.confidence
    """
    check_names(settings, FindSettings, "select")
    chosen = FindSettings(**settings)
    array, targets = _arrays(x, y)
    members = _group_set(groups, array)
    axes: Axes = "points" if _names_points(groups) else axes_of(members or ())
    data = _problem(array, targets, axes, task, weights, class_weights, chosen.seed)
    members = members or _group_set(_suggested(data.lattice), array)
    assert members is not None
    if test is not None:
        test_x, test_y = _arrays(*test) if isinstance(test, tuple | list) else _arrays(test, None)
        data = replace(data, test_x=data.inputs(test_x), test_y=data.targets.encode(test_y))
    heading = title or f"Which of {', '.join(members.names)} do the targets obey?"
    return find(
        data, members, chosen, title=heading, directory=directory, progress=progress, say=say
    )


def find(
    data: ImageData,
    groups: GroupSet,
    settings: FindSettings | None = None,
    *,
    title: str,
    listed: Mapping[str, Any] | None = None,
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
    directory, progress, say
        As in `select`.
    on_epoch
        Called with each epoch's record and the evidence.
    """
    chosen = settings or FindSettings()
    for group in groups:
        group.check_lattice(data.lattice)
    train = (data.train_x, data.train_y)
    found = find_symmetry(
        train,
        groups,
        data.targets.outputs,
        chosen,
        task=data.targets.kind,
        weights=data.weights,
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
        settings={**(listed or asdict(chosen)), **found.fit.settings.as_dict()},
        seed=chosen.seed,
    )
    content = replace(content, consequences=found.consequences)
    return Answer(content, found.network, data.inputs, data.targets, found.fit)


def _arrays(x: Any, y: Any) -> tuple[Array, Array]:
    """Samples and targets as arrays, from arrays, tensors, a Dataset or a DataLoader."""
    if y is None:
        if isinstance(x, DataLoader):
            batches = [pair_of(batch, "the loader") for batch in x]
            if not batches:
                raise DataError("the loader is empty")
            x, y = (np.concatenate([_array(b[i]) for b in batches]) for i in (0, 1))
        elif (
            hasattr(x, "__getitem__")
            and hasattr(x, "__len__")
            and not isinstance(x, np.ndarray | Tensor)
        ):
            pairs = [pair_of(x[i], "the data set") for i in range(len(x))]
            if not pairs:
                raise DataError("the data set is empty")
            x, y = (np.stack([_array(p[i]) for p in pairs]) for i in (0, 1))
        else:
            raise TypeError(
                f"select(x, y, groups): y is missing, and x is {type(x).__name__}, neither a "
                "Dataset nor a DataLoader"
            )
    samples, targets = numbers(x), _array(y)
    if samples.ndim == 0 or targets.ndim == 0 or len(samples) != len(targets):
        raise DataError(f"x has shape {samples.shape}, y {targets.shape}: first axes must agree")
    return samples, targets


def _array(values: Any) -> Array:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)


def _problem(
    x: Array,
    y: Array,
    axes: Axes,
    task: str | None,
    weights: Any,
    class_weights: Any,
    seed: int,
) -> ImageData:
    ordered = channels_first(x, axes)
    coding = Coding.of(y, task)
    values = torch.from_numpy(np.ascontiguousarray(ordered, dtype=np.float32))
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
        coding=coding,
        weights=sample_weights(y, weights, class_weights, coding),
    )


def _group_set(groups: Groups | None, x: Array) -> GroupSet | None:
    """The candidates and, unless a `GroupSet` was given, the trivial group; None for None."""
    if groups is None or isinstance(groups, GroupSet):
        return groups
    points = int(x.shape[1]) if x.ndim > 1 else None
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
        raise TypeError(
            f"groups must be a GroupSet, symmetries or names, got {type(groups).__name__}"
        )
    return list(groups)


def _names_points(groups: Groups | None) -> bool:
    if groups is None or isinstance(groups, GroupSet):
        return False
    return any(isinstance(g, str) and needs_points(g) for g in _listed(groups))


def _suggested(lattice: tuple[int, ...]) -> tuple[str, ...]:
    equal = len(set(lattice)) == 1
    return SUGGESTED[len(lattice)] if equal else OBLONG[len(lattice)]
