"""Start the command: what may go wrong before and after it is one line, too.

Imports take a second or two. Ctrl-C meanwhile, a terminal that cannot show a character, and an
output that is full are no bugs and have no traceback.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGINT, _interrupted)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started us; the next file must not take its place
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        from .app import app

        try:
            app()
        finally:
            sys.stdout.flush()
    except ModuleNotFoundError as error:
        if error.name != "escnn":
            raise
        _end(str(error), 1)
    except OSError as error:  # standard output is full or closed
        _end(f"groupella: cannot write the output: {error.strerror or error}", 2)


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Commands that can save install their own handlers."""
    raise SystemExit(128 + number)


def _end(words: str, code: int) -> None:
    with suppress(OSError):  # it may be full, too
        print(words, file=sys.stderr, flush=True)
    # Python would try to write the rest of the output once more, and say so.
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    raise SystemExit(code) from None
