"""Run cases in several processes: finished ones are skipped, interrupted ones resumed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Protocol

from ._outcome import Outcome
from ._store import save, saved


class Case(Protocol):
    """A thing to run: `recipe` is everything besides the key that decides its outcome."""

    @property
    def key(self) -> str: ...

    @property
    def part(self) -> str: ...

    @property
    def recipe(self) -> Mapping[str, Any]: ...

    def run(self, workspace: Path) -> Outcome:
        """The outcome; what is written to `workspace` lets an interrupted run go on."""
        ...


def run_all(
    cases: Sequence[Case], directory: Path, jobs: int = 1, progress: bool = True
) -> list[Outcome]:
    """The outcomes of all cases, in their order."""
    found = {c.key: saved(directory, c.key, c.recipe) for c in cases}
    waiting = [c for c in cases if found[c.key] is None]
    with _Bar(len(cases), len(cases) - len(waiting), progress) as bar:
        if jobs == 1:
            _one_thread()
            for case in waiting:
                found[case.key] = run_case(case, directory)
                bar.advance()
        elif waiting:
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(jobs, context, initializer=_one_thread) as pool:
                futures = {pool.submit(run_case, case, directory): case.key for case in waiting}
                try:
                    for future in as_completed(futures):
                        found[futures[future]] = future.result()
                        bar.advance()
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
    return [outcome for outcome in found.values() if outcome is not None]


def run_case(case: Case, directory: Path) -> Outcome:
    """Run one case and keep its outcome."""
    outcome = case.run(directory / case.key)
    save(directory, outcome, case.recipe)
    return outcome


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


class _Bar:
    """A progress bar over cases, or nothing."""

    def __init__(self, total: int, done: int, visible: bool) -> None:
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
        self.task = self.progress.add_task("cases", total=total, completed=done)

    def __enter__(self) -> _Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def advance(self) -> None:
        self.progress.advance(self.task)
