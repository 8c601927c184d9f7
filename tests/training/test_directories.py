"""One process at a time trains in a directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from groupella._files import alone
from groupella.evidence.likelihoods import Gaussian
from groupella.training import InUseError, _fit, fit

pytestmark = pytest.mark.skipif(os.name != "posix", reason="directories cannot be claimed here")
HOLD = """
import time
from groupella._files import alone
with alone({place!r}):
    print("mine", flush=True)
    input()
    time.sleep(1)
"""


@pytest.fixture
def other(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that works in the directory until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD.format(place=str(tmp_path / "run"))],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def train(place: Path) -> None:
    x = torch.linspace(-1, 1, 20)[:, None]
    fit(nn.Linear(1, 1), (x, 2 * x), Gaussian(), epochs=1, directory=place, progress=False)


def test_a_directory_in_use_is_refused_and_left_alone_until_the_other_is_dead(
    tmp_path: Path, other: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "run"
    monkeypatch.setattr(_fit, "alone", partial(alone, patience=0.0))
    with pytest.raises(InUseError, match=r"run is in use, by another process .* wait until"):
        train(place)
    assert list(place.iterdir()) == []
    with other:
        other.send_signal(signal.SIGKILL)
    train(place)
    assert (place / "last.safetensors").exists()
    train(place)  # the claim ends with the call


def test_a_process_that_is_about_to_end_is_waited_for(
    tmp_path: Path, other: subprocess.Popen[str]
) -> None:
    with other:
        assert other.stdin is not None
        other.stdin.write("\n")
        other.stdin.flush()
        train(tmp_path / "run")
    assert other.returncode == 0
    assert (tmp_path / "run" / "last.safetensors").exists()


def test_what_cannot_be_a_directory_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        train(tmp_path / "file")


def test_a_forked_process_does_not_keep_the_claim(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with alone(tmp_path):
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with alone(tmp_path, patience=0.0):
            pass
    finally:
        os.close(writing)
        os.waitpid(child, 0)


def test_a_claim_that_is_lent_is_granted_once_to_the_same_thread(tmp_path: Path) -> None:
    again = partial(alone, tmp_path, patience=0.0)
    with alone(tmp_path, lend=True), again(), pytest.raises(InUseError), again():
        pass
    with alone(tmp_path), pytest.raises(InUseError), again():
        pass
