"""The content of a report: plain data, saved beside a run as JSON so that it can be redrawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from groupella._files import write_text
from groupella._schema import build, read_json, write_json
from groupella.decide import Selection
from groupella.decide.claims import Consequence
from groupella.evidence import Reliability
from groupella.training import History

FORMAT, VERSION = "groupella-report", 2
FloatArray = npt.NDArray[np.float64]
Kind = Literal["kernels", "maps"]


@dataclass(frozen=True)
class LayerError:
    """Relative equivariance error of a layer under a group, before and after training, or None.

    `up_to_translation`: outputs were compared up to one translation per sample (layers that pool).
    """

    layer: str
    group: str
    before: float | None
    after: float | None
    up_to_translation: bool = False


@dataclass(frozen=True, eq=False)
class FilterPicture:
    """The largest filters of one path, signed, (n, height, width).

    `kind` is "kernels" for a convolution, "maps" for weights over the whole image.
    """

    layer: str
    path: str
    kind: Kind
    filters: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "filters", np.asarray(self.filters, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Example:
    """A labelled image: pixels (height, width) or (height, width, 3), from 0 to 1."""

    label: str
    pixels: FloatArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "pixels", np.asarray(self.pixels, dtype=np.float64))


@dataclass(frozen=True)
class HeldOutScore:
    """Accuracy (0 to 1) and mean negative log-likelihood on `n` examples not used for training.

    `scores` has all that fits the task by name: accuracy, r2, rmse, f1.
    """

    accuracy: float | None = None
    nll: float | None = None
    n: int = 0
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Confusion:
    """How often data of each class were taken for which: counts[class][predicted class].

    `on` says which data they are, and who predicted: "200 test data".
    """

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    on: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "counts", tuple(map(tuple, self.counts)))
        size = len(self.classes)
        if [len(row) for row in self.counts] != [size] * size:
            raise ValueError(f"a confusion matrix of {size} classes needs {size}×{size} counts")

    @property
    def mistakes(self) -> list[tuple[str, str, int]]:
        """Return (class, predicted class, how often) of all mistakes, the most frequent first."""
        found = [
            (self.classes[i], self.classes[j], count)
            for i, row in enumerate(self.counts)
            for j, count in enumerate(row)
            if i != j and count
        ]
        return sorted(found, key=lambda one: -one[2])


@dataclass(frozen=True)
class ReportTable:
    """A section of the report that is one table: cells are text, None is shown as a dash."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(self.heads))
        object.__setattr__(self, "rows", tuple(map(tuple, self.rows)))
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(
                    f"a row of the table {self.title!r} has {len(row)} cells for "
                    f"{len(self.heads)} columns: {row}"
                )


@dataclass(frozen=True, eq=False)
class ReportContent:
    """Everything a report says about one run. Empty sections are left out of the page.

    Parameters
    ----------
    title, data
        The task and the data set, in a few words.
    groups
        Name of each candidate group → its description.
    selection, history
        What was selected, and the metrics of every epoch.
    errors, filters, examples
        Equivariance errors, learned filters and example images.
    held_out
        Scores on data not used for training.
    confusion
        Which classes were taken for which, where there are classes.
    consequences
        One row per group imposed on the whole network, and references such as chance.
    reliability
        How often class predictions of held-out data are right, by their confidence.
    tables
        Further sections, each one table.
    settings, versions
        Settings of the run, and versions of the software that ran it.
    expected
        The symmetry that the labels have by construction, where it is known.
    remarks
        What the reader should know before trusting the verdict.
    """

    title: str
    data: str
    groups: Mapping[str, str]
    selection: Selection
    history: History
    errors: tuple[LayerError, ...] = ()
    filters: tuple[FilterPicture, ...] = ()
    examples: tuple[Example, ...] = ()
    held_out: HeldOutScore = field(default_factory=HeldOutScore)
    confusion: Confusion | None = None
    consequences: tuple[Consequence, ...] = ()
    reliability: Reliability | None = None
    tables: tuple[ReportTable, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    expected: str | None = None
    remarks: tuple[str, ...] = ()

    def save(self, path: str | Path) -> Path:
        """Write as JSON, atomically, and return the path."""
        plain = {
            "format": FORMAT,
            "version": VERSION,
            **vars(self),
            "selection": self.selection.as_dict(),
            "history": self.history.as_list(),
        }
        return write_text(path, write_json(_plain(plain)) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ReportContent:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If the file is not JSON, not a report of this version, or incomplete.
        """
        found = read_json(path)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is not a report: it lacks format={FORMAT!r}")
        if found.get("version") != VERSION:
            raise ValueError(
                f"{path} has format version {found.get('version')}; this groupella reads "
                f"version {VERSION}. Run the command again in a new directory"
            )
        content = {k: v for k, v in found.items() if k not in ("format", "version")}
        try:
            parts = {"selection": Selection.from_dict, "history": History.from_list}
            for name, read in parts.items():
                if name in content:
                    content[name] = read(content[name])
            return build(cls, content)
        except ValueError as error:
            raise ValueError(f"{path} is not a complete report: {error}") from error


def _plain(value: Any) -> Any:
    """Return what JSON stores instead of `value`; arrays keep four significant digits."""
    if isinstance(value, np.ndarray):
        scale = float(np.abs(value).max(initial=0.0))
        if scale > 0.0 and np.isfinite(scale):
            value = np.round(value, int(4 - np.floor(np.log10(scale))))
        return value.tolist()
    if is_dataclass(value):
        return _plain(vars(value))
    if isinstance(value, Mapping):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)
