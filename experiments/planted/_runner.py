"""Run cases in several processes: finished ones are skipped, interrupted ones resumed."""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from groupella._files import InUseError, alone, write_text
from groupella.runs.engines import Bar, here, processes
from groupella.runs.record import RunError

from ._outcome import Outcome
from ._store import save, saved

BATCH = 20


class Case(Protocol):
    """A thing to run: `recipe` is everything besides the key that decides its outcome. A short case
    takes a few seconds and keeps nothing in its workspace."""

    @property
    def key(self) -> str: ...

    @property
    def part(self) -> str: ...

    @property
    def is_short(self) -> bool: ...

    @property
    def recipe(self) -> Mapping[str, Any]: ...

    def run(self, workspace: Path) -> Outcome:
        """The outcome; what is written to `workspace` lets an interrupted run go on."""
        ...


def run_all(
    cases: Sequence[Case], directory: Path, jobs: int = 1, progress: bool = True
) -> list[Outcome]:
    """The outcomes of all cases, in their order."""
    waiting = [c for c in cases if saved(directory, c.key, c.recipe) is None]
    pieces = {batch.name: batch for batch in batches(waiting, directory, jobs)}
    engine = here if jobs == 1 else processes(jobs)
    bar = Bar("cases", len(cases), len(cases) - len(waiting), progress)
    with bar, one_thread(), closing(engine(pieces)) as finished:
        for name in finished:
            bar.advance(len(pieces[name].cases))
    found = {c.key: saved(directory, c.key, c.recipe) for c in cases}
    missing = [key for key, outcome in found.items() if outcome is None]
    if missing:
        raise RunError(f"the outcome of {missing[0]} was written to {directory} but is not there")
    return [outcome for outcome in found.values() if outcome is not None]


@dataclass(frozen=True)
class Batch:
    """Cases that are run one after the other; those that are finished are left out."""

    cases: tuple[Case, ...]
    directory: Path

    @property
    def name(self) -> str:
        first, last = self.cases[0].key, self.cases[-1].key
        return first if first == last else f"{first} to {last}"

    def do(self, progress: bool) -> None:
        for case in self.cases:
            if saved(self.directory, case.key, case.recipe) is None:
                try:
                    run_case(case, self.directory)
                except InUseError as error:
                    raise RunError(str(error)) from error
                except Exception as error:
                    story = traceback.format_exc()[-4000:]
                    raise RunError(f"{case.key} failed: {error}\n{story}") from error


def batches(cases: Sequence[Case], directory: Path, jobs: int) -> list[Batch]:
    """Cases that take minutes alone, short ones together: a process takes seconds to start."""
    size = BATCH if jobs > 1 else 1
    short = [c for c in cases if c.is_short]
    together = [tuple(short[i : i + size]) for i in range(0, len(short), size)]
    return [Batch(one, directory) for one in [*((c,) for c in cases if not c.is_short), *together]]


def run_case(case: Case, directory: Path) -> Outcome:
    """Run one case and keep its outcome. What another recipe left in its workspace is removed."""
    workspace = directory / case.key
    with nullcontext() if case.is_short else _prepared(workspace, case.recipe):
        outcome = case.run(workspace)
        save(directory, outcome, case.recipe)
    return outcome


@contextmanager
def _prepared(workspace: Path, recipe: Mapping[str, Any]) -> Iterator[None]:
    """A workspace in which no other process works and nothing is of another recipe."""
    with alone(workspace):
        note = workspace / "recipe.json"
        text = json.dumps(recipe, indent=1, sort_keys=True) + "\n"
        if not note.exists() or note.read_text(encoding="utf-8") != text:
            _empty(workspace)
        write_text(note, text)
        yield


def _empty(directory: Path) -> None:
    """Remove what is in a directory, but not the directory, which is claimed."""
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread inside, as in the processes of `processes`: outcomes do not depend on `jobs`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
