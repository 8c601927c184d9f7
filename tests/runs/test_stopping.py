"""Signals stop a command and all its processes; what they saved is gone on with.

Real processes: a sweep of two rows in two workers. What is to be caught in training would take
days, so that no worker, however late the other starts, is finished before both are caught.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.runs.engines import _message
from groupella.runs.stopping import Stopped, stoppable
from groupella.cli._select import saving

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks into /proc")
SWEEP = ["sweep", "--data", "digits", "--groups", "z2", "--alpha", "1", "--train-size", "40"]
SWEEP += ["--json", "--epochs"]
DAYS, SECONDS = "1000000", "30"
TWO = ["--seeds", "0-1", "--jobs", "2"]
PATIENCE = 500.0


def start(place: Path, epochs: str, *more: str) -> subprocess.Popen[str]:
    return command(*SWEEP, epochs, "--out", str(place), *more)


def command(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "groupella.cli", *arguments],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def until(what: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "waited too long"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def epochs(place: Path) -> dict[str, int]:
    """Of each row, as far as its last checkpoint."""
    found = {}
    for history in place.glob("*/history.json"):
        found[history.parent.name] = len(json.loads(history.read_text()))
    return found


def without_times(text: str) -> Any:
    found = json.loads(text.splitlines()[-1])
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def interrupt(
    place: Path, number: signal.Signals, whom: tuple[str, ...] = ("parent",)
) -> tuple[int, str]:
    """Stop the sweep in both workers' training; its exit code and what it said.

    whom: who gets the signal, one after the other; after a worker, the other one must go on
    """
    before = epochs(place)
    process = start(place, DAYS, *TWO)

    def both_went_on() -> bool:
        now = epochs(place)
        return len(now) == 2 and all(n > before.get(row, 0) for row, n in now.items())

    until(both_went_on, process)
    workers = children(process.pid)
    assert len(workers) == 2
    now = epochs(place)
    for one in whom:
        os.kill(process.pid if one == "parent" else workers[0], number)
        if one == "worker":
            until(lambda: not alive(workers[0]), process)
            wait_for_more(place, process)
    out, err = process.communicate(timeout=PATIENCE)
    until(lambda: not any(map(alive, workers)))
    assert out == ""
    assert all(n >= now[row] for row, n in epochs(place).items())
    return process.returncode, err


def wait_for_more(place: Path, process: subprocess.Popen[str]) -> None:
    """Until some row has gone on by two epochs from here."""
    before = epochs(place)
    until(lambda: any(n > before[row] + 1 for row, n in epochs(place).items()), process)


def test_workers_stop_with_their_parent_and_the_same_command_goes_on(tmp_path: Path) -> None:
    saved = f"interrupted; saved in {tmp_path}. The same command goes on.\n"
    assert interrupt(tmp_path, signal.SIGKILL) == (-signal.SIGKILL, "")
    assert interrupt(tmp_path, signal.SIGTERM, ("worker", "parent")) == (143, saved)


def test_a_worker_that_a_signal_ends_is_told_from_one_that_is_done() -> None:
    for program, wanted in (
        (
            "import os; os.kill(os.getpid(), 15)",
            "its process was ended by SIGTERM. The same command goes on",
        ),
        ("", None),
    ):
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert process.wait() is not None
        assert _message(process) == wanted


def test_what_was_stopped_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    """Also where, on a busy machine, it is finished by the time it is to be stopped."""
    stopped = start(tmp_path, SECONDS, "--jobs", "2")
    until(lambda: bool(epochs(tmp_path)))
    stopped.terminate()
    stopped.communicate(timeout=PATIENCE)
    assert stopped.returncode in {143, 0, -signal.SIGTERM}
    again = start(tmp_path, SECONDS, "--jobs", "2")
    out, err = again.communicate(timeout=PATIENCE)
    assert again.returncode == 0, err
    undisturbed = CliRunner().invoke(app, [*SWEEP, SECONDS, "--out", str(tmp_path / "whole")])
    assert without_times(out) == without_times(undisturbed.stdout)


def test_the_planted_benchmark_stops_with_its_workers(tmp_path: Path) -> None:
    place = ["--directory", str(tmp_path), "--no-progress"]
    process = command("planted", "--preset", "fresh", "--jobs", "2", *place)
    until(lambda: len(list(tmp_path.glob("*/start0/history.json"))) == 2, process)
    workers = children(process.pid)
    assert len(workers) == 2
    process.terminate()
    out, err = process.communicate(timeout=PATIENCE)
    until(lambda: not any(map(alive, workers)))
    saved = f"interrupted; saved in {tmp_path}. The same command goes on.\n"
    assert (process.returncode, out, err) == (143, "", saved)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_training_in_the_process_itself_stops_with_the_exit_code_of_the_signal(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    process = start(tmp_path, DAYS)
    until(lambda: bool(epochs(tmp_path)), process)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == code
    assert err.splitlines()[-1] == f"interrupted; saved in {tmp_path}. The same command goes on."


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_either_signal_is_told_from_the_other(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match=number.name) as stop, stoppable():
        signal.raise_signal(number)
    assert stop.value.exit_code == 128 + number
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize("anything", [False, True])
def test_what_is_said_to_be_saved_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], anything: bool
) -> None:
    if anything:
        (tmp_path / "last.safetensors").touch()
    with pytest.raises(typer.Exit) as stop, saving(tmp_path):
        signal.raise_signal(signal.SIGINT)
    assert stop.value.exit_code == 130
    assert ("saved in" in capsys.readouterr().err) == anything
