"""A study: the rows of one of the paper's tables, each a job, beside the published numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from groupella._files import write_text

from groupella.runs.engines import Engine, Task, here
from groupella.runs.jobs import Job
from groupella.runs.record import RunError
from groupella.runs.run import Done, load
from groupella.data import named_directory

COLUMNS = ("accuracy", "nll", "evidence")


@dataclass(frozen=True)
class Row:
    """One line of a table. `paper` holds its accuracy (%), nll and evidence, where published."""

    name: str
    job: Job
    paper: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return "".join(c if c.isalnum() or c in "-+" else "-" for c in self.name)


class Study(Protocol):
    """Settings of a study, from which its rows follow. `budget` is seconds a row, None for all."""

    @property
    def budget(self) -> float | None: ...

    def rows(self, seed: int) -> list[Row]: ...


def perform(
    rows: Sequence[Row],
    directory: Path,
    *,
    engine: Engine = here,
    budget: float | None = None,
    data_dir: str | None = None,
    check: Callable[[Sequence[Job]], None] | None = None,
    on_done: Callable[[Row, Done], None] | None = None,
) -> dict[str, Done]:
    """Run every row that is not finished; where one fails, the others first, then an error.

    check: is given the jobs that are left to do before any is begun, and may refuse them
    """
    named = by_key(rows)
    # Absolute, and from the environment, since another machine's processes start elsewhere.
    place = directory.absolute()
    folder = named_directory(data_dir)
    data = None if folder is None else str(folder.absolute())
    tasks = {key: Task(r.job, place / key, budget, data) for key, r in named.items()}
    done: dict[str, Done] = {}

    def keep(key: str) -> None:
        done[key] = load(directory / key)
        if on_done is not None:
            on_done(named[key], done[key])

    for key in [key for key, task in tasks.items() if task.is_finished]:
        keep(key)
        del tasks[key]
    if tasks:
        if check is not None:
            check([task.job for task in tasks.values()])
        with closing(engine(tasks)) as finished:
            for key in finished:
                keep(key)
    return {row.key: done[row.key] for row in rows}


def by_key(rows: Sequence[Row]) -> dict[str, Row]:
    """Rows by the names of their directories, of which no two may be the same."""
    found: dict[str, Row] = {}
    for row in rows:
        other = found.setdefault(row.key, row)
        if other is not row:
            raise RunError(
                f"the runs {other.name!r} and {row.name!r} would share the directory {row.key}: "
                "run them into two places, or rename a file"
            )
    return found


def finished_rows(rows: Sequence[Row], directory: Path) -> dict[str, Done]:
    """Rows that were finished there, now or before, for however many epochs."""
    found = {}
    for row in rows:
        try:
            done = load(directory / row.key)
        except RunError:
            continue
        if row.job.for_epochs(0) == done.job.for_epochs(0):
            found[row.key] = done
    return found


def summary(rows: Sequence[Row], done: Mapping[str, Done]) -> list[dict[str, Any]]:
    """What was found, row by row of those that are done, beside what was published."""
    found = []
    for row in rows:
        if row.key not in done:
            continue
        one = done[row.key]
        content = one.content
        selection = content.selection
        accuracy = content.outcome.accuracy
        found.append(
            {
                "row": row.name,
                "accuracy": None if accuracy is None else 100 * accuracy,
                "nll": content.outcome.nll,
                "evidence": -selection.log_evidence / selection.n_data
                if selection.is_measured
                else None,
                "paper": dict(row.paper),
                "verdict": selection.verdict,
                "layers": selection.verdicts,
                "shares": mean_shares(one),
                "epochs": len(content.history),
                "seconds": sum(r.seconds for r in content.history),
                "seed": one.job.seed,
                "alpha": one.job.alpha,
                "n_data": selection.n_data,
            }
        )
    return found


def mean_shares(done: Done) -> dict[str, float]:
    """Relative effective parameters of every path, in the mean over layers."""
    layers = done.content.selection.layers
    totals: dict[str, float] = {}
    for layer in layers:
        for path in layer.paths:
            totals[path.path] = totals.get(path.path, 0.0) + path.relative / len(layers)
    return totals


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """The summary as Markdown. Evidence is −log p(D) a datum, as the paper prints it."""
    from groupella.report import markdown

    heads = ["row", "accuracy, %", "paper", "NLL", "paper", "−evidence", "paper", "obeys", "shares"]
    heads += ["epochs"]
    lines = []
    for entry in found:
        cells: list[Any] = [entry["row"]]
        for column, digits in zip(COLUMNS, (2, 3, 3), strict=True):
            here, there = entry[column], entry["paper"].get(column)
            cells.append(None if here is None else f"{here:.{digits}f}")
            cells.append(None if there is None else f"{there:.{digits}f}")
        shares = ", ".join(f"{k} {100 * v:.0f} %" for k, v in entry["shares"].items())
        lines.append([*cells, entry["verdict"], shares, entry["epochs"]])
    return markdown(heads, lines)


def write_summary(
    directory: Path, found: Sequence[Mapping[str, Any]], title: str, details: str = ""
) -> None:
    """summary.json and summary.md, atomically; `details` stand in the second, below the table."""
    texts = {
        "summary.json": json.dumps(list(found), indent=1, ensure_ascii=False) + "\n",
        "summary.md": f"# {title}\n\n{table(found)}" + (f"\n{details}" if details else ""),
    }
    for name, text in texts.items():
        write_text(directory / name, text)
