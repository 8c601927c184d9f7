"""A user's own vectors: a ``.csv`` file with a row for each sample."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from ._coding import Array, Coding
from ._errors import DataError
from ._images import Images
from ._own import split

_TARGETS = ("y", "target", "targets", "label", "labels", "class")


def from_csv(path: Path, seed: int = 0, task: str | None = None) -> Images:
    """Vectors (n, 1, features) and their targets from a ``.csv`` file.

    Commas, semicolons or tabs separate the columns. The first row may name them. The target is the
    column ``y``, ``target``, ``label`` or ``class``, else the last one; columns ``y1, y2, …`` are
    several targets. All other columns are numbers. A random fifth of the rows is tested on.

    Raises
    ------
    DataError
        If the file cannot be read, if rows differ in length, or if a feature is not a number.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            line = file.readline()
            file.seek(0)
            rows = [row for row in csv.reader(file, delimiter=_separator(line)) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{str(path)!r} cannot be read as a .csv: {error}") from error
    named = bool(rows) and not any(_is_number(cell) for cell in rows[0])
    heads = [c.strip().lower() for c in rows.pop(0)] if named else []
    if len(rows) < 2 or len(rows[0]) < 2:
        raise DataError(f"{str(path)!r}: expected two samples and two columns or more")
    for number, row in enumerate(rows, 1 + named):
        if len(row) != len(rows[0]) or (heads and len(row) != len(heads)):
            expected = len(heads) or len(rows[0])
            raise DataError(
                f"{str(path)!r}: row {number} has {len(row)} cells, the first has {expected}"
            )
    targets = _target_columns(heads, len(rows[0]))
    features = [i for i in range(len(rows[0])) if i not in targets]
    if not features:
        raise DataError(f"{str(path)!r}: all columns are targets; expected features beside them")
    x = np.empty((len(rows), len(features)))
    for number, row in enumerate(rows):
        for j, i in enumerate(features):
            if not _is_number(row[i]):
                raise DataError(
                    f"{str(path)!r}: row {number + 1 + named}, column {i + 1} holds {row[i]!r}; "
                    "expected a number"
                )
            x[number, j] = float(row[i])
    if not np.isfinite(x).all():
        raise DataError(f"{str(path)!r}: some features are not finite numbers")
    try:
        y = _column(np.array([[row[i].strip() for i in targets] for row in rows]))
        train, test = split(y, seed, task)
        coding = Coding.of(y, task)
        labels, test_labels = coding.encode(y[train]), coding.encode(y[test])
    except DataError as error:
        raise DataError(f"{str(path)!r}: {error}") from error
    first, second = (torch.from_numpy(x[part][:, None].copy()) for part in (train, test))
    return Images(
        path.stem,
        first,
        labels,
        second,
        test_labels,
        tuple(map(str, coding.names)),
        coding=None if coding.kind == "classes" else coding,
    )


def _separator(line: str) -> str:
    """What stands between the cells of this line: commas, or semicolons or tabs if more do."""
    return max(",;\t", key=line.count)


def _target_columns(heads: list[str], count: int) -> list[int]:
    for name in _TARGETS:
        if name in heads:
            return [heads.index(name)]
    several = [i for i, head in enumerate(heads) if head[:1] == "y" and head[1:].isdigit()]
    return several or [count - 1]


def _column(cells: Array) -> Array:
    """Targets as integers, else as floats, else as strings; (n,) or (n, K)."""
    for kind in (np.int64, np.float64):
        try:
            cells = cells.astype(kind)
            break
        except ValueError:
            continue
    return cells[:, 0] if cells.shape[1] == 1 else cells


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
