"""finished.json: the mark of a finished run, with the digest of every file.

It is written and synced last. `verify` compares the files with it whenever a run is opened. Files
that are drawn from report.json can be drawn again (`groupella inspect --redraw`); nothing else can
be restored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from groupella._files import digest, flush, is_temporary, write_text
from groupella._schema import SchemaError, build, read_json, write_json

from .record import SETTINGS, RunError

MARK, FORMAT, VERSION = "finished.json", "groupella-run", 1


@dataclass(frozen=True)
class Mark:
    """The digest of each file of a run, by its path relative to the run's directory, and of all."""

    format: str
    version: int
    files: Mapping[str, str]
    digest: str

    @classmethod
    def of(cls, files: Mapping[str, str]) -> Mark:
        all_of_them = hashlib.sha256(write_json(files).encode()).hexdigest()
        return cls(FORMAT, VERSION, files, all_of_them)

    @property
    def text(self) -> str:
        return write_json(asdict(self), indent=1) + "\n"


def is_marked(directory: Path) -> bool:
    """Return whether the run in the directory is finished."""
    return (directory / MARK).exists()


def mark(directory: Path) -> None:
    """Mark the run as finished, with the digests of all its files."""
    names = sorted(
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_file() and path.name != MARK and not is_temporary(path.parent)
    )
    for name in names:
        flush(directory / name)
    files = {name: digest(directory / name) for name in names}
    write_text(directory / MARK, Mark.of(files).text, durable=True)


def read_mark(directory: Path) -> Mark:
    """Return the mark of a finished run; raise `RunError` if it is not that of its settings."""
    try:
        found = build(Mark, read_json(directory / MARK))
        if (found.format, found.version) != (FORMAT, VERSION):
            raise SchemaError(f"it is {found.format} {found.version}, not {FORMAT} {VERSION}")
        if (directory / MARK).read_text(encoding="utf-8") != Mark.of(found.files).text:
            raise SchemaError("it was altered")
    except (ValueError, OSError) as error:
        raise RunError(
            f"{directory / MARK} does not mark a finished run: {error}. Delete this file and rerun "
            "the command, which resumes from the last checkpoint"
        ) from error
    settings = directory / SETTINGS
    if not settings.is_file() or found.files.get(SETTINGS) != digest(settings):
        raise RunError(
            f"{directory}: {MARK} and {SETTINGS} do not belong together, since one of them was "
            "altered or comes from another run. Restore both from a copy, or run again in another "
            "directory"
        )
    return found


def verify(directory: Path, drawn: Iterable[str], redrawing: bool = False) -> None:
    """Raise `RunError` for the first file that is missing or differs from when the run finished.

    Parameters
    ----------
    directory
        The directory of a finished run.
    drawn
        Files, or directories with a final slash, that can be drawn again.
    redrawing
        Whether they are about to be drawn again, and need not be sound.
    """
    found = read_mark(directory)
    for name, wanted in found.files.items():
        can_redraw = any(name == d or (d.endswith("/") and name.startswith(d)) for d in drawn)
        if redrawing and can_redraw:
            continue
        path = directory / name
        if path.is_file() and digest(path) == wanted:
            continue
        what = "was altered after the run finished" if path.exists() else "is missing"
        remedy = (
            f"groupella inspect {directory} --redraw writes it again"
            if can_redraw
            else "Restore it from a copy, or run again in another directory"
        )
        raise RunError(f"{path} {what}. {remedy}")
