"""What holds for every test: one torch thread per worker, a fixed seed, no global state changed.

A shell without a terminal starts background processes with SIGINT ignored, and their children
inherit that. The processes under test must receive Ctrl-C, so the default handler is restored.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the time of an example depends on the load of the machine. CI repeats its examples.
hypothesis.settings.register_profile(
    "groupella", deadline=None, derandomize="CI" in os.environ, print_blob=True
)
hypothesis.settings.load_profile("groupella")


@pytest.fixture(autouse=True)
def _same_world_for_every_test() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() == torch.float32, "the test changed torch's default dtype"
    assert torch.is_grad_enabled(), "the test left gradients switched off"


@pytest.fixture
def spawn() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a Python process; when the test ends, kill what is left of it and of its descendants.

    Descendants may have sessions of their own and outlive their parents, so they are recognised by
    an environment variable that they inherit (Linux; elsewhere only the process itself is killed).
    """
    token = secrets.token_hex(16)
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **environment, "GROUPELLA_TEST": token},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
    while left := _with_environment(f"GROUPELLA_TEST={token}".encode()):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for process in started:
        with process:  # waits and closes its streams
            pass


def _with_environment(line: bytes) -> list[int]:
    """The running processes whose environment has that line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended, or another user's
            if line in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
