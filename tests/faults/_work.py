"""Small runs in forked processes, which start at once because torch is already imported."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from groupella.runs import Done, Job, load, run
from groupella.runs.stopping import Stopped, stoppable
from groupella.training import _symmetry, load_checkpoint

PATHS = Job(
    title="tiny",
    data="digits",
    groups="z2",
    train_size=40,
    alpha=1,
    hidden=2,
    blocks=((1, 2),),
    training={
        "epochs": 6,
        "burn_in": 2,
        "batch_size": 10,
        "curvature_subset": 10,
        "curvature_samples": 1,
    },
)
CONFIRM = replace(
    PATHS, groups="z2,p4", search="confirm", blocks=None, train_size=120, training={"epochs": 6}
)
# Its first look is declared open (see `perform`), so that a second one follows.
LOOKS = replace(
    CONFIRM, groups="z2", train_size=60, training={"epochs": 4, "layers": False}, title="looks"
)
JOBS = {"paths": PATHS, "confirm": CONFIRM, "looks": LOOKS}
# Files whose appearance begins a phase of each job, in order.
PHASES = {
    "paths": (
        "settings.json",
        "last.safetensors",
        "network.safetensors",
        "report.json",
        "figures/*",
        "report.html",
    ),
    "confirm": (
        "settings.json",
        "candidates/free/*.safetensors",
        "candidates/z2/*.safetensors",
        "candidates/*layers*/*.safetensors",
        "candidates/final/*.safetensors",
        "network.safetensors",
        "report.json",
        "figures/*",
        "report.html",
    ),
    "looks": (
        "candidates/z2/*.safetensors",
        "candidates/free-2/*.safetensors",
        "candidates/z2-2/*.safetensors",
        "candidates/final/*.safetensors",
    ),
}

# What a campaign has done, for the line at its end.
COUNTS: Counter[str] = Counter()


def fork(
    work: Callable[[], object],
    said: Path,
    largest_file: int | None = None,
    user: int | None = None,
) -> int:
    """Start `work` in a forked process and return its id; its one line of error goes to `said`.

    `largest_file` is the size in bytes at which the disk is full; `user` is who works, if root
    starts it. Exit codes are those of the command line: 2 for a foreseen error, 1 for a traceback.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        descriptor = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        if user is not None and os.getuid() == 0:
            os.setuid(user)
        with stoppable():
            work()
        code = 0
    except Stopped as stop:
        code = stop.exit_code
    except Exception as error:
        from groupella.data import DataError
        from groupella.runs import RunError

        foreseen = (OSError, ValueError, RunError, FloatingPointError, MemoryError, DataError)
        code = 2 if isinstance(error, foreseen) else 1
        os.write(descriptor, f"{type(error).__name__}: {error}".encode()[:900])
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """Return the exit code of a process, negative for a signal, when it has ended."""
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)


def killed_after(
    child: int,
    seconds: float,
    number: signal.Signals = signal.SIGKILL,
    *,
    place: Path = Path(),
    phase: str | None = None,
) -> int:
    """Send a signal some time after a phase began, unless the process has ended.

    Returns the exit code.
    """
    end = None if phase else time.monotonic() + seconds
    while end is None or time.monotonic() < end:
        if end is None and any(place.glob(phase or "")):
            end = time.monotonic() + seconds
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, number)
    return ended(child)


def perform(job: Job, place: Path) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        if job.title == LOOKS.title:
            first = _symmetry._Search.judgement
            doubtful = lambda *looks: replace(first(*looks), open=("z2",))  # noqa: E731
            patch.setattr(_symmetry._Search, "judgement", doubtful)
        return run(job, place, progress=False)


def contents(place: Path) -> dict[str, bytes]:
    return {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}


def outcome(place: Path) -> dict[str, Any]:
    """What must be the same however often a run was cut: verdict, history, every tensor."""
    done = load(place)
    found: dict[str, Any] = {"selection": done.content.selection.as_dict()}
    found["history"] = [
        {k: v for k, v in record.items() if k != "seconds"}
        for record in done.content.history.as_list()
    ]
    for file in sorted(place.rglob("*.safetensors")):
        for name, tensor in load_checkpoint(file).tensors.items():
            found[f"{file.relative_to(place)}/{name}"] = tensor.numpy().tobytes()
    return found


def supported() -> bool:
    return hasattr(os, "fork") and sys.platform == "linux"
