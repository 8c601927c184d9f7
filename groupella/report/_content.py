"""What a report is about: plain data, kept beside a run as JSON so that it can be drawn again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from groupella._files import write_text
from groupella.decide import Selection
from groupella.training import History

FORMAT = "groupella-report"
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LayerError:
    """Relative equivariance error of one layer under one group; None where it was not measured.

    `up_to_translation`: whether outputs were compared up to one translation for each sample.
    """

    layer: str
    group: str
    before: float | None
    after: float | None
    up_to_translation: bool = False


@dataclass(frozen=True, eq=False)
class FilterPicture:
    """The largest filters of one path: `filters` (n, height, width), signed, in common units."""

    layer: str
    path: str
    kind: str
    filters: FloatArray


@dataclass(frozen=True, eq=False)
class Example:
    """An image (height, width) or (height, width, 3) with values from 0 to 1, and its label."""

    label: str
    pixels: FloatArray


@dataclass(frozen=True)
class Outcome:
    """How good the predictions are on data that was not trained on."""

    accuracy: float | None = None
    nll: float | None = None
    n: int = 0


@dataclass(frozen=True, eq=False)
class Content:
    """One run: what it was, what it found, how it got there.

    `groups` holds each member's name with a description; `expected` the symmetry that the labels
    have by construction, where it is known.
    """

    title: str
    data: str
    groups: Mapping[str, str]
    selection: Selection
    history: History
    errors: tuple[LayerError, ...] = ()
    filters: tuple[FilterPicture, ...] = ()
    examples: tuple[Example, ...] = ()
    outcome: Outcome = field(default_factory=Outcome)
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    expected: str | None = None
    remarks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and names for JSON."""
        return {
            "format": FORMAT,
            "version": 1,
            "title": self.title,
            "data": self.data,
            "groups": dict(self.groups),
            "selection": self.selection.as_dict(),
            "history": self.history.as_list(),
            "errors": [asdict(e) for e in self.errors],
            "filters": [
                {"layer": f.layer, "path": f.path, "kind": f.kind, "filters": _rounded(f.filters)}
                for f in self.filters
            ],
            "examples": [{"label": e.label, "pixels": _rounded(e.pixels)} for e in self.examples],
            "outcome": asdict(self.outcome),
            "settings": dict(self.settings),
            "versions": dict(self.versions),
            "expected": self.expected,
            "remarks": list(self.remarks),
        }

    def save(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        text = json.dumps(self.as_dict(), separators=(",", ":"), default=str)
        return write_text(path, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Content:
        """Read what `save` wrote."""
        try:
            found = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is truncated or is not JSON: {error}") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"{path} is not a report: it lacks format={FORMAT!r}")
        try:
            return cls._from_dict(found)
        except (KeyError, TypeError, ValueError) as error:
            story = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path} is not a whole report: {story}") from error

    @classmethod
    def _from_dict(cls, found: Mapping[str, Any]) -> Content:
        return cls(
            title=found["title"],
            data=found["data"],
            groups=found["groups"],
            selection=Selection.from_dict(found["selection"]),
            history=History.from_list(found["history"]),
            errors=tuple(LayerError(**e) for e in found["errors"]),
            filters=tuple(
                FilterPicture(**{**f, "filters": np.asarray(f["filters"], dtype=np.float64)})
                for f in found["filters"]
            ),
            examples=tuple(
                Example(e["label"], np.asarray(e["pixels"], dtype=np.float64))
                for e in found["examples"]
            ),
            outcome=Outcome(**found["outcome"]),
            settings=found["settings"],
            versions=found["versions"],
            expected=found["expected"],
            remarks=tuple(found["remarks"]),
        )


def _rounded(values: FloatArray) -> Any:
    """Four significant digits are enough for a picture."""
    scale = float(np.abs(values).max(initial=0.0))
    if scale == 0.0 or not np.isfinite(scale):
        return values.tolist()
    digits = int(4 - np.floor(np.log10(scale)))
    return np.round(values, digits).tolist()
