"""Engines: ways to get work done, one after the other here or several at a time elsewhere.

An engine takes named pieces of work and yields the name of each as it is finished. Closing it stops
what is under way, which saves first.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ._jobs import Job
from ._runs import RunError, finished, load_job, run, with_budget

PAUSE = 0.1
WORKER = "from groupella.experiments._worker import main; sys.exit(main())"


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
    def begun(self) -> Job | None:
        """The job with the number of epochs that was settled when it was begun, if it was."""
        if not (self.directory / "settings.json").exists():
            return None
        epochs = load_job(self.directory).training.get("epochs")
        return replace(self.job, training={**self.job.training, "epochs": epochs})

    @property
    def is_finished(self) -> bool:
        return finished(self.directory, self.begun or self.job)

    def do(self, progress: bool) -> None:
        """All of it, or what is left of it."""
        job = self.begun
        if job is None:
            job = self.job
            if self.budget is not None:
                job = with_budget(job, self.budget, self.data_dir)
        run(job, self.directory, data_dir=self.data_dir, progress=progress)


def attempt(work: Work) -> dict[str, str] | None:
    """Do it on one thread; what went wrong, in words, can be sent to another process."""
    import torch

    from groupella.experiments.data import DataError

    torch.set_num_threads(1)
    try:
        work.do(progress=False)
    except (RunError, DataError, ValueError, OSError) as error:
        return {"message": str(error)}
    except MemoryError as error:
        return {"message": f"not enough memory ({error})"}
    except Exception:
        return {"message": traceback.format_exc()[-8000:]}  # a pipe holds 64 KB
    return None


Engine = Callable[[Mapping[str, Work]], Generator[str, None, None]]


def here(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
    """One after the other in this process."""
    for name, work in pieces.items():
        work.do(progress=True)
        yield name


def processes(workers: int) -> Engine:
    """At most `workers` at a time, each in a process of its own with one thread.

    A process reads its work from its standard input and stops, with a checkpoint, when that is
    closed: by this process or, when this one dies in whatever way, by the system. It has a session
    of its own, so that Ctrl-C in a terminal reaches it through this process only.
    """

    def engine(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        waiting = list(pieces.items())
        running: dict[str, subprocess.Popen[bytes]] = {}
        try:
            while waiting or running:
                while waiting and len(running) < workers:
                    name, work = waiting.pop(0)
                    running[name] = _start(work)
                for name in [n for n, p in running.items() if p.poll() is not None]:
                    _check(name, running.pop(name))
                    yield name
                time.sleep(PAUSE)
        finally:
            _stop(running.values())

    return engine


def fail(name: str, failure: Mapping[str, str]) -> None:
    raise RunError(f"{name}: {failure['message']}")


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


def _check(name: str, process: subprocess.Popen[bytes]) -> None:
    """Nothing where the process, which has ended, did its work."""
    with process:
        assert process.stdout is not None
        said = process.stdout.read()
    if said:
        fail(name, json.loads(said))
    code = process.returncode
    number = -code if code < 0 else code - 128
    if number in signal.valid_signals():
        ended = signal.Signals(number).name
        if ended == "SIGKILL":
            ended += " (for lack of memory?)"
        raise RunError(f"{name}: its process was ended by {ended}. The same command goes on")
    if code != 0:
        raise RunError(f"{name}: its process ended with exit code {code}")


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
