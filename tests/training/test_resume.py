"""Interrupted anywhere and resumed, a run ends with the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import Evidence
from groupella.evidence.likelihoods import Gaussian
from groupella.groups import GroupSet, trivial, z2
from groupella.nn.layer import ResidualPathway
from groupella.training import (
    Checkpoint,
    CheckpointError,
    EpochRecord,
    Fit,
    Interrupted,
    Settings,
    fit,
    load_checkpoint,
    save_checkpoint,
)

SETTINGS = Settings(epochs=5, batch_size=16, lr=0.02, burn_in=1, curvature_subset=30)


def make(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 1))


class Signalling(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Noisy data; raises a signal in this process at its `at`-th item."""

    def __init__(self, at: int | None = None, number: int = signal.SIGTERM) -> None:
        generator = torch.Generator().manual_seed(1)
        self.x = torch.randn(50, 3, generator=generator)
        self.y = self.x[:, :1] + 0.1 * torch.randn(50, 1, generator=generator)
        self.count, self.at, self.number = 0, at, number

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), self.number)
        return self.x[index] + 0.01 * torch.randn(3), self.y[index]


def train(
    directory: Path | None,
    data: Signalling,
    settings: Settings = SETTINGS,
    network: nn.Module | None = None,
    **options: Any,
) -> tuple[Fit, Gaussian]:
    likelihood, network = Gaussian(1.0), make() if network is None else network
    result = fit(
        network, data, likelihood, settings, directory=directory, progress=False, **options
    )
    return result, likelihood


def assert_same(one: tuple[Fit, Gaussian], other: tuple[Fit, Gaussian]) -> None:
    for (name, p), (_, q) in zip(
        one[0].network.named_parameters(), other[0].network.named_parameters(), strict=True
    ):
        assert torch.equal(p, q), name
    assert torch.equal(one[0].prior.log_precision, other[0].prior.log_precision)
    assert torch.equal(one[1].log_noise, other[1].log_noise)
    assert one[0].log_evidence == other[0].log_evidence
    for a, b in zip(one[0].history, other[0].history, strict=True):
        assert replace(a, seconds=0.0) == replace(b, seconds=0.0)


@pytest.mark.parametrize("method", ["fixed_point", "adam", "linearised", "map"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_mid_epoch_saves_and_resumes_bit_for_bit(
    tmp_path: Path, method: Any, number: int
) -> None:
    settings = replace(SETTINGS, method=method)
    whole = train(None, Signalling(), settings)
    handlers = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    # Data checks take 2 items, an epoch 50 and an update 30 + 50 more: inside the third epoch.
    at = 2 + 2 * 50 + (2 * 80 if method != "map" else 0) + 20
    with pytest.raises(Interrupted, match="epoch 2, step") as caught:
        train(tmp_path, Signalling(at, number), settings)
    assert caught.value.checkpoint == tmp_path / "last.safetensors"
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == handlers
    state = load_checkpoint(tmp_path / "last.safetensors").state["counters"]
    assert (state["epoch"], state["step"]) == (2, 2)
    assert_same(train(tmp_path, Signalling(), settings), whole)


@pytest.mark.parametrize("method", ["fixed_point", "linearised"])
@pytest.mark.parametrize("at", [5, 25, 70], ids=["at once", "in the curvature", "in the fit"])
def test_a_signal_while_the_evidence_is_measured_stops_after_the_batch(
    tmp_path: Path, method: Any, at: int
) -> None:
    settings = replace(SETTINGS, method=method, curvature_batch=10)
    whole = train(None, Signalling(), settings)
    data = Signalling(2 + 2 * 50 + 80 + at)
    with pytest.raises(Interrupted, match="epoch 1, step 4"):
        train(tmp_path, data, settings)
    assert data.at is not None
    assert data.count - data.at < 10
    assert_same(train(tmp_path, Signalling(), settings), whole)


def test_a_signal_in_the_last_measurement_saves_what_was_trained(tmp_path: Path) -> None:
    whole = train(None, Signalling())
    data = Signalling(2 + 5 * (50 + 80) + 10)
    with pytest.raises(Interrupted, match="epoch 5, step 0"):
        train(tmp_path, data)
    assert_same(train(tmp_path, Signalling()), whole)


class LateError(Exception):
    """Raised by the handler that was there before."""


@pytest.mark.parametrize("method", ["fixed_point", "map"])
def test_a_signal_that_comes_too_late_acts_after_the_run_is_saved(
    tmp_path: Path, method: Any
) -> None:
    """In the last pass of all: of the evidence's last measurement, or of the last validation."""
    passes = 0
    last: int | None = None

    def counting(*_: Any) -> None:
        nonlocal passes
        passes += 1
        if passes == last:
            signal.raise_signal(signal.SIGTERM)

    def hooked() -> nn.Module:
        network = make()
        network.register_forward_pre_hook(counting)
        return network

    def act(*_: Any) -> None:
        raise LateError

    settings = replace(SETTINGS, method=method)
    whole = train(None, Signalling(), settings, hooked(), validation=Signalling())
    passes, last = 0, passes
    before = signal.signal(signal.SIGTERM, act)
    try:
        with pytest.raises(LateError):
            train(tmp_path, Signalling(), settings, hooked(), validation=Signalling())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert passes == last
    assert_same(train(tmp_path, Signalling(), settings, validation=Signalling()), whole)


def test_a_run_in_pieces_of_limited_time_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole = train(None, Signalling())
    for _ in range(5 * 4):
        # Less time than a step takes: each piece is one step.
        with pytest.raises(Interrupted, match="the time limit was reached") as caught:
            train(tmp_path, Signalling(), time_limit=1e-6)
        assert caught.value.checkpoint == tmp_path / "last.safetensors"
    assert_same(train(tmp_path, Signalling(), time_limit=1e-6), whole)


def test_a_time_limit_needs_a_place_to_resume_from(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a directory"):
        train(None, Signalling(), time_limit=60)
    for limit in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="must be positive"):
            train(tmp_path, Signalling(), time_limit=limit)


def test_a_finished_run_is_returned_as_it_was(tmp_path: Path) -> None:
    whole = train(tmp_path, Signalling())
    before = (tmp_path / "last.safetensors").read_bytes()
    assert_same(train(tmp_path, Signalling()), whole)
    assert (tmp_path / "last.safetensors").read_bytes() == before


def test_without_a_directory_an_interruption_says_that_nothing_was_saved() -> None:
    with pytest.raises(Interrupted, match="nothing was saved") as caught:
        train(None, Signalling(60))
    assert caught.value.checkpoint is None


def test_the_best_checkpoint_can_be_resumed_as_well(tmp_path: Path) -> None:
    whole = train(tmp_path / "a", Signalling())
    best = (tmp_path / "a" / "best.safetensors").read_bytes()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "last.safetensors").write_bytes(best)
    assert_same(train(tmp_path / "b", Signalling()), whole)


KILLED = """
    import os, signal, sys
    sys.path.insert(0, {here!r})
    import test_resume as here

    def kill(record, evidence):
        if record.epoch == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    here.torch.set_num_threads(1)
    here.train(here.Path({directory!r}), here.Signalling(), on_epoch=kill)
"""


@pytest.mark.slow
def test_kill_9_and_resume_is_bit_identical(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        script = textwrap.dedent(KILLED).format(
            here=str(Path(__file__).parent), directory=str(tmp_path)
        )
        ended = subprocess.run([sys.executable, "-c", script], timeout=120, check=False)
        assert ended.returncode == -signal.SIGKILL
        state = load_checkpoint(tmp_path / "last.safetensors").state["counters"]
        assert state["epoch"] == 3
        assert_same(train(tmp_path, Signalling()), train(None, Signalling()))
    finally:
        torch.set_num_threads(threads)


def test_another_number_of_threads_is_pointed_out(tmp_path: Path) -> None:
    train(tmp_path, Signalling())
    path = tmp_path / "last.safetensors"
    found = load_checkpoint(path)
    save_checkpoint(path, Checkpoint(found.tensors, {**found.state, "threads": 63}))
    with pytest.warns(UserWarning, match="63"):
        train(tmp_path, Signalling())


def test_another_group_set_is_refused(tmp_path: Path) -> None:
    """Two layers with the same parameters, whose groups differ."""

    class Layer(nn.Module):
        def __init__(self, member: str) -> None:
            super().__init__()
            self.paths = nn.ModuleDict({"a": nn.Linear(3, 1)})
            self.subspaces = {"a": (member,)}
            self.groups = (member,)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.paths["a"](x)
            return out

    def train_layer(member: str) -> None:
        fit(
            nn.Sequential(Layer(member)),
            Signalling(),
            Gaussian(),
            SETTINGS,
            directory=tmp_path,
            progress=False,
        )

    train_layer("p4")
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(CheckpointError, match=r"another group set.*p4.*flips"):
        train_layer("flips")
    assert (tmp_path / "last.safetensors").read_bytes() == before


def test_paths_that_were_taken_out_stay_out_after_resuming(tmp_path: Path) -> None:
    groups = GroupSet(trivial(), z2())
    space = groups.space((4, 4), channels=1)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 4, 4, generator=generator)
    y = (x - x.roll(1, 3)).flatten(1) + 0.1 * torch.randn(60, 16, generator=generator)

    def train_layer(directory: Path | None, crash: int | None) -> tuple[Fit, Gaussian]:
        torch.manual_seed(0)
        network = nn.Sequential(ResidualPathway(space, space, groups), nn.Flatten())
        likelihood = Gaussian()

        def watch(record: EpochRecord, evidence: Evidence) -> None:
            if record.epoch == crash:
                raise RuntimeError("crashed")

        result = fit(
            network,
            (x, y),
            likelihood,
            epochs=16,
            batch_size=30,
            lr=0.05,
            prune_from=0.5,
            directory=directory,
            progress=False,
            on_epoch=watch,
        )
        return result, likelihood

    whole = train_layer(None, None)
    assert whole[0].prior.is_out("0/trivial")
    with pytest.raises(RuntimeError, match="crashed"):
        train_layer(tmp_path, 14)
    resumed = train_layer(tmp_path, None)
    assert_same(resumed, whole)
    assert resumed[0].prior.is_out("0/trivial")
    assert resumed[0].selection().verdicts == {"0": "z2"}
