"""A bar that counts pieces of work, on standard error."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing

from .engines import Engine, Work


class Bar:
    """How many of `total` pieces are done, and how long the rest will take; or nothing."""

    def __init__(self, what: str, total: int, done: int, visible: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not visible,
        )
        self.task = self.progress.add_task(what, total=total, completed=done)

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def advance(self, pieces: int = 1) -> None:
        self.progress.advance(self.task, pieces)


def counted(engine: Engine, visible: bool) -> Engine:
    """The engine, with a bar over its pieces of work."""

    def run(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        with Bar("runs", len(pieces), 0, visible) as bar, closing(engine(pieces)) as finished:
            for name in finished:
                bar.advance()
                yield name

    return run
