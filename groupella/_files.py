"""Atomic file writes, and directories that one process at a time works in."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def replacing(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `path` if the block succeeds.

    A reader finds the old content or the new, never half of it. The directory is created if it is
    missing. Temporary files that dead processes left beside `path` are removed.

    Parameters
    ----------
    path
        The file to write or replace.
    durable
        Whether to flush the file and its directory to the disk, so that the new content survives a
        crash of the machine.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        if durable:
            _flush(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if fcntl is None:  # Windows has neither directory handles nor a signal 0
        return
    if durable:
        _flush(path.parent)
    for stale in path.parent.glob(f".{path.name}.*.tmp"):
        owner = stale.name.rsplit(".", 2)[-2]
        if owner.isdigit() and not _is_alive(int(owner)):
            with suppress(OSError):
                stale.unlink()


def file_name(text: str) -> str:
    """Return `text` with everything but letters, digits, - and + replaced by -."""
    return "".join(c if c.isalnum() or c in "-+" else "-" for c in text)


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` atomically as UTF-8 and return the path; see `replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


class InUseError(OSError):
    """Another process works in the directory."""


@contextmanager
def alone(directory: str | Path, patience: float = 10.0) -> Iterator[None]:
    """Work in a directory while no other process does; it is created if it is missing.

    The system drops the claim when this process and all that it forked have ended, however they
    ended. No file is written. Where directories cannot be locked (Windows, some network file
    systems) there is no such protection.

    Parameters
    ----------
    directory
        The directory to claim.
    patience
        Seconds to wait for another process, which may be about to end.

    Raises
    ------
    InUseError
        If another process still holds the claim after that time.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        end = time.monotonic() + patience
        while not _claim(handle):
            if time.monotonic() > end:
                raise InUseError(
                    f"{directory} is in use, by another process or by another training in this "
                    "one; wait until it has ended, or choose another directory"
                )
            time.sleep(0.05)
        try:
            yield
        finally:
            # Processes forked meanwhile hold the handle too, so closing it is not enough.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _claim(handle: int) -> bool:
    """Whether the directory is ours, or cannot be locked at all."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _flush(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
