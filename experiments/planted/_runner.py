"""Run cases in several processes: finished ones are skipped, interrupted ones resumed.

A finished case is one JSON file. It is used again only if it was written by the same recipe: the
settings that decide a case's result.
"""

from __future__ import annotations

import json
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from groupella._files import InUseError, alone, write_text
from groupella._schema import build
from groupella.runs.engines import Bar, here, processes
from groupella.runs.record import RunError

from ._result import CaseResult

BATCH = 20
Result = TypeVar("Result")


class Case(Protocol):
    """One thing to run.

    `recipe` is everything besides the key that decides its result. A short case takes a few seconds
    and keeps nothing in its workspace.
    """

    @property
    def key(self) -> str: ...

    @property
    def part(self) -> str: ...

    @property
    def is_short(self) -> bool: ...

    @property
    def recipe(self) -> Mapping[str, Any]: ...

    def run(self, workspace: Path) -> CaseResult:
        """Return the result; files in `workspace` let an interrupted run resume."""
        ...


def run_all(
    cases: Sequence[Case], directory: Path, jobs: int = 1, progress: bool = True
) -> list[CaseResult]:
    """Return the results of all cases, in their order."""
    waiting = [c for c in cases if saved(directory, c) is None]
    pieces = {batch.name: batch for batch in batches(waiting, directory, jobs)}
    engine = here if jobs == 1 else processes(jobs)
    bar = Bar("cases", len(cases), len(cases) - len(waiting), progress)
    with bar, one_thread(), closing(engine(pieces)) as done:
        for name in done:
            bar.advance(len(pieces[name].cases))
    missing = [c.key for c in cases if saved(directory, c) is None]
    if missing:
        raise RunError(f"the result of {missing[0]} was written to {directory} but is not there")
    return finished(cases, directory)


def finished(cases: Sequence[Case], directory: Path) -> list[CaseResult]:
    """The results of those cases that are finished there."""
    found = (saved(directory, case) for case in cases)
    return [result for result in found if result is not None]


def saved(directory: Path, case: Case) -> CaseResult | None:
    """The result of a finished case; None when there is none of its recipe."""
    return read_result(directory / f"{case.key}.json", case.recipe, CaseResult)


def read_result(path: Path, recipe: Mapping[str, Any], kind: type[Result]) -> Result | None:
    """Return the result in a file; None if there is no file, or it is of another recipe.

    Raises
    ------
    RunError
        If the file is damaged, or is not a result.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["recipe"] != json.loads(json.dumps(recipe)):
            return None
        return build(kind, content["result"])
    except FileNotFoundError:
        return None
    except (LookupError, TypeError, ValueError) as error:
        raise RunError(f"{path} is not the result of a case: {error}. Delete it") from error


@dataclass(frozen=True)
class Batch:
    """Cases that run one after the other; finished ones are skipped."""

    cases: tuple[Case, ...]
    directory: Path

    @property
    def name(self) -> str:
        first, last = self.cases[0].key, self.cases[-1].key
        return first if first == last else f"{first} to {last}"

    def do(self, progress: bool) -> None:
        for case in self.cases:
            if saved(self.directory, case) is None:
                try:
                    run_case(case, self.directory)
                except InUseError as error:
                    raise RunError(str(error)) from error
                except Exception as error:
                    story = traceback.format_exc()[-4000:]
                    raise RunError(f"{case.key} failed: {error}\n{story}") from error


def batches(cases: Sequence[Case], directory: Path, jobs: int) -> list[Batch]:
    """One batch for each long case, and batches of short ones: a process takes time to start."""
    size = BATCH if jobs > 1 else 1
    short = [c for c in cases if c.is_short]
    together = [tuple(short[i : i + size]) for i in range(0, len(short), size)]
    return [Batch(one, directory) for one in [*((c,) for c in cases if not c.is_short), *together]]


def run_case(case: Case, directory: Path) -> CaseResult:
    """Run one case and save its result. Files of another recipe in its workspace are removed."""
    workspace = directory / case.key
    with nullcontext() if case.is_short else _prepared(workspace, case.recipe):
        result = case.run(workspace)
        content = {"recipe": case.recipe, "result": asdict(result)}
        write_text(directory / f"{case.key}.json", json.dumps(content, indent=1) + "\n")
    return result


@contextmanager
def _prepared(workspace: Path, recipe: Mapping[str, Any]) -> Iterator[None]:
    """A workspace that no other process uses and that holds nothing of another recipe."""
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
    """One thread inside, as in the processes of `processes`: results do not depend on `jobs`."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
