"""``groupella inspect``: what a run found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ._select import answer, show
from .errors import plain_errors
from .options import AsJson


def inspect(
    run: Annotated[Path, typer.Argument(help="Directory of a run.")],
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Write the report and the figures again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a finished run found: its tables, and where its report is.

    Examples:

      groupella inspect runs/demo-0/p4

      groupella inspect runs/demo-0/p4 --redraw

      groupella inspect runs/demo-0/p4 --json

    A report that is missing is written again.
    """
    from rich.console import Console

    from groupella.report import errors_table
    from groupella.runs.directory import load, write

    with plain_errors("inspect"):
        done = load(run)
        if redraw or not done.report.exists():
            write(done.directory, done.content)
    if as_json:
        found = {**answer(done), "job": done.job.as_dict()}
        found["selection"] = done.content.selection.as_dict()
        typer.echo(json.dumps(found))
        return
    if done.content.errors:
        Console().print(errors_table(done.content.errors))
    show(done)
