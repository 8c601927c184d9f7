"""Ctrl-C and SIGTERM on the command line: a message, and the exit code of the signal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def saving(place: Path, marks: Sequence[str] = ("*.safetensors", "report.json")) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM, after what they save, into a message and the exit code of each.

    A file below `place` whose name matches one of the `marks` shows that something is saved.
    """
    from groupella.runs.stopping import Stopped, stoppable

    try:
        with stoppable():
            yield
    except Stopped as stop:
        saved = any(any(place.rglob(mark)) for mark in marks)
        typer.echo(
            f"interrupted; saved in {place}. The same command goes on."
            if saved
            else "interrupted before there was anything to save. The same command starts anew.",
            err=True,
        )
        raise typer.Exit(stop.exit_code) from stop
