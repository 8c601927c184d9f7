"""Studies: rows of a table, each a job, beside the published numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from groupella._files import file_name, write_text
from groupella._schema import write_json

from .directory import Assignment, Done, load
from .engines import Engine, here
from .jobs import Job
from .record import RunError, check_ours
from .spelling import group_set

SUMMARIES = ("summary.json", "summary.md")
COLUMNS = (("accuracy", "accuracy, %", 2), ("nll", "NLL", 3), ("evidence", "−evidence", 3))
Details = Callable[[Mapping[str, Done]], str]


@dataclass(frozen=True)
class Row:
    """One row of a table.

    `paper` has the published accuracy (%), nll and evidence, if any; `paper_data` what they were
    measured on, where the job stands in for it. Rows of one `task` differ only in their seed.
    """

    name: str
    job: Job
    paper: Mapping[str, float] = field(default_factory=dict)
    paper_data: str | None = None
    task: str | None = None

    @property
    def key(self) -> str:
        return file_name(self.name)


class Study(Protocol):
    """Settings that list the rows. `budget`: seconds per row, None if rows set their epochs."""

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
    """Run every row that is not finished. A failing row does not abort the others.

    `check` gets the jobs that are left before any starts, and may refuse them.
    """
    from groupella.data import named_directory

    named = by_key(rows)
    check_ours(directory, SUMMARIES)
    # Absolute, and from the environment, since another machine's processes start elsewhere.
    place = directory.absolute()
    folder = named_directory(data_dir)
    data = None if folder is None else str(folder.absolute())
    left = {key: Assignment(r.job, place / key, budget, data) for key, r in named.items()}
    done: dict[str, Done] = {}

    def keep(key: str) -> None:
        done[key] = load(directory / key)
        if on_done is not None:
            on_done(named[key], done[key])

    for key in [key for key, one in left.items() if one.is_finished]:
        keep(key)
        del left[key]
    if left:
        if check is not None:
            check([one.job for one in left.values()])
        with closing(engine(left)) as finished:
            for key in finished:
                keep(key)
    return {row.key: done[row.key] for row in rows}


def by_key(rows: Sequence[Row]) -> dict[str, Row]:
    """Return the rows by the names of their directories, which must differ."""
    found: dict[str, Row] = {}
    for row in rows:
        other = found.setdefault(row.key, row)
        if other is not row:
            raise RunError(
                f"the runs {other.name!r} and {row.name!r} would share the directory {row.key}: "
                "write them to two places, or rename a file"
            )
    return found


def make_ready(jobs: Iterable[Job], data_dir: str | None = None, fetch: bool = True) -> None:
    """Raise for names of paths and data sets that do not exist; download missing public data.

    Done before the first job starts, so that what must fail does not fail hours later. `fetch` is
    False if the jobs run on other machines, which have their own data.
    """
    from groupella.data import BASES, check_name, public
    from groupella.nn.layer import planned

    chosen = list(jobs)
    for groups, paths in dict.fromkeys((j.groups, j.paths) for j in chosen if j.preset is None):
        members = group_set(groups, points=3)  # how many there are, the data will say
        if paths is not None:
            planned(paths, members)
    sources = list(dict.fromkeys(job.source for job in chosen))
    for name in sources:
        check_name(name)
    for name in sources:
        # Read as the runs will read it, which finds, downloads, verifies and caches it.
        if fetch and name in BASES and name != "digits":
            public(name, data_dir)


def finished_rows(rows: Sequence[Row], directory: Path) -> dict[str, Done]:
    """Return the finished rows in the directory, for any number of epochs."""
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
    """Return the results of the finished rows, beside the published ones."""
    from groupella.decide import verdict_text  # torch: `groupella --help` must not load it

    found = []
    for row in rows:
        if row.key not in done:
            continue
        one = done[row.key]
        content = one.content
        selection = content.selection
        accuracy = content.held_out.accuracy
        measured = selection.is_measured
        found.append(
            {
                "row": row.name,
                "task": row.task or row.name,
                "accuracy": None if accuracy is None else 100 * accuracy,
                "nll": content.held_out.nll,
                "evidence": -selection.log_evidence / selection.n_data if measured else None,
                "scores": dict(content.held_out.scores),
                "paper": dict(row.paper),
                "paper_data": row.paper_data,
                # The name alone, without a measured error: repetitions are counted by it.
                "verdict": verdict_text(selection.obeys)
                if selection.judgement
                else selection.verdict,
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
    """Return the relative effective parameters of every path, averaged over layers."""
    layers = done.content.selection.layers
    totals: dict[str, float] = {}
    for layer in layers:
        for path in layer.paths:
            totals[path.path] = totals.get(path.path, 0.0) + path.relative / len(layers)
    return totals


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the summary as Markdown, without columns in which nothing stands.

    Evidence is −log p(D) per datum, as the paper prints it.
    """
    from groupella.report import markdown

    columns: dict[str, list[str | None]] = {"row": [entry["row"] for entry in found]}
    for name, head, digits in COLUMNS:
        columns[head] = [_text(entry[name], digits) for entry in found]
        columns[f"{head} of the paper"] = [
            _text(entry["paper"].get(name), digits) for entry in found
        ]
    columns["obeys"] = [entry["verdict"] for entry in found]
    columns["shares"] = [_shares(entry["shares"]) or None for entry in found]
    columns["epochs"] = [str(entry["epochs"]) for entry in found]
    kept = {h: cells for h, cells in columns.items() if any(cells) or h in ("row", "obeys")}
    elsewhere = {entry["paper_data"]: None for entry in found if entry.get("paper_data")}
    note = f"\nThe paper's numbers were measured on {', '.join(elsewhere)}, not on these data.\n"
    return markdown(list(kept), list(zip(*kept.values(), strict=True))) + note * bool(elsewhere)


def _text(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items())


@contextmanager
def summarising(
    rows: Sequence[Row],
    directory: Path,
    title: str,
    details: Details | None = None,
    shown: Callable[[Sequence[Mapping[str, Any]]], str] = table,
) -> Iterator[None]:
    """Write summary.json and summary.md of all finished rows, even if one fails or is stopped.

    summary.md has what `shown` makes of the summary, then the text of `details`.
    """
    try:
        yield
    finally:
        done = finished_rows(rows, directory)
        if done:
            found = summary(rows, done)
            text = f"# {title}\n\n{shown(found)}" + (f"\n{details(done)}" if details else "")
            content = write_json(found, indent=1) + "\n"
            for name, written in zip(SUMMARIES, (content, text), strict=True):
                write_text(directory / name, written)
