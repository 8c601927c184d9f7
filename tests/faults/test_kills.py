"""Runs that are killed, stopped or robbed of their disk end with the same bits once resumed."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from groupella.runs import RunError, load
from tests.faults._work import (
    JOBS,
    contents,
    ended,
    fork,
    killed_after,
    outcome,
    perform,
    supported,
)

pytestmark = pytest.mark.skipif(not supported(), reason="forks processes and reads /proc")


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kind of job → (seconds it takes, its outcome without faults)."""
    made: dict[str, tuple[float, dict[str, Any]]] = {}

    def make(kind: str) -> tuple[float, dict[str, Any]]:
        if kind not in made:
            place = tmp_path_factory.mktemp(kind) / "run"
            started = time.monotonic()
            assert ended(fork(lambda: perform(JOBS[kind], place), place.parent / "said")) == 0
            made[kind] = time.monotonic() - started, outcome(place)
        return made[kind]

    return make


def survive(kind: str, kills: int, wanted: Any, tmp_path: Path, seed: int) -> None:
    """Kill at random moments of a run, over and over, and compare its end."""
    seconds, expected = wanted(kind)
    rng = random.Random(seed)
    done = 0
    while done < kills:
        place = tmp_path / f"run-{done}"
        for _ in range(6):  # a run is killed a few times, then left to finish
            child = fork(lambda place=place: perform(JOBS[kind], place), tmp_path / "said")
            code = killed_after(child, rng.uniform(0.0, 0.8 * seconds))
            if code == 0:
                break
            assert code == -signal.SIGKILL, (tmp_path / "said").read_text()
            done += 1
        code = ended(fork(lambda place=place: perform(JOBS[kind], place), tmp_path / "said"))
        assert code == 0, (tmp_path / "said").read_text()
        assert outcome(place) == expected
        assert not list(place.rglob(".*.tmp"))


def test_a_run_survives_kill_9(wanted: Any, tmp_path: Path) -> None:
    survive("paths", 3, wanted, tmp_path, seed=0)


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "kills"), [("paths", 12), ("confirm", 12)])
def test_runs_survive_kill_9_at_random_moments(
    wanted: Any, tmp_path: Path, kind: str, kills: int
) -> None:
    survive(kind, kills, wanted, tmp_path, seed=1)


@pytest.mark.faults
@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_resumes(
    wanted: Any, tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    seconds, expected = wanted(kind)
    child = fork(lambda: perform(JOBS[kind], tmp_path / "run"), tmp_path / "said")
    code = killed_after(child, 0.5 * seconds, number)
    assert code in (0, 128 + number)
    code = ended(fork(lambda: perform(JOBS[kind], tmp_path / "run"), tmp_path / "said"))
    assert code == 0, (tmp_path / "said").read_text()
    assert outcome(tmp_path / "run") == expected


def full_disk(kind: str, limits: list[int], wanted: Any, tmp_path: Path) -> None:
    """A limit on the size of files is a disk that is full for whatever is larger."""
    _, expected = wanted(kind)
    place = tmp_path / "run"
    failures = 0
    for limit in limits:
        child = fork(lambda: perform(JOBS[kind], place), tmp_path / "said", limit)
        code = ended(child)
        said = (tmp_path / "said").read_text() if code else ""
        assert code in (0, 2), said
        failures += code == 2
        assert "\n" not in said
        if code:
            with pytest.raises(RunError):
                load(place)
    assert failures > 1
    code = ended(fork(lambda: perform(JOBS[kind], place), tmp_path / "said"))
    assert code == 0, (tmp_path / "said").read_text()
    assert outcome(place) == expected


def test_a_full_disk_costs_nothing_that_was_saved(wanted: Any, tmp_path: Path) -> None:
    full_disk("paths", [100, 2_000], wanted, tmp_path)


@pytest.mark.faults
@pytest.mark.parametrize("kind", JOBS)
def test_a_disk_that_is_full_at_every_write(wanted: Any, tmp_path: Path, kind: str) -> None:
    limits = [10, 500, 1_000, 3_000, 6_000, 12_000, 20_000, 30_000, 50_000, 80_000, 120_000]
    full_disk(kind, limits, wanted, tmp_path)


def test_of_two_processes_in_one_directory_one_works(
    wanted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from functools import partial

    from groupella._files import alone
    from groupella.runs import directory

    _, expected = wanted("paths")
    monkeypatch.setattr(directory, "alone", partial(alone, patience=0.0))
    place = tmp_path / "run"
    children = [fork(lambda: perform(JOBS["paths"], place), tmp_path / f"{i}") for i in range(3)]
    codes = [ended(child) for child in children]
    # The others are refused while it works, and read its result once it has finished.
    assert codes.count(0) >= 1
    assert set(codes) <= {0, 2}
    for number, code in enumerate(codes):
        if code == 2:
            assert "is in use" in (tmp_path / f"{number}").read_text()
    assert outcome(place) == expected


def test_many_processes_build_one_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    from groupella.bases import _cache

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GROUPELLA_CACHE", "on")
    monkeypatch.setattr(_cache, "_DISK_SECONDS", 0.0)
    rows = np.random.default_rng(0).normal(size=(200, 200))

    def build() -> None:
        for _ in range(20):
            _cache.clear_cache(disk=False)
            np.testing.assert_array_equal(_cache.cached("key", lambda: rows), rows)

    children = [fork(build, tmp_path / f"{i}") for i in range(6)]
    assert [ended(child) for child in children] == [0] * 6
    (file,) = contents(tmp_path / "cache")
    assert file.endswith("key.npz")
