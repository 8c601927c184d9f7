"""What this machine has, and how its memory is used."""

from __future__ import annotations

import ctypes
import functools
import os

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_KEPT, _MAPPED = 2**30, 2**28  # bytes


def memory_of_machine() -> int | None:
    """Return the bytes of memory that this process may use; None if unknown."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        import resource
    except ImportError:  # Windows
        return there
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return there if limit == resource.RLIM_INFINITY else min(there, limit)


def in_gibibytes(count: float) -> str:
    """Return a number of bytes as it is printed."""
    return f"{count / 2**30:.1f} GiB" if count < 100 * 2**30 else f"{count / 2**30:,.0f} GiB"


@functools.cache
def keep_freed_memory() -> bool:
    """Keep memory that is freed for the next allocation, up to 1 GiB; say whether that is possible.

    By default glibc gives the memory of large tensors back at once. Each training step then gets
    its memory from the kernel page by page, which takes up to a quarter of the step. The peak of
    memory in use does not change. Only with glibc; a choice made in the environment
    (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`) or another allocator is left alone.
    """
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")
    if any(name in os.environ for name in own):
        return False
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018
        kept = library.mallopt(_TRIM_THRESHOLD, _KEPT), library.mallopt(_MMAP_THRESHOLD, _MAPPED)
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    return all(kept)
