"""Codings: how targets become what a network learns, and its outputs become answers.

| kind       | targets                                   | a network learns      | outputs        |
| ---------- | ----------------------------------------- | --------------------- | -------------- |
| classes    | (n,) integers, strings, booleans; one-hot | indices (n,)          | logits (n, K)  |
| regression | (n,) or (n, K) real numbers               | standardised (n, K)   | means (n, K)   |
| multilabel | (n, K) of 0 and 1                         | the same, as floats   | logits (n, K)  |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from groupella._schema import build
from groupella.training import r_squared

from ._bounds import LARGEST_NUMBER
from ._errors import DataError
from ._inputs import array_of, numbers

Array = npt.NDArray[Any]
Kind = Literal["classes", "regression", "multilabel"]
KINDS: tuple[str, ...] = get_args(Kind)
MOST_CLASSES = 20  # that whole numbers stored as floats may be
LONGEST_NAME = 200  # of a class


@dataclass(frozen=True)
class Coding:
    """How targets are learned, and outputs read.

    Parameters
    ----------
    kind
        "classes", "regression" or "multilabel".
    names
        The classes, or names of the outputs.
    mean, std
        Of each target of a regression, over the training data.
    flat
        Whether targets are (n,) rather than (n, K).
    """

    kind: Kind
    names: tuple[Any, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    flat: bool = True

    @classmethod
    def of(cls, y: Array, kind: str | None = None) -> Coding:
        """The coding of these targets; without a kind, the one that `guessed` gives.

        Raises
        ------
        DataError
            If the targets are not of that kind, are not finite, or are all the same.
        """
        if kind is not None and kind not in KINDS:
            raise DataError(f"no task {kind!r}; expected one of {', '.join(KINDS)}")
        y = checked(y)
        found = guessed(y)[0] if kind is None else kind
        if found == "classes":
            return cls._classes(y)
        values = _numbers(y, found)
        names = tuple(range(values.shape[1]))
        if found == "multilabel":
            if y.ndim != 2 or not np.isin(values, (0, 1)).all():
                raise DataError(f"targets of shape {y.shape} are not (n, labels) of 0 and 1")
            if (values == values[0]).all():
                raise DataError("all data have the same labels: there is nothing to learn")
            return cls("multilabel", names, flat=False)
        if (values == values[0]).all():
            raise DataError("all data have the same target: there is nothing to learn")
        mean = values.mean(0)
        # In units of the largest deviation, whose square neither overflows nor vanishes.
        units = np.abs(values - mean).max(0)
        units = np.where(units > 0, units, 1.0)
        std = units * ((values - mean) / units).std(0)
        std = np.where(std > 0, std, 1.0)
        return cls("regression", names, tuple(mean.tolist()), tuple(std.tolist()), y.ndim == 1)

    @classmethod
    def _classes(cls, y: Array) -> Coding:
        if _is_one_hot(y):
            return cls("classes", tuple(range(y.shape[1])), flat=False)
        if y.ndim != 1:
            raise DataError(f"labels of shape {y.shape}; expected one class for each sample")
        if y.dtype.kind == "f" and not (y == np.round(y)).all():
            raise DataError("labels are real numbers; classes must be integers or strings")
        names = np.unique(y)
        if len(names) < 2:
            raise DataError(
                f"all data have one class, {names[0]!r}: there is nothing to learn. Expected two "
                "classes or more"
            )
        check_class_names(map(str, names.tolist()))
        return cls("classes", tuple(names.tolist()))

    @property
    def outputs(self) -> int:
        """The number of a network's outputs."""
        return len(self.names)

    def encode(self, y: Array) -> Tensor:
        """What a network learns of the targets y.

        Raises
        ------
        DataError
            If there is an unknown class, or another number of targets.
        """
        y = checked(y)
        if self.kind == "classes":
            return self._indices(y)
        values = _numbers(y, self.kind)
        if values.shape[1] != self.outputs:
            raise DataError(f"targets of shape {y.shape}; expected {self.outputs} for each sample")
        if self.kind == "regression":
            values = (values - np.array(self.mean)) / np.array(self.std)
        return torch.from_numpy(values.astype(np.float32))

    def _indices(self, y: Array) -> Tensor:
        if y.ndim == 2 and y.shape[1] == self.outputs and _is_one_hot(y):
            return torch.from_numpy(y.argmax(1))
        if y.ndim != 1:
            raise DataError(f"labels of shape {y.shape}; expected one class for each sample")
        numbers = {name: i for i, name in enumerate(self.names)}
        # A saved run knows its classes by their names.
        numbers |= {str(name): i for i, name in enumerate(self.names)}
        try:
            return torch.tensor(
                [numbers[v] if v in numbers else numbers[str(v)] for v in y.tolist()]
            )
        except KeyError as error:
            known = ", ".join(map(str, self.names[:20]))
            raise DataError(f"no class {error.args[0]!r}; known are {known}") from None

    def decode(self, f: Tensor) -> Array:
        """The answers to network outputs f (n, K): classes, numbers, or a 0/1 matrix."""
        if self.kind == "regression":
            values: Array = f.double().numpy() * np.array(self.std) + np.array(self.mean)
            return values[:, 0] if self.flat else values
        if self.kind == "multilabel":
            return np.asarray((f > 0).long())
        return np.asarray(np.array(self.names)[f.argmax(1).numpy()])

    def probabilities(self, f: Tensor) -> Array:
        """The probability of every class or label, (n, K).

        Raises
        ------
        DataError
            For a regression.
        """
        if self.kind == "regression":
            raise DataError("a regression has no probabilities; use predict")
        p: Array = (
            f.double().softmax(1) if self.kind == "classes" else f.double().sigmoid()
        ).numpy()
        return p

    def scores(self, f: Tensor, y: Tensor) -> dict[str, float]:
        """How good outputs f are for encoded targets y, by name; the first is "the" score.

        accuracy for classes; r2 and rmse (in units of the targets) for a regression; f1, over all
        labels together, and accuracy for several labels.
        """
        f = f.double()
        if self.kind == "classes":
            return {"accuracy": float((f.argmax(1) == y).double().mean())}
        if self.kind == "regression":
            units = torch.tensor(self.std, dtype=torch.double)
            rmse = float(((f - y).square().mean(0) * units.square()).mean().sqrt())
            return {"r2": r_squared(f, y), "rmse": rmse}
        said, true = f > 0, y > 0.5
        right = float((said & true).sum())
        counted = float(said.sum() + true.sum())
        return {
            "f1": 2 * right / counted if counted else 1.0,
            "accuracy": float((said == true).double().mean()),
        }

    def as_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Coding:
        """The inverse of `as_dict`, from JSON; raises `ValueError` for anything else."""
        return build(cls, content, "targets")


def guessed(y: Array) -> tuple[Kind, str]:
    """The kind of these targets, and why, in words."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 2 and y.dtype.kind in "biuf" and np.isin(y, (0, 1)).all():
        if _is_one_hot(y):
            return "classes", "every row of the 0/1 targets has exactly one 1"
        return "multilabel", "targets are a matrix of 0 and 1"
    if y.ndim == 2:
        return "regression", f"targets are {y.shape[1]} numbers for each sample"
    if y.dtype.kind in "biuUSO":
        return "classes", f"targets are {'strings' if y.dtype.kind in 'USO' else 'integers'}"
    if len(y) and (y == np.round(y)).all() and len(np.unique(y)) <= MOST_CLASSES:
        return "classes", "targets are a few whole numbers"
    return "regression", "targets are real numbers"


def checked(targets: Any) -> Array:
    """Targets as (n,) or (n, K); DataError if it has other axes or is not finite."""
    y: Array = _of_one_type(array_of(targets, "y"))
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if not y.size:
        raise DataError(f"there are no targets: they are of shape {y.shape}")
    if y.ndim not in (1, 2):
        raise DataError(f"targets of shape {y.shape}; expected (n,) or (n, outputs)")
    if y.dtype.kind not in "biufU":
        raise DataError(f"targets of type {y.dtype}; expected numbers or strings")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(f"target {int((~np.isfinite(y)).argmax())} is NaN or infinite")
    if y.dtype.kind == "f" and np.abs(y).max() >= LARGEST_NUMBER:
        raise DataError(f"some targets are beyond {LARGEST_NUMBER:.0e}: choose other units")
    return y


def _of_one_type(y: Array) -> Array:
    """Bytes and Python objects as strings or numbers, if they are."""
    if y.dtype.kind == "O":
        kinds = {type(value) for value in y.flat}
        if kinds <= {str, np.str_}:
            return y.astype(str)
        numeric = (bool, int, float, np.bool_, np.integer, np.floating)
        if all(issubclass(kind, numeric) for kind in kinds):
            found: Array = np.array(y.tolist())
            return found
        if not kinds <= {bytes}:
            named = ", ".join(sorted(kind.__name__ for kind in kinds)[:3])
            raise DataError(f"targets hold {named}; expected all numbers or all strings")
        y = y.astype(bytes)
    if y.dtype.kind != "S":
        return y
    try:
        return np.char.decode(y, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"targets are bytes that are not UTF-8: {error}") from error


def check_class_names(names: Iterable[str]) -> None:
    """Raise `DataError` for a name that a page or a terminal cannot show."""
    for name in names:
        if not name.isprintable() or len(name) > LONGEST_NAME:
            raise DataError(
                f"a class is named {name[:LONGEST_NAME]!r}; expected at most {LONGEST_NAME} "
                "printable characters"
            )


def sample_weights(
    y: Array, sample: Any = None, of_classes: Any = None, coding: Coding | None = None
) -> Tensor | None:
    """The weight of each sample, of mean 1, or None where all are equal.

    Parameters
    ----------
    y
        The targets.
    sample
        A weight for each sample.
    of_classes
        "balanced", a mapping from classes to weights, or a weight for each class in order.
    coding
        The coding of y.

    Raises
    ------
    DataError
        If weights are negative, not finite, all zero, or not as many as samples or classes.
    """
    if sample is None and of_classes is None:
        return None
    n = len(y)
    weights = np.ones(n) if sample is None else numbers(sample, "weights").astype(np.float64)
    if weights.shape != (n,):
        raise DataError(f"weights of shape {weights.shape} for {n} samples")
    if of_classes is not None:
        weights = weights * _of_classes(y, of_classes, coding)
    if not np.isfinite(weights).all() or (weights < 0).any() or not weights.any():
        raise DataError("weights must be finite and not negative, and not all zero")
    weights = weights / weights.max()  # the mean of large ones overflows
    return torch.from_numpy((weights / weights.mean()).astype(np.float32))


def _of_classes(y: Array, given: Any, coding: Coding | None) -> Array:
    if coding is None or coding.kind != "classes":
        raise DataError("weights of classes need classes")
    index = coding.encode(y).numpy()
    if isinstance(given, str):
        if given != "balanced":
            raise DataError(f'class weights are "balanced" or one for each class, got {given!r}')
        counts = np.bincount(index, minlength=coding.outputs)
        each = np.divide(1.0, counts, out=np.zeros(coding.outputs), where=counts > 0)
        return np.asarray(each[index])
    if isinstance(given, Mapping):
        unknown = [k for k in given if k not in coding.names and str(k) not in coding.names]
        if unknown:
            raise DataError(f"class weights name {unknown[0]!r}, which is no class")
        each = np.array([given.get(name, 1.0) for name in coding.names], dtype=np.float64)
    else:
        each = np.asarray(given, dtype=np.float64)
    if each.shape != (coding.outputs,):
        raise DataError(f"{each.size} class weights for {coding.outputs} classes")
    return np.asarray(each[index])


def _is_one_hot(y: Array) -> bool:
    return (
        y.ndim == 2 and y.shape[1] > 1 and bool(np.isin(y, (0, 1)).all() and (y.sum(1) == 1).all())
    )


def _numbers(y: Array, kind: str) -> Array:
    if y.dtype.kind not in "biuf":
        raise DataError(f"targets of type {y.dtype}; a {kind} task needs numbers")
    return (y[:, None] if y.ndim == 1 else y).astype(np.float64)
