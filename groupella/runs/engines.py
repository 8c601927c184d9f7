"""Engines: ways to get work done, one after the other here or several at a time elsewhere.

An engine takes named pieces of work and yields the name of each as it is finished. A piece that
fails does not keep others from being done; it is named in an error at the end. Closing an engine
stops what is under way, which saves first.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .budget import with_budget
from .jobs import Job
from .record import RunError, begun
from .run import finished, run

PAUSE = 0.1
WORKER = "from groupella.runs._worker import main; sys.exit(main())"


class Work(Protocol):
    """Something to do, which can be pickled; done again after it was stopped, it goes on."""

    def do(self, progress: bool) -> None: ...


@dataclass(frozen=True)
class Task:
    """A job and its directory; `budget` is in seconds, None where the job sets its epochs."""

    job: Job
    directory: Path
    budget: float | None = None
    data_dir: str | None = None

    @property
    def settled(self) -> Job | None:
        """The job with its number of epochs, or None where its budget is still to be measured."""
        if self.budget is None:
            return self.job
        return begun(self.job, self.budget, self.directory)

    @property
    def is_finished(self) -> bool:
        return finished(self.directory, self.settled or self.job)

    def do(self, progress: bool) -> None:
        """All of it, or what is left of it."""
        job = self.settled
        if job is None:
            assert self.budget is not None
            job = with_budget(self.job, self.budget, self.data_dir)
        run(job, self.directory, budget=self.budget, data_dir=self.data_dir, progress=progress)


def attempt(work: Work) -> dict[str, str] | None:
    """Do it on one thread; what went wrong, in words, can be sent to another process."""
    import torch

    torch.set_num_threads(1)
    message = _trouble(work, progress=False)
    return None if message is None else {"message": message}


def _trouble(work: Work, progress: bool) -> str | None:
    """Do it; what went wrong, in words, with where it did if it is a fault of this program."""
    from groupella.data import DataError

    try:
        work.do(progress)
    except (RunError, DataError, ValueError, OSError, FloatingPointError, RuntimeError) as error:
        return str(error) or type(error).__name__
    except MemoryError as error:
        return f"not enough memory ({error})"
    except Exception:
        return traceback.format_exc()[-8000:]  # a pipe holds 64 KB
    return None


class Failures:
    """What went wrong with which piece, for an error when all others are done."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def add(self, name: str, message: str) -> None:
        self.messages[name] = message

    def report(self) -> None:
        """Raise if there are any, with the words of the first."""
        if not self.messages:
            return
        (first, message), *others = self.messages.items()
        also = f"\nalso failed: {', '.join(name for name, _ in others)}" if others else ""
        raise RunError(f"{first}: {message}{also}")


Engine = Callable[[Mapping[str, Work]], Generator[str, None, None]]


def here(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
    """One after the other in this process."""
    failures = Failures()
    for name, work in pieces.items():
        message = _trouble(work, progress=True)
        if message is None:
            yield name
        else:
            failures.add(name, message)
    failures.report()


def processes(workers: int) -> Engine:
    """At most `workers` at a time, each in a process of its own with one thread.

    A process reads its work from its standard input and stops, with a checkpoint, when that is
    closed: by this process or, when this one dies in whatever way, by the system. It has a session
    of its own, so that Ctrl-C in a terminal reaches it through this process only.
    """

    def engine(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        waiting = list(pieces.items())
        running: dict[str, subprocess.Popen[bytes]] = {}
        failures = Failures()
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    name, work = waiting.pop(0)
                    running[name] = _start(work)
                for name in [n for n, p in running.items() if p.poll() is not None]:
                    message = _message(running.pop(name))
                    if message is None:
                        yield name
                    else:
                        failures.add(name, message)
                time.sleep(PAUSE)
            failures.report()
        finally:
            _stop(running.values())

    return engine


def _start(work: Work) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {WORKER}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        pickle.dump(work, process.stdin)
        process.stdin.flush()
    except BaseException:
        process.kill()
        raise
    return process


def _message(process: subprocess.Popen[bytes]) -> str | None:
    """What went wrong in a process that has ended, or None where it did its work."""
    with process:
        assert process.stdout is not None
        said = process.stdout.read()
    if said:
        return str(json.loads(said)["message"])
    code = process.returncode
    number = -code if code < 0 else code - 128
    if number in signal.valid_signals():
        ended = signal.Signals(number).name
        if ended == "SIGKILL":
            ended += " (for lack of memory?)"
        return f"its process was ended by {ended}. The same command goes on"
    return None if code == 0 else f"its process ended with exit code {code}"


def _stop(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask all to stop and wait until they have saved; end them at once on a second signal."""
    under_way = list(running)
    try:
        for process in under_way:
            assert process.stdin is not None
            process.stdin.close()
        for process in under_way:
            process.wait()
    finally:
        for process in under_way:
            process.kill()
            with process:
                pass
