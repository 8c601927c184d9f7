"""``groupella reproduce``: one of the paper's tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupella.cli.errors import plain_errors
from groupella.cli.rows import summarising, watched
from groupella.cli.stopping import saving

if TYPE_CHECKING:
    from groupella.runs.run import Done
    from groupella.runs.study import Row, Study

    Details = Callable[[Mapping[str, Done]], str]

STUDIES = ("toy", "cifar10", "multigroup", "separable", "inspect")
NAMES = (*STUDIES, "planted")
SCALES = ("quick", "hour", "paper")
EXAMPLES = """
Run one of the paper's studies and put what comes out beside the published numbers.

toy: table 1, digits in quadrants. cifar10: table 2, eleven networks. multigroup: table 3, five data
sets. separable: roto-translation filters. inspect: the structure of each layer. planted: symmetries
that are known to be there, of which `groupella planted` has more presets and options.

Presets: quick takes minutes on two cores; hour takes as many epochs a row as fit into an hour,
which is measured first (planted: as many cases); paper is the published protocol (meant for a GPU),
of planted all cases.

Examples:

  groupella reproduce toy --preset quick

  groupella reproduce multigroup --preset hour --row rotated --data-dir my-data

  groupella reproduce cifar10 --preset hour --jobs 2 --json

  groupella reproduce planted --preset quick --jobs 2

Finished rows are not run again, an interrupted one goes on. The summary in the study's directory
has all rows that are finished there.
"""


def reproduce(
    study: Annotated[
        str, typer.Argument(help=", ".join(NAMES), autocompletion=lambda: list(NAMES))
    ],
    preset: Annotated[
        str, typer.Option(help="quick, hour or paper.", autocompletion=lambda: list(SCALES))
    ] = "quick",
    row: Annotated[
        list[str] | None,
        typer.Option(help="Only the row of this name, or else rows that contain it. Repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of data, weights and order.")] = 0,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Rows at a time, each in a process with one thread; 1: in this one, all threads.",
        ),
    ] = 1,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Train this long instead of the preset's time.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where runs go; by default runs/STUDY-PRESET-SEED.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where data sets lie; else GROUPELLA_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    from dataclasses import replace

    from groupella.runs.engines import here, processes
    from groupella.runs.readiness import make_ready
    from groupella.runs.study import perform, summary, table

    place = out or Path("runs") / f"{study}-{preset}-{seed}"
    title = f"{study}, preset {preset}, seed {seed}"
    if study == "planted":
        for option, given in (("--epochs", epochs), ("--data-dir", data_dir)):
            if given is not None:
                raise typer.BadParameter(f"the study planted has no {option}")
        _reproduce_planted(preset, row or [], seed, jobs, place, title, as_json)
        return
    chosen, details = find(study, preset), find_details(study)
    every = chosen.rows(seed)
    rows = chosen_rows(every, row or [])
    budget = chosen.budget
    if epochs is not None:
        budget = None
        rows = [replace(r, job=r.job.for_epochs(epochs)) for r in rows]
    folder = None if data_dir is None else str(data_dir)
    with plain_errors("reproduce"), saving(place), summarising(every, place, title, details):
        done = perform(
            rows,
            place,
            engine=watched(here if jobs == 1 else processes(jobs), as_json),
            budget=budget,
            data_dir=folder,
            check=lambda left: make_ready(left, folder),
            on_done=lambda r, one: typer.echo(f"{r.name}: {one.report}", err=True),
        )
    found = summary(rows, done)
    if as_json:
        typer.echo(json.dumps({"study": study, "preset": preset, "rows": found}))
    else:
        typer.echo(table(found))
        if details is not None:
            typer.echo(details(done))
        typer.echo(f"summary: {place / 'summary.md'}")


reproduce.__doc__ = EXAMPLES


def _reproduce_planted(
    preset: str, row: list[str], seed: int, jobs: int, place: Path, title: str, as_json: bool
) -> None:
    """Of the planted-symmetry benchmark, whose rows are cases."""
    from groupella.experiments import planted

    if preset not in planted.SCALES:
        raise typer.BadParameter(f"no preset {preset!r}; there are {', '.join(planted.SCALES)}")
    name = planted.SCALES[preset]
    every = planted.PRESETS[name].cases(seed)
    found = chosen_names([case.key for case in every], row)
    cases = [case for case in every if case.key in found]
    with plain_errors("reproduce"), saving(place, ["*.safetensors", "summary.json"]):
        try:
            planted.run_all(cases, place, jobs, progress=not as_json)
        finally:
            outcomes = planted.finished(every, place)
            if outcomes:
                content = planted.write_summary(place, outcomes, name, title)
    if as_json:
        typer.echo(json.dumps({"study": "planted", **content, "preset": preset}))
    else:
        typer.echo((place / "summary.md").read_text(encoding="utf-8"))
        typer.echo(f"summary: {place / 'summary.md'}")


def chosen_rows(rows: list[Row], wanted: list[str]) -> list[Row]:
    """Rows by their names, or by parts of names that are not themselves names; none for all."""
    found = chosen_names([row.name for row in rows], wanted)
    return [row for row in rows if row.name in found]


def chosen_names(names: Sequence[str], wanted: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for part in wanted or [""]:
        here = [part] if part in names else [name for name in names if part in name]
        if not here:
            raise typer.BadParameter(f"no row contains {part!r}; there are {', '.join(names)}")
        found.update(here)
    return found


def find(study: str, preset: str) -> Study:
    """The settings of a study by its name and preset."""
    import importlib

    if study not in STUDIES:
        raise typer.BadParameter(f"no study {study!r}; there are {', '.join(NAMES)}")
    module = importlib.import_module(f"groupella.experiments.{study}")
    presets: dict[str, Study] = module.PRESETS
    if preset not in presets:
        raise typer.BadParameter(f"no preset {preset!r}; there are {', '.join(presets)}")
    return presets[preset]


def find_details(study: str) -> Details | None:
    """What a study says of its rows beside the table of all."""
    import importlib

    module = importlib.import_module(f"groupella.experiments.{study}")
    found: Details | None = getattr(module, "details", None)
    return found
