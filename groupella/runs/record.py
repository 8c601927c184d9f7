"""settings.json: which job a directory holds.

It also records the budget that the number of epochs was computed from, if any, and digests of the
user's own files (data, groups), because a file name does not show that its content changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from groupella._files import write_text

from .jobs import Job

SETTINGS = "settings.json"


class RunError(Exception):
    """A directory holds another run, or none; or a run cannot be done as requested."""


@dataclass(frozen=True)
class Record:
    """`budget` is in seconds, None if the epochs were given; `files` has a digest per file."""

    job: Job
    budget: float | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, job: Job, budget: float | None = None) -> Record:
        """Return the record of a job that starts now."""
        return cls(job, budget, {name: digest(path) for name, path in job.own_files().items()})

    @classmethod
    def load(cls, directory: str | Path) -> Record:
        path = Path(directory) / SETTINGS
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            job = Job.from_dict(content["job"])
        except FileNotFoundError:
            raise RunError(f"{directory} is not a run: it has no {SETTINGS}") from None
        except NotADirectoryError:
            raise RunError(f"{directory} is a file, not the directory of a run") from None
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
            raise RunError(f"{path} is not the settings of a run: {error}") from error
        return cls(job, content.get("budget"), content.get("files", {}))

    def save(self, directory: Path) -> None:
        settings = {
            "job": self.job.as_dict(),
            "budget": self.budget,
            "files": dict(self.files),
            "seed": self.job.seed,
            "versions": versions(),
        }
        write_text(directory / SETTINGS, json.dumps(settings, indent=1) + "\n")

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


def begun(job: Job, budget: float, directory: Path) -> Job | None:
    """Return the job with the epochs and data found when it was started there, or None."""
    if not (directory / SETTINGS).exists():
        return None
    there = Record.load(directory)
    epochs = there.job.settings().epochs
    if there.budget != budget:
        was = f"{epochs} epochs" if there.budget is None else f"a budget of {there.budget:g} s"
        raise RunError(
            f"{directory} holds a run that was started with {was}, not with a budget of "
            f"{budget:g} s. Give the same again, or choose another directory"
        )
    size = there.job.train_size
    if size is not None and (job.train_size is None or size < job.train_size):
        job = replace(job, train_size=size)  # cut by `with_budget`
    return job.for_epochs(epochs)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, or of all files in a folder; "" if there is none."""
    found = hashlib.sha256()
    if path.is_file():
        found.update(path.read_bytes())
    elif path.is_dir():
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            found.update(f"{part.relative_to(path).as_posix()}\0{part.stat().st_size}\0".encode())
            found.update(part.read_bytes())
    else:
        return ""
    return found.hexdigest()


def versions() -> dict[str, str]:
    """Return the versions of everything that a result may depend on."""
    from groupella import __version__

    found = {"groupella": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "escnn"):
        found[name] = importlib.metadata.version(name)
    return found


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
