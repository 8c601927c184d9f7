"""settings.json: which job a directory holds.

It also records the budget that the number of epochs was computed from, if any, and digests of the
user's own files (data, groups), because a file name does not show that its content changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from groupella._files import digest as file_digest
from groupella._files import write_text
from groupella._schema import build, read_json, write_json
from groupella._versions import versions as versions

from .jobs import Job

SETTINGS = "settings.json"


class RunError(Exception):
    """A directory holds another run, or none; or a run cannot be done as requested."""


@dataclass(frozen=True)
class Record:
    """The content of settings.json.

    Parameters
    ----------
    job
        The job that is run.
    budget
        Seconds from which its epochs were computed, None if they were given.
    asked
        With a budget: the job before it was cut to the budget.
    files
        A digest per file of the user.
    seed, versions
        The seed, and the versions of the software.
    """

    job: Job
    budget: float | None = None
    asked: Job | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, budget: float | None = None, asked: Job | None = None) -> Record:
        """Return the record of a job that starts now."""
        files = {name: digest(path) for name, path in job.own_files().items()}
        return cls(job, budget, asked, files, job.seed, versions())

    @classmethod
    def load(cls, directory: str | Path) -> Record:
        path = Path(directory) / SETTINGS
        try:
            found = build(cls, read_json(path))
            for job in filter(None, (found.job, found.asked)):
                job.check()
        except FileNotFoundError:
            saved = (Path(directory) / "report.json").exists()
            advice = ". Open what Answer.save wrote with groupella.load" if saved else ""
            raise RunError(f"{directory} is not a run: it has no {SETTINGS}{advice}") from None
        except NotADirectoryError:
            raise RunError(f"{directory} is a file, not the directory of a run") from None
        except ValueError as error:
            raise RunError(f"{path} is not the settings of a run: {error}") from error
        return found

    def save(self, directory: Path) -> None:
        text = write_json(asdict(self), indent=1) + "\n"
        write_text(directory / SETTINGS, text, durable=True)

    def require(self, job: Job, directory: Path) -> None:
        """Raise an error that names every difference between `job` and the job in `directory`."""
        differing = [
            f"{name}={there!r} there, {here!r} here"
            for name, there, here in _differences(self.job.as_dict(), job.as_dict())
        ]
        if not differing:
            differing = [
                f"{name} has changed since the run started"
                for name, path in job.own_files().items()
                if self.files.get(name) not in (None, digest(path))
            ]
        if differing:
            raise RunError(
                f"{directory} holds another run: {', '.join(differing)}. Choose another directory"
            )


def check_ours(directory: Path, files: Iterable[str], beside: str = f"*/{SETTINGS}") -> None:
    """Raise if a file that is about to be written is there, but no run beside it.

    Commands that run several jobs write a summary beside the directories of the runs, or beside
    other files that match the pattern `beside`.
    """
    there = [name for name in files if (directory / name).exists()]
    if there and not any(directory.glob(beside)):
        raise RunError(
            f"{directory} holds {there[0]} but no run, so that it is somebody else's. Choose "
            "another directory"
        )


def begun(job: Job, budget: float, directory: Path) -> Job | None:
    """Return the job with the epochs and data found when it was started there, or None."""
    if not (directory / SETTINGS).exists():
        return None
    there = Record.load(directory)
    epochs = there.job.epochs
    if there.budget != budget:
        was = f"{epochs} epochs" if there.budget is None else f"a budget of {there.budget:g} s"
        raise RunError(
            f"{directory} holds a run that was started with {was}, not with a budget of "
            f"{budget:g} s. Give the same again, or choose another directory"
        )
    Record(there.asked or there.job, files=there.files).require(job, directory)
    return there.job


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files in a folder; "" if there is none."""
    found = hashlib.sha256()
    if path.is_file():
        return file_digest(path)
    if path.is_dir():
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            found.update(f"{part.relative_to(path).as_posix()}\0{part.stat().st_size}\0".encode())
            found.update(file_digest(part).encode())
        return found.hexdigest()
    return ""


def _differences(
    there: Mapping[str, Any], here: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Return the name and both values of every difference, also inside mappings."""
    for name in dict.fromkeys([*here, *there]):
        theirs, mine = there.get(name), here.get(name)
        if isinstance(theirs, Mapping) and isinstance(mine, Mapping):
            yield from _differences(theirs, mine)
        elif theirs != mine:
            yield name, theirs, mine
