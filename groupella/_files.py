"""Atomic file writes, and directories that one process at a time works in."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_lent: ContextVar[frozenset[Path]] = ContextVar("_lent", default=frozenset())


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
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "Is a directory; expected a file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    # In a directory of its own, which is new and has an unpredictable name: nobody can put a link
    # in its place, and what other libraries leave beside the file goes with it.
    folder = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}.tmp")
    folder.mkdir(mode=0o700)
    try:
        temporary = folder / path.name
        yield temporary
        if durable:
            flush(temporary)
        os.replace(temporary, path)
    except OSError as error:
        if error.errno and error.filename is None:  # of a write to a full disk
            error.filename = str(path)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if fcntl is None:  # Windows has neither directory handles nor a signal 0
        return
    if durable:
        flush(path.parent)
    for stale in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        owner = stale.name.removeprefix(f".{path.name}.").partition(".")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(stale, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Remove what killed processes left behind in a directory that this one has claimed."""
    for stale in directory.rglob(".*.tmp"):
        shutil.rmtree(stale, ignore_errors=True)


def file_name(text: str) -> str:
    """Return `text` with everything but letters, digits, - and + replaced by -."""
    return "".join(c if c.isalnum() or c in "-+" else "-" for c in text)


def is_temporary(path: Path) -> bool:
    """Return whether `replacing` may have left this behind."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()


def write_text(path: str | Path, text: str, *, durable: bool = False) -> Path:
    """Write `text` atomically as UTF-8 and return the path; see `replacing`."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


class InUseError(OSError):
    """Another process works in the directory."""


@contextmanager
def alone(directory: str | Path, patience: float = 10.0, *, lend: bool = False) -> Iterator[None]:
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
    lend
        Whether a claim inside the block, by the same thread, is granted.

    Raises
    ------
    InUseError
        If another process still holds the claim after that time.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    key, lent = directory.resolve(), _lent.get()
    token = _lent.set(lent | {key} if lend else lent - {key})
    try:
        with nullcontext() if key in lent or fcntl is None else _locked(directory, patience):
            yield
    finally:
        _lent.reset(token)


@contextmanager
def _locked(directory: Path, patience: float) -> Iterator[None]:
    end = time.monotonic() + patience
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY)
        if _claim(handle) and _is_at(directory, handle):
            break
        os.close(handle)
        if time.monotonic() > end:
            raise InUseError(
                f"{directory} is in use, by another process or by another training in this "
                "one; wait until it has ended, or choose another directory"
            )
        time.sleep(0.05)
    try:
        try:
            yield
        finally:
            # Processes forked meanwhile hold the handle too, so closing it is not enough.
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _is_at(directory: Path, handle: int) -> bool:
    """Whether the open directory is still there: who held it before may have removed it."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(handle))
    except FileNotFoundError:
        return False


def _claim(handle: int) -> bool:
    """Whether the directory is ours, or cannot be locked at all."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def flush(path: Path) -> None:
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
