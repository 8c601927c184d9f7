"""``groupella planted``: does the method name symmetries that were planted?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from groupella.cli.errors import plain_errors, saving
from groupella.runs.spelling import ArgumentError

if TYPE_CHECKING:
    from groupella.experiments.planted import CaseResult


def planted(
    preset: Annotated[
        str,
        typer.Option(
            help="quick (minutes), hour, full (hours), noisy (linear, noise to 300 %), few "
            "(select, 100 and 300 data), basin (deep, starting at the teacher), small (deep, three "
            "seeds), fresh (deep, a seed that no choice was made on)."
        ),
    ] = "quick",
    part: Annotated[
        list[str] | None,
        typer.Option(help="Run only this part: linear, deep, basin or select. Repeatable."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run only cases that match, as deep-*-n5000-s[0-2]. Repeatable."),
    ] = None,
    directory: Annotated[Path, typer.Option(help="Output directory.")] = Path("runs/planted"),
    jobs: Annotated[
        int, typer.Option(min=0, help="Cases at a time, one thread each; 0 means one per core.")
    ] = 0,
    figure: Annotated[Path | None, typer.Option(help="Write the figure to this file.")] = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write the summary to this JSON file.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the headline as JSON on the last line.")
    ] = False,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Plant symmetries in teachers and count how often they are found.

    Examples:

      groupella planted --preset quick --json

      groupella planted --part select --preset quick --json

      groupella planted --preset full --part deep --only 'deep-*-n5000-s0' --jobs 2 --figure f.png

    Finished cases are not repeated, and interrupted ones resume.
    """
    from rich.console import Console

    from groupella._files import write_text
    from groupella._schema import print_json, write_json
    from groupella.experiments.planted import PRESETS, headline, run_all, select_table
    from groupella.experiments.planted import summary as summarise
    from groupella.experiments.planted import table as tabulate

    if preset not in PRESETS:
        raise typer.BadParameter(f"choose {', '.join(PRESETS)}; got {preset!r}")
    cases = PRESETS[preset].cases()
    known = sorted({case.part for case in cases})
    for name in part or []:
        if name not in known:
            raise typer.BadParameter(f"the preset {preset} has the parts {', '.join(known)}")
    if part:
        cases = [case for case in cases if case.part in part]
    if only:
        names = [case.key for case in cases]
        for pattern in only:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise typer.BadParameter(
                    f"no case is named {pattern!r}; there are {names[0]} to {names[-1]}"
                )
        cases = [c for c in cases if any(fnmatchcase(c.key, pattern) for pattern in only)]
    with plain_errors("planted"):
        if figure is not None:
            _check_figure(figure)
        for file in filter(None, (figure, summary)):
            _check_target(file)
        with saving(directory, ["*.safetensors", *(f"{case.key}.json" for case in cases)]):
            results = run_all(cases, directory, jobs or os.cpu_count() or 1, progress)
        content = summarise(results, preset)
        console = Console(stderr=as_json)
        console.print(tabulate(results))
        if any(r.part == "select" for r in results):
            typer.echo(select_table(results), err=as_json)
        for heading in ("not_right", "dropped"):
            for line in content[heading]:
                console.print(f"{heading.replace('_', ' ')}: {line}", highlight=False)
        if summary is not None:
            write_text(summary, write_json(content, indent=1) + "\n")
        if figure is not None:
            _write_figure(results, figure)
    if as_json:
        typer.echo(print_json(headline(results)))


def _check_figure(file: Path) -> None:
    """Raise for a file format that matplotlib cannot write."""
    from matplotlib.figure import Figure

    kinds = Figure().canvas.get_supported_filetypes()
    if file.suffix.removeprefix(".").lower() not in kinds:
        raise ArgumentError(
            f"--figure {file}: the name must end in one of .{', .'.join(sorted(kinds))}"
        )


def _check_target(file: Path) -> None:
    """Create the directory of a file; raise if the file cannot be written."""
    if file.is_dir():
        raise ArgumentError(f"{file} is a directory; expected a file name")
    file.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(file.parent, os.W_OK):
        raise ArgumentError(f"{file} cannot be written: {file.parent} is read-only")


def _write_figure(results: Sequence[CaseResult], file: Path) -> None:
    from groupella._files import replacing
    from groupella.experiments.planted import figure

    with replacing(file) as temporary:
        figure(results).savefig(temporary, dpi=150, format=file.suffix.removeprefix(".").lower())
