"""Failures that can be foreseen, as one message and exit code 2.

Exit code 1 is kept for an answer that is no, so that a script can tell the two apart. What is not
foreseen is a fault of this program and keeps its traceback.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def plain_errors(command: str, no: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn foreseeable errors inside into a line on standard error that begins with the command.

    no: errors that are an answer, with exit code 1, unless they are of wrong arguments (ValueError)
    """
    try:
        yield
    except Exception as error:
        from groupella.data import DataError
        from groupella.runs.record import RunError

        arguments = (OSError, ValueError, RunError, FloatingPointError, MemoryError, DataError)
        if not isinstance(error, (*arguments, *no)):
            raise
        words = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            words = f"not enough memory ({words})"
        typer.echo(f"groupella {command}: {words}", err=True)
        is_answer = isinstance(error, no) and not isinstance(error, ValueError)
        raise typer.Exit(1 if is_answer else 2) from error
