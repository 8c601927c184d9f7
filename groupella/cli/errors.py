"""How commands end: foreseeable errors and signals, as one message and an exit code.

Exit code 2 means that the command could not do its work; 1 is reserved for the answer no, so that a
script can tell the two apart; 130 and 143 are those of SIGINT (Ctrl-C) and SIGTERM. An unforeseen
error is a bug and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def plain_errors(command: str, no: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn foreseeable errors into one line on standard error that starts with the command.

    `no` lists errors that are an answer, with exit code 1, unless they are a ValueError, which is
    about arguments.
    """
    try:
        yield
    except Exception as error:
        from groupella.data import DataError
        from groupella.runs import RunError

        foreseen = (OSError, ValueError, RunError, FloatingPointError, MemoryError, DataError)
        if not isinstance(error, (*foreseen, *no)):
            raise
        words = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            words = f"not enough memory ({words})"
        typer.echo(printable(f"groupella {command}: {words}"), err=True)
        is_answer = isinstance(error, no) and not isinstance(error, ValueError)
        raise typer.Exit(1 if is_answer else 2) from error


def printable(text: str) -> str:
    """Return text for a terminal: names of files and arguments may hold control characters."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


@contextmanager
def saving(place: Path, marks: Sequence[str] = ("*.safetensors", "report.json")) -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM, after what they save, into a message and an exit code.

    A file below `place` that matches one of the `marks` shows that something was saved.
    """
    from groupella.runs.stopping import Stopped, stoppable

    try:
        with stoppable():
            yield
    except Stopped as stop:
        saved = any(any(place.rglob(mark)) for mark in marks)
        words = (
            f"interrupted; saved in {place}. Rerun the command to resume."
            if saved
            else "interrupted before anything was saved. Rerun the command to start again."
        )
        typer.echo(printable(words), err=True)
        raise typer.Exit(stop.exit_code) from stop
