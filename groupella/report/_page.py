"""The report as a page: one HTML file that needs no script, no network and no other file.

The templates `page.html` and `run.html` say what stands where and escape all they are given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupella._files import write_text
from groupella.decide import Selection, clearness_text, shown

from ._advice import next_steps
from ._content import ReportContent
from ._figures import inline_svg
from ._panels import Panel, precision_panels, reliability_panels, training_panels
from ._pictures import filter_rows, image_pixels, png
from ._tables import EXACT, FOUND, VERDICT, confusions_section, consequences_section, error_text
from ._words import explanation, headline, path_names, sentence

MOST_CLASSES = 16  # of a confusion matrix; of more, only the most frequent mistakes are shown
SCORES = {"accuracy": "test accuracy", "r2": "test R²", "rmse": "test RMSE", "f1": "test F1"}

if TYPE_CHECKING:
    from jinja2 import Environment


def write_report(
    contents: ReportContent | Sequence[ReportContent], path: str | Path, verdict: str | None = None
) -> Path:
    """Write the page about one run or several, atomically, and return its path.

    Parameters
    ----------
    contents
        One run, or several.
    path
        File to write; missing directories are created.
    verdict
        Headline of a page about several runs (default: the verdict of each).
    """
    return write_text(path, page(contents, verdict))


def page(contents: ReportContent | Sequence[ReportContent], verdict: str | None = None) -> str:
    """Return the page as HTML; the parameters are those of `write_report`."""
    found = [contents] if isinstance(contents, ReportContent) else list(contents)
    if not found:
        raise ValueError("a report needs at least one run")
    runs = [_run(content, str(number)) for number, content in enumerate(found)]
    verdict = verdict or " ".join(f"{c.title}: {sentence(c.selection)}" for c in found)
    constants = {"exact": EXACT, "found": FOUND, "verdict_cell": VERDICT, "score_names": SCORES}
    return _environment().get_template("page.html").render(runs=runs, verdict=verdict, **constants)


def _run(content: ReportContent, salt: str) -> dict[str, Any]:
    """Return what `run.html` shows."""

    def charts(panels: Sequence[Panel]) -> list[tuple[str, str]]:
        return [(p.title, inline_svg(p, f"{salt}/{p.y_label}/{p.title}")) for p in panels]

    precisions = precision_panels(content)
    judgement, confusion = content.selection.judgement, content.confusion
    many = confusion is not None and len(confusion.classes) > MOST_CLASSES
    fixed = not precisions and any(r.precisions for r in content.history)
    return {
        "content": content,
        "selection": content.selection,
        "headline": headline(content.selection),
        "explanation": explanation(content.selection),
        "steps": next_steps(content),
        "judged": judgement is not None,
        "paths": _by_use(content.selection),
        "consequences": consequences_section(content.consequences, judgement)
        if content.consequences
        else None,
        "confusion": None if many else confusion,
        "tables": [
            *([confusions_section(confusion)] if many and confusion else []),
            *content.tables,
        ],
        "precisions": charts(precisions),
        "removed": any(line.end for panel in precisions for line in panel.lines),
        "precisions_fixed": fixed and judgement is None,
        "curves": charts(training_panels(content)),
        "calibration": charts(reliability_panels(content)),
        "error_groups": list(dict.fromkeys(e.group for e in content.errors)),
        "errors": {(e.layer, e.group): e for e in content.errors},
        "pooling": {e.layer for e in content.errors if e.up_to_translation},
        "filters": filter_rows(content),
        "training_remarks": [remark for record in content.history for remark in record.remarks],
        "settings": {
            **content.settings,
            **{f"version of {name}": version for name, version in content.versions.items()},
        },
    }


@lru_cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        shown=shown,
        png=png,
        pixels=image_pixels,
        percent=_percent,
        error=error_text,
        plain=_plain,
        clearness=clearness_text,
        score=_score,
    )
    return environment


def _by_use(selection: Selection) -> list[str]:
    """Return the names of all paths, the most used first: a phone shows few columns."""
    used = dict.fromkeys(path_names(selection), 0.0)
    for layer in selection.layers:
        for path in layer.paths:
            used[path.path] += path.relative
    return sorted(used, key=lambda name: -used[name])


def _score(value: float, name: str) -> str:
    """Return a score with its unit; accuracies are percentages."""
    said = f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.3g}"
    return said.replace("-", "−")


def _percent(share: float) -> str:
    if share == 0 or share >= 0.0995:
        return f"{100 * share:.0f} %"
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{k}: {_plain(v)}" for k, v in value.items())
    return str(value)
