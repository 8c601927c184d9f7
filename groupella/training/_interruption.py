"""SIGINT, SIGTERM, SIGHUP and a time limit as a flag that training checks between batches.

The loop finishes its batch and saves before it stops, so an interruption never leaves a half-saved
state. A second signal has its usual effect (Ctrl-C twice stops at once), and so has one that is
still unhandled at the end.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

from groupella._signals import stopping_signals


class Interruption:
    """Context manager; true once a signal arrived inside it, or `seconds` have passed.

    `signal` is the signal received, or None.
    """

    SIGNALS = stopping_signals()

    def __init__(self, seconds: float | None = None) -> None:
        self.signal: signal.Signals | None = None
        self._end = None if seconds is None else time.monotonic() + seconds
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        # Python delivers signals to the main thread only; elsewhere there is nothing to install.
        if threading.current_thread() is threading.main_thread():
            for number in self.SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as nohup does
                    self._previous[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()
        if self.signal is not None and error is None:
            signal.raise_signal(self.signal)  # nobody looked any more

    def __bool__(self) -> bool:
        return self.signal is not None or self.is_late

    @property
    def is_late(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            # None: the handler was not installed from Python and cannot be put back from it.
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._previous = {}
