"""Engines: ways to run pieces of work, in this process or in several.

An engine takes named pieces of work and yields the name of each as it finishes. A failing piece
does not abort the others; an error names it at the end. Closing an engine stops what is running,
which saves first.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Protocol

from .record import RunError
from .stopping import Received, Stopped, stoppable

PAUSE = 0.1
WORKER = "from groupella.runs.engines import worker; sys.exit(worker())"
RERUN = "Rerun the command to resume"


class Work(Protocol):
    """A picklable piece of work; run again after it was stopped, it resumes."""

    def do(self, progress: bool) -> object: ...


Engine = Callable[[Mapping[str, Work]], Generator[str, None, None]]


def attempt(work: Work) -> str | None:
    """Run it on one thread; return the error, if any, in a form that can be pickled."""
    import torch

    torch.set_num_threads(1)
    return _trouble(work, progress=False)


def _trouble(work: Work, progress: bool) -> str | None:
    """Run it; return the error, if any, with a traceback if it is a bug in this program."""
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


def report(failures: Mapping[str, str]) -> None:
    """Raise if any piece failed, with the message of the first."""
    if failures:
        (first, message), *others = failures.items()
        also = f"\nalso failed: {', '.join(name for name, _ in others)}" if others else ""
        raise RunError(f"{first}: {message}{also}")


@contextmanager
def naming(failures: Mapping[str, str]) -> Iterator[None]:
    """Name what has failed on standard error if the work is interrupted before it is reported."""
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        for name, message in failures.items():
            print(f"{name} failed: {message}", file=sys.stderr)
        raise


def here(pieces: Mapping[str, Work], progress: bool = True) -> Generator[str, None, None]:
    """Run the pieces one after the other in this process."""
    failures: dict[str, str] = {}
    with naming(failures):
        for name, work in pieces.items():
            message = _trouble(work, progress)
            if message is None:
                yield name
            else:
                failures[name] = message
    report(failures)


def processes(workers: int) -> Engine:
    """Return an engine that runs at most `workers` pieces at a time, one process and thread each.

    A process reads its work from standard input and stops with a checkpoint when that is closed: by
    this process or, if this one dies, by the system. It has its own session, so that Ctrl-C in a
    terminal reaches it through this process only.
    """

    def engine(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        waiting = list(pieces.items())
        running: dict[str, subprocess.Popen[bytes]] = {}
        failures: dict[str, str] = {}

        def finished() -> Iterator[str]:
            """Take out the processes that have ended; name those that succeeded."""
            for name in [n for n, p in running.items() if p.poll() is not None]:
                message = _message(running.pop(name))
                if message is None:
                    yield name
                else:
                    failures[name] = message

        try:
            with naming(failures):
                try:
                    while waiting or running:
                        while waiting and len(running) < workers:
                            name, work = waiting.pop(0)
                            running[name] = _start(work)
                        yield from finished()
                        time.sleep(PAUSE)
                except (KeyboardInterrupt, GeneratorExit):
                    list(finished())  # what failed since the last look is named too
                    raise
            report(failures)
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
    """Return the error of a process that has ended; None if it succeeded."""
    with process:
        assert process.stdout is not None
        said = process.stdout.read()
    if said:
        return str(json.loads(said))
    code = process.returncode
    number = -code if code < 0 else code - 128
    if number in signal.valid_signals():
        ended = signal.Signals(number).name
        if ended == "SIGKILL":
            ended += " (out of memory?)"
        return f"its process was ended by {ended}. {RERUN}"
    return None if code == 0 else f"its process ended with exit code {code}"


def _stop(running: Iterable[subprocess.Popen[bytes]]) -> None:
    """Ask all to stop and wait until they have saved; a second signal ends them at once."""
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


def worker() -> int:
    """What a process of `processes` does: one piece of work, pickled on standard input.

    When the input closes it stops as if by SIGTERM, which saves a checkpoint. Standard output is
    for what went wrong, as JSON; everything that is printed goes to standard error.
    """
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
    """Stop when the input ends. A second signal would stop without a checkpoint: send only one."""
    while os.read(0, 1024):
        pass
    if received.first is None:
        signal.raise_signal(signal.SIGTERM)


class Bar:
    """A progress bar on standard error: how many of `total` pieces are done; or nothing."""

    def __init__(self, what: str, total: int, done: int, visible: bool) -> None:
        from rich import progress as p
        from rich.console import Console

        columns = (p.TextColumn("{task.description}"), p.BarColumn(), p.MofNCompleteColumn())
        times = (p.TimeElapsedColumn(), p.TimeRemainingColumn())
        console = Console(stderr=True)
        self.progress = p.Progress(*columns, *times, console=console, disable=not visible)
        self.task = self.progress.add_task(what, total=total, completed=done)

    def __enter__(self) -> Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def advance(self, pieces: int = 1) -> None:
        self.progress.advance(self.task, pieces)


def counted(engine: Engine, visible: bool) -> Engine:
    """The engine with a bar on a terminal; pieces that run `here` show their own."""
    if engine is here:
        return engine if visible else partial(here, progress=False)

    def run(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
        shown = visible and sys.stderr.isatty()
        with Bar("runs", len(pieces), 0, shown) as bar, closing(engine(pieces)) as finished:
            for name in finished:
                bar.advance()
                yield name

    return run
