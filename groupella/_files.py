"""Small files, written so that a reader finds the old content or the new, never half of it; and
directories in which one process at a time works."""

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
def replacing(path: str | Path) -> Iterator[Path]:
    """A name to write to; the file takes the place of `path` when all went well.

    The directory is made where it is missing.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> Path:
    """Write `text` atomically, in a directory that is made where it is missing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


class InUseError(OSError):
    """A directory in which another process works."""


@contextmanager
def alone(directory: str | Path, patience: float = 10.0) -> Iterator[None]:
    """Work in a directory, which is made where it is missing, while no other process does.

    One that ends at once (it was just asked to stop) is waited for. The system forgets the claim
    when this process, and all that it has forked meanwhile, have ended, in whatever way; nothing is
    written. Where directories cannot be claimed (Windows, some network file systems) there is no
    such protection.
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
            _release(handle)
    finally:
        os.close(handle)


def _claim(handle: int) -> bool:
    """Whether the directory is ours, or cannot be anybody's."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _release(handle: int) -> None:
    """Also for processes forked meanwhile, which hold the handle too."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_UN)
