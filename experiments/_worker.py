"""A process that does one task, as long as the process that started it lives.

It reads the task from its standard input as a line of JSON. When the input then closes it stops as
if by SIGTERM: training saves a checkpoint first. Standard output is for what went wrong, as JSON;
everything that is printed goes to standard error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from ._engines import Task
from ._stopping import Received, Stopped, stoppable


def main() -> int:
    answer = os.dup(1)
    os.dup2(2, 1)
    line = sys.stdin.buffer.readline()
    if not line:
        return 128 + signal.SIGTERM
    task = Task.from_dict(json.loads(line))
    try:
        with stoppable() as received:
            threading.Thread(target=_watch, args=(received,), daemon=True).start()
            failure = task.attempt()
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
