"""A process that does one piece of work, as long as the process that started it lives.

It reads what to do from its standard input, pickled. When the input then closes it stops as
if by SIGTERM: training saves a checkpoint first. Standard output is for what went wrong, as JSON;
everything that is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import threading

from .engines import Work, attempt
from .stopping import Received, Stopped, stoppable


def main() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)
    try:
        work: Work = pickle.load(sys.stdin.buffer)
    except EOFError:
        return 128 + signal.SIGTERM
    try:
        with stoppable() as received:
            threading.Thread(target=_watch, args=(received,), daemon=True).start()
            failure = attempt(work)
    except Stopped as stop:
        return stop.exit_code
    if failure is not None:
        os.write(answer, json.dumps(failure).encode())
    return 0


def _watch(received: Received) -> None:
    """Wait for the end of the input. A second signal would stop without a checkpoint: send one."""
    while os.read(0, 1024):
        pass
    if received.first is None:
        signal.raise_signal(signal.SIGTERM)
