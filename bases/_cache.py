"""A cache of bases, in memory and on disk, keyed by their mathematical content.

The key is a digest of everything that determines a basis: the method, the shapes and the actions
of the generators, byte for byte. So equal problems share an entry, and only a new
format (`_VERSION`) invalidates entries.

Memory holds the most recently used bases, up to `_MEMORY_BYTES`. The user's cache directory holds
those that took longer to find than to read back. A file is written under a temporary
name and moved into place, so that readers in other processes see all of it or nothing; a file that
cannot be read, or whose digest is not that of its content, is a miss. `GROUPELLA_CACHE=off`
disables the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import platformdirs
import scipy.sparse as sp

from ._basis import Form
from ._orbits import Orbits

_VERSION = 2
_ABOUT = ("key", "digest")
_MEMORY_BYTES = 256 << 20
_DISK_BYTES = 64 << 20
_DISK_SECONDS = 0.05
_STALE_SECONDS = 3600.0  # after which an unfinished file is nobody's

_memory: OrderedDict[str, Form] = OrderedDict()
_held = 0
_lock = threading.Lock()


def cache_directory() -> Path:
    """The directory of cached bases: groupella/bases in the user's cache directory."""
    if given := os.environ.get("XDG_CACHE_HOME"):
        return Path(given) / "groupella" / "bases"
    return platformdirs.user_cache_path("groupella", appauthor=False) / "bases"


def clear_cache(disk: bool = True) -> None:
    """Delete every cached basis from memory and, unless `disk` is False, from disk."""
    global _held
    with _lock:
        _memory.clear()
        _held = 0
    if disk and _disk_enabled():
        for path in cache_directory().glob("*.npz"):
            with contextlib.suppress(OSError):
                path.unlink()


def content_key(parts: Iterable[object]) -> str:
    """A digest of numbers, strings, arrays and nested tuples of these."""
    digest = hashlib.blake2b(digest_size=20)
    _feed(digest, ("groupella bases", _VERSION, *parts))
    return digest.hexdigest()


def _feed(digest: hashlib.blake2b, part: object) -> None:
    if isinstance(part, tuple):
        digest.update(f"({len(part)}".encode())
        for item in part:
            _feed(digest, item)
    elif isinstance(part, np.ndarray):
        little = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        digest.update(f"[{little.dtype.str}{little.shape}".encode())
        digest.update(little.data)
    else:
        digest.update(f"{type(part).__name__}:{part!r};".encode())


def cached(key: str, compute: Callable[[], Form]) -> Form:
    """The entry of `key`, from memory, from disk, or computed and remembered."""
    with _lock:
        if key in _memory:
            _memory.move_to_end(key)
            return _memory[key]
    form = _read(key)
    if form is None:
        start = time.process_time()  # a busy machine makes nothing worth a file
        form = compute()
        if time.process_time() - start >= _DISK_SECONDS and _nbytes(form) <= _DISK_BYTES:
            _write(key, form)
    _remember(key, form)
    return form


def _remember(key: str, form: Form) -> None:
    global _held
    with _lock:
        if key in _memory or _nbytes(form) > _MEMORY_BYTES:
            return
        _memory[key] = form
        _held += _nbytes(form)
        while _held > _MEMORY_BYTES:
            _held -= _nbytes(_memory.popitem(last=False)[1])


def _packed(form: Form) -> dict[str, npt.NDArray[np.generic]]:
    if isinstance(form, Orbits):
        packed = {"labels": form.labels, "count": np.array(form.count)}
        return packed if form.signs is None else {**packed, "signs": form.signs}
    if isinstance(form, np.ndarray):
        return {"rows": form}
    shape = np.array(form.shape)
    return {"data": form.data, "indices": form.indices, "indptr": form.indptr, "shape": shape}


def _unpacked(packed: Mapping[str, npt.NDArray[Any]]) -> Form:
    if "labels" in packed:
        return Orbits(packed["labels"], packed.get("signs"), int(packed["count"]))
    if "rows" in packed:
        return packed["rows"]
    n_rows, n_columns = packed["shape"].tolist()
    parts = packed["data"], packed["indices"], packed["indptr"]
    return sp.csr_array(parts, shape=(n_rows, n_columns))


def _digest(key: str, packed: Mapping[str, npt.NDArray[Any]]) -> str:
    """What an entry of that key holds: an entry that was altered is a miss."""
    return content_key((key, *((name, packed[name]) for name in sorted(packed))))


def _nbytes(form: Form) -> int:
    return sum(array.nbytes for array in _packed(form).values())


def _disk_enabled() -> bool:
    if os.environ.get("GROUPELLA_CACHE", "").lower() in {"off", "0", "no"}:
        return False
    try:
        cache_directory()
    except RuntimeError:  # a user without a home
        return False
    return True


def _read(key: str) -> Form | None:
    if not _disk_enabled():
        return None
    path = cache_directory() / f"{key}.npz"
    try:
        if not path.exists():
            return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            if str(stored["key"]) != key:
                return None
            packed = {name: stored[name] for name in stored.files if name not in _ABOUT}
            if str(stored["digest"]) != _digest(key, packed):
                return None
            return _unpacked(packed)
    except Exception:
        # A damaged archive can raise almost anything (its CRC covers every array): a miss.
        return None


def _write(key: str, form: Form) -> None:
    if not _disk_enabled():
        return
    # A full or read-only disk costs the cache, never the answer.
    with contextlib.suppress(OSError):
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        _sweep(directory)
        handle, name = tempfile.mkstemp(dir=directory, prefix=f".{key}-", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                packed = _packed(form)
                about = {"key": np.array(key), "digest": np.array(_digest(key, packed))}
                np.savez(file, **about, **packed)
            os.replace(name, directory / f"{key}.npz")
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _sweep(directory: Path) -> None:
    """Remove what processes that were killed while they wrote have left."""
    for left in directory.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):  # somebody else was first
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                left.unlink()
