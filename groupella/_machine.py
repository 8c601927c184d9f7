"""What this machine has."""

from __future__ import annotations

import os


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
