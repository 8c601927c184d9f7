"""SIGINT (Ctrl-C), SIGTERM and SIGHUP as one exception that knows which of them it was.

`groupella.training.fit` has its own handlers while it runs: it finishes its step, saves, and
raises. Elsewhere all raise KeyboardInterrupt. A SIGHUP that is ignored (nohup) stays so. Which
signal it was is read from Python's wake-up descriptor, to which every signal is written whatever
its handler.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from groupella._signals import stopping_signals


class Stopped(KeyboardInterrupt):
    """Work was stopped by a signal; what could be saved is saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.signal = signal.Signals(number)

    @property
    def exit_code(self) -> int:
        """The exit code of shells: 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.signal


class Received:
    """Return the first signal that stopped this process, or None."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._seen = b""

    @property
    def writer(self) -> int:
        return self._writer

    @property
    def first(self) -> int | None:
        with suppress(BlockingIOError):
            self._seen += os.read(self._reader, 256)
        stops = [n for n in self._seen if n in stopping_signals()]
        return stops[0] if stops else None

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)


@contextmanager
def stoppable() -> Iterator[Received]:
    """Turn SIGINT, SIGTERM and SIGHUP into `Stopped`, after inner handlers have run."""
    received = Received()
    # Python delivers signals to the main thread only; elsewhere there is nothing to install.
    here = threading.current_thread() is threading.main_thread()
    before: dict[signal.Signals, Any] = {}
    if here:
        for number in stopping_signals():
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, signal.default_int_handler)
        woken = signal.set_wakeup_fd(received.writer, warn_on_full_buffer=False)
    try:
        yield received
    except KeyboardInterrupt as error:
        raise Stopped(received.first or signal.SIGINT) from error
    finally:
        if here:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        received.close()
