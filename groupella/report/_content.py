"""The content of a report: plain data, saved beside a run as JSON so that it can be redrawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groupella._files import write_text
from groupella.decide import Selection
from groupella.decide.claims import Consequence as Consequence
from groupella.training import History

FORMAT, VERSION = "groupella-report", 2
FloatArray = npt.NDArray[np.float64]


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
    kind: str
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
    """Accuracy (0 to 1) and mean negative log-likelihood on `n` examples not used for training."""

    accuracy: float | None = None
    nll: float | None = None
    n: int = 0


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
    consequences
        One row per group imposed on the whole network, and references such as chance.
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
    consequences: tuple[Consequence, ...] = ()
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
        return write_text(path, json.dumps(plain, separators=(",", ":"), default=_plain) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> ReportContent:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If the file is not JSON, not a report of this version, or incomplete.
        """
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is truncated or is not JSON: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is not a report: it lacks format={FORMAT!r}")
        if found.get("version") != VERSION:
            raise ValueError(
                f"{path} has format version {found.get('version')}; this groupella reads "
                f"version {VERSION}. Run the command again in a new directory"
            )
        try:
            values = {f.name: found[f.name] for f in fields(cls)}
            return cls(**{name: _READ.get(name, _same)(v) for name, v in values.items()})
        except KeyError as error:
            raise ValueError(f"{path} is not a complete report: it lacks {error}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a complete report: {error}") from error


def _many(kind: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda entries: tuple(kind(**entry) for entry in entries)


def _same(value: Any) -> Any:
    return value


_READ: dict[str, Callable[[Any], Any]] = {
    "selection": Selection.from_dict,
    "history": History.from_list,
    "errors": _many(LayerError),
    "filters": _many(FilterPicture),
    "examples": _many(Example),
    "held_out": lambda entry: HeldOutScore(**entry),
    "consequences": _many(Consequence),
    "tables": _many(ReportTable),
    "remarks": tuple,
}


def _plain(value: Any) -> Any:
    """What JSON stores instead of `value`; arrays keep four significant digits."""
    if isinstance(value, np.ndarray):
        scale = float(np.abs(value).max(initial=0.0))
        if scale > 0.0 and np.isfinite(scale):
            value = np.round(value, int(4 - np.floor(np.log10(scale))))
        return value.tolist()
    return vars(value) if is_dataclass(value) else str(value)
