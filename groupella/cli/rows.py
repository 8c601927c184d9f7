"""What commands that run many rows share: a progress bar, and a summary that is always written."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupella.runs.engines import Engine
    from groupella.runs.run import Done
    from groupella.runs.study import Row

    Details = Callable[[Mapping[str, Done]], str]


def watched(engine: Engine, as_json: bool) -> Engine:
    """With a bar on a terminal, where runs that are done elsewhere show none of their own."""
    from groupella.runs.engines import here
    from groupella.runs.progress import counted

    return engine if engine is here else counted(engine, not as_json and sys.stderr.isatty())


@contextmanager
def summarising(
    rows: Sequence[Row], place: Path, title: str, details: Details | None = None
) -> Iterator[None]:
    """Write the summary of all rows that are finished, also where one fails or is interrupted."""
    from groupella.runs.study import finished_rows, summary, write_summary

    try:
        yield
    finally:
        done = finished_rows(rows, place)
        if done:
            more = "" if details is None else details(done)
            write_summary(place, summary(rows, done), title, more)
