"""``groupella reproduce``: one of the paper's tables."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from groupella import experiments
from groupella._schema import print_json
from groupella.cli.errors import plain_errors, saving
from groupella.cli.options import AsJson, DataDir, Epochs, Seed
from groupella.runs.record import check_ours
from groupella.runs.study import SUMMARIES, Details, Study

SCALES = ("quick", "hour", "paper")
BENCHMARKS = ("planted", "peers")  # studies whose rows are cases
CASES = "*-*.json"  # files of finished cases


def studies() -> list[str]:
    """The modules of `experiments/`: each is a study, found because the file is there."""
    found = pkgutil.iter_modules(experiments.__path__)
    return [m.name for m in found if not m.ispkg and not m.name.startswith("_")]


def names() -> list[str]:
    """All that can be reproduced."""
    return [*studies(), "physics", *BENCHMARKS]


def reproduce(
    study: Annotated[
        str, typer.Argument(help=f"One of {', '.join(names())}.", autocompletion=names)
    ],
    preset: Annotated[
        str, typer.Option(help="quick, hour or paper.", autocompletion=lambda: list(SCALES))
    ] = "quick",
    row: Annotated[
        list[str] | None,
        typer.Option(help="Run only this row, or all rows whose names contain it. Repeatable."),
    ] = None,
    seed: Seed = 0,
    jobs: Annotated[
        int,
        typer.Option(
            min=1,
            help="Rows at a time, each in a process with one thread. 1 runs in this process on all "
            "threads.",
        ),
    ] = 1,
    epochs: Epochs = None,
    out: Annotated[
        Path | None, typer.Option(help="Output directory (default: runs/STUDY-PRESET-SEED).")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run one of the paper's studies and print the results beside the published numbers.

    toy: table 1, digits in quadrants. cifar10: table 2, eleven networks. multigroup: table 3, five
    data sets. separable: roto-translation filters. layers: the structure of each layer. planted:
    symmetries that are known to be there; `groupella planted` has more presets and options. peers:
    thirteen methods of symmetry discovery on the same tasks. physics: laws that obey O(3), SO(3),
    one axis, O(5), the Lorentz group or nothing.

    Presets: quick takes minutes on two cores; hour takes as many epochs per row as fit into an
    hour, which is measured first (planted, peers: more cases); paper is the published protocol,
    meant for a GPU (planted, peers: all cases).

    Examples:

      groupella reproduce toy --preset quick

      groupella reproduce multigroup --preset hour --row rotated --data-dir my-data

      groupella reproduce cifar10 --preset hour --jobs 2 --json

      groupella reproduce planted --preset quick --jobs 2

      groupella reproduce peers --preset quick --json

    A failing row does not abort the others. Finished rows are not repeated, and interrupted ones
    resume. The summary in the output directory has all rows that are finished there.
    """
    from groupella.runs.engines import counted, here, processes
    from groupella.runs.study import make_ready, perform, summarising, summary, table

    place = out or Path("runs") / f"{study}-{preset}-{seed}"
    title = f"{study}, preset {preset}, seed {seed}"
    if study in BENCHMARKS:
        for option, given in (("--epochs", epochs), ("--data-dir", data_dir)):
            if given is not None:
                raise typer.BadParameter(f"the study {study} has no {option}")
        _reproduce_cases(study, preset, row or [], seed, jobs, place, title, as_json)
        return
    if study == "physics":
        if data_dir is not None:
            raise typer.BadParameter("the study physics has no --data-dir")
        _reproduce_physics(preset, row or [], seed, epochs, place, as_json)
        return
    chosen, details = find(study, preset), find_details(study)
    every = chosen.rows(seed)
    wanted = chosen_names([r.name for r in every], row or [])
    rows = [r for r in every if r.name in wanted]
    if epochs is not None:
        rows = [replace(r, job=r.job.for_epochs(epochs)) for r in rows]
    with plain_errors("reproduce"), saving(place), summarising(every, place, title, details):
        done = perform(
            rows,
            place,
            engine=counted(here if jobs == 1 else processes(jobs), not as_json),
            budget=chosen.budget if epochs is None else None,
            data_dir=data_dir,
            check=lambda left: make_ready(left, data_dir),
            on_done=lambda r, one: typer.echo(f"{r.name}: {one.report}", err=True),
        )
    found = summary(rows, done)
    if as_json:
        typer.echo(print_json({"study": study, "preset": preset, "rows": found}))
    else:
        typer.echo(table(found))
        if details is not None:
            typer.echo(details(done))
        typer.echo(f"summary: {place / 'summary.md'}")


def _reproduce_cases(
    study: str,
    preset: str,
    row: list[str],
    seed: int,
    jobs: int,
    place: Path,
    title: str,
    as_json: bool,
) -> None:
    """Run a benchmark whose rows are cases: of planted symmetries, or of methods."""
    package = _module(study)
    if preset not in package.SCALES:
        raise typer.BadParameter(f"no preset {preset!r}; there are {', '.join(package.SCALES)}")
    name = package.SCALES[preset]
    every = package.PRESETS[name].cases(seed)
    found = chosen_names([case.key for case in every], row)
    cases = [case for case in every if case.key in found]
    with plain_errors("reproduce"), saving(place, ["*.safetensors", "summary.json"]):
        check_ours(place, SUMMARIES, CASES)
        try:
            package.run_all(cases, place, jobs, progress=not as_json)
        finally:
            outcomes = package.finished(every, place)
            if outcomes:
                content = package.write_summary(place, outcomes, name, title)
    if as_json:
        typer.echo(print_json({"study": study, **content, "preset": preset}))
    else:
        typer.echo((place / "summary.md").read_text(encoding="utf-8"))
        typer.echo(f"summary: {place / 'summary.md'}")


def _reproduce_physics(
    preset: str, row: list[str], seed: int, epochs: int | None, place: Path, as_json: bool
) -> None:
    """Run the laws of physics, whose rows are tasks."""
    from groupella._files import write_text
    from groupella.experiments import physics

    if preset not in physics.PRESETS:
        raise typer.BadParameter(f"no preset {preset!r}; there are {', '.join(physics.PRESETS)}")
    study = physics.PRESETS[preset]
    if epochs is not None:
        study = replace(study, training={**study.training, "epochs": epochs})
    cases = study.cases(seed)
    found = chosen_names([task for task, _ in cases], row)

    def say(line: str) -> None:
        typer.echo(line, err=True)

    with plain_errors("reproduce"), saving(place):
        check_ours(place, SUMMARIES, CASES)
        done = physics.run_all([c for c in cases if c[0] in found], study, place, say)
        content = physics.summary(done)
        write_text(place / "summary.md", physics.table(done))
    if as_json:
        typer.echo(print_json({"study": "physics", "preset": preset, **content}))
    else:
        typer.echo(physics.table(done))
        typer.echo(f"summary: {place / 'summary.md'}")


def chosen_names(names: Sequence[str], wanted: Sequence[str]) -> set[str]:
    """The names that are wanted, or contain what is wanted; all if nothing is."""
    found: set[str] = set()
    for part in wanted or [""]:
        here = [part] if part in names else [name for name in names if part in name]
        if not here:
            raise typer.BadParameter(f"no row contains {part!r}; there are {', '.join(names)}")
        found.update(here)
    return found


def find(study: str, preset: str) -> Study:
    """The settings of a study by its name and preset."""
    if study not in studies():
        raise typer.BadParameter(f"no study {study!r}; there are {', '.join(names())}")
    presets: Mapping[str, Study] = _module(study).PRESETS
    if preset not in presets:
        raise typer.BadParameter(f"no preset {preset!r}; there are {', '.join(presets)}")
    return presets[preset]


def find_details(study: str) -> Details | None:
    """What a study prints below its table, if anything: the function `details` of its module."""
    return getattr(_module(study), "details", None)


def _module(study: str) -> ModuleType:
    return importlib.import_module(f"groupella.experiments.{study}")
