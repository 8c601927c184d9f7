"""``groupella inspect``: what a run found."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from groupella._schema import print_json

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

    All files of the run are verified first. --redraw writes again what is drawn from report.json.
    """
    from rich.console import Console

    from groupella.report import errors_table
    from groupella.runs.directory import load
    from groupella.runs.directory import redraw as draw_again

    with plain_errors("inspect"):
        done = draw_again(run) if redraw else load(run)
    if as_json:
        found = {**answer(done), "job": done.job.as_dict()}
        found["selection"] = done.content.selection.as_dict()
        typer.echo(print_json(found))
        return
    if done.content.errors:
        Console().print(errors_table(done.content.errors))
    show(done)
