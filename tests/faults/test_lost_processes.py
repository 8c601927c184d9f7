"""Trainings of several processes of which one is lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
import torch

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(not torch.distributed.is_available(), reason="no torch.distributed"),
]
RANK = Path(__file__).with_name("_rank.py")
Spawn = Callable[..., "Popen[str]"]
PATIENCE = 240.0


def train(spawn: Spawn, place: Path, epochs: int, *more: str) -> list[Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    words = (str(RANK), str(place), str(epochs), *more)
    return [spawn(*words, RANK=str(r), **world) for r in range(2)]


def until_trained(place: Path, ranks: list[Popen[str]], epochs: int) -> None:
    end = time.monotonic() + PATIENCE
    note = Path(f"{place}.1.pid")
    while not note.exists() or int((note.read_text().split() or ["", "0"])[1]) < epochs:
        assert time.monotonic() < end
        assert all(rank.poll() is None for rank in ranks), [rank.communicate() for rank in ranks]
        time.sleep(0.05)


def test_the_other_rank_ends_within_a_minute_and_both_resume(spawn: Spawn, tmp_path: Path) -> None:
    """Each rank has a directory of its own: only that of the first has checkpoints."""
    place = tmp_path / "run"
    ranks = train(spawn, place, 100)
    until_trained(place, ranks, 3)
    os.kill(ranks[1].pid, signal.SIGKILL)
    out, _ = ranks[0].communicate(timeout=60)
    assert ranks[0].returncode == 3
    assert out.startswith("rank 0: LostProcessError: another process of this training has ended")
    assert out.count("\n") == 1
    assert (tmp_path / "run-0" / "last.safetensors").exists()
    assert not (tmp_path / "run-1").exists()

    for rank in train(spawn, place, 100):
        out, err = rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0, out + err
    whole = tmp_path / "whole"
    for rank in train(spawn, whole, 100):
        rank.communicate(timeout=PATIENCE)
        assert rank.returncode == 0
    for number in range(2):
        one, other = (torch.load(f"{p}.{number}.pt") for p in (place, whole))
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_signal_to_one_rank_stops_both_with_a_checkpoint(spawn: Spawn, tmp_path: Path) -> None:
    place = tmp_path / "run"
    ranks = train(spawn, place, 100_000)
    until_trained(place, ranks, 2)
    os.kill(ranks[1].pid, signal.SIGHUP)
    for number, rank in enumerate(ranks):
        out, _ = rank.communicate(timeout=60)
        assert out.startswith(f"rank {number}: Interrupted: interrupted at epoch")


def test_a_rank_that_stands_still_is_not_waited_for_for_ever(spawn: Spawn, tmp_path: Path) -> None:
    place = tmp_path / "run"
    ranks = train(spawn, place, 100_000, "20")
    until_trained(place, ranks, 2)
    os.kill(ranks[1].pid, signal.SIGSTOP)
    out, _ = ranks[0].communicate(timeout=PATIENCE)
    os.kill(ranks[1].pid, signal.SIGCONT)
    assert (ranks[0].returncode, out.count("\n")) == (3, 1)
    assert "LostProcessError: another process of this training has ended, or has not" in out


RAY = """
import os, signal, sys
from groupella.runs.ray import cluster

class Work:
    def __init__(self, place):
        self.place = place

    def do(self, progress):
        with open(self.place, "a") as file:
            file.write("begun ")
        if os.path.getsize(self.place) == len("begun "):
            os.kill(os.getpid(), signal.SIGKILL)

print(list(cluster(None, 1)({"row": Work(sys.argv[1])})))
"""


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_a_row_whose_ray_worker_is_killed_is_tried_again(spawn: Spawn, tmp_path: Path) -> None:
    place = tmp_path / "begun"
    process = spawn("-c", RAY, str(place), RAY_ADDRESS="", RAY_worker_niceness="0")
    out, err = process.communicate(timeout=PATIENCE)
    assert out.splitlines()[-1:] == ["['row']"], err
    assert place.read_text() == "begun begun "
