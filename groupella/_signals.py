"""The signals that stop work: Ctrl-C, a request to end, and a terminal that is closed."""

from __future__ import annotations

import signal


def stopping_signals() -> tuple[signal.Signals, ...]:
    """Return SIGINT, SIGTERM and, where it exists, SIGHUP."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))
