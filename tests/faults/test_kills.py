"""Runs that are killed, stopped or robbed of their disk end with the same bits once resumed."""

from __future__ import annotations

import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from groupella.runs import RunError, load
from tests.faults._work import (
    COUNTS,
    JOBS,
    PHASES,
    contents,
    ended,
    fork,
    killed_after,
    outcome,
    perform,
    supported,
)

pytestmark = pytest.mark.skipif(not supported(), reason="forks processes and reads /proc")
NOBODY = 65534


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Kind of job → (seconds it takes, its outcome without faults).

    It runs here, so that forked processes find all imports done.
    """
    made: dict[str, tuple[float, dict[str, Any]]] = {}

    def make(kind: str) -> tuple[float, dict[str, Any]]:
        if kind not in made:
            place = tmp_path_factory.mktemp(kind) / "run"
            started = time.monotonic()
            perform(JOBS[kind], place)
            made[kind] = time.monotonic() - started, outcome(place)
            for phase in PHASES[kind]:
                assert any(place.glob(phase)), phase
        return made[kind]

    return make


def finish(kind: str, place: Path, expected: dict[str, Any]) -> None:
    """Let a run that was cut go on to its end, and compare it."""
    said = place.parent / "said"
    assert ended(fork(lambda: perform(JOBS[kind], place), said)) == 0, said.read_text()
    assert outcome(place) == expected
    assert not list(place.rglob(".*.tmp"))


def survive(kind: str, phases: Iterable[str], wanted: Any, place: Path, rng: random.Random) -> int:
    """Kill a run at a random moment of each phase, compare its end, and count the kills."""
    seconds, expected = wanted(kind)
    kills = 0
    for phase in phases:
        child = fork(lambda: perform(JOBS[kind], place), place.parent / "said")
        moment = rng.uniform(0.0, seconds / len(PHASES[kind]))
        code = killed_after(child, moment, place=place, phase=phase)
        if code == 0:
            break
        assert code == -signal.SIGKILL, (place.parent / "said").read_text()
        kills += 1
    finish(kind, place, expected)
    COUNTS["kills with bit-identical ends"] += kills
    return kills


def test_a_run_survives_kill_9(wanted: Any, tmp_path: Path) -> None:
    phases = ("last.safetensors", "figures/*")
    assert survive("paths", phases, wanted, tmp_path / "run", random.Random(0)) >= 1


@pytest.mark.faults
@pytest.mark.parametrize(("kind", "kills"), [("paths", 10), ("confirm", 14), ("looks", 6)])
def test_runs_survive_kill_9_in_every_phase(
    wanted: Any, tmp_path: Path, kind: str, kills: int
) -> None:
    rng = random.Random(1)
    done = 0
    for number in range(kills):
        done += survive(kind, PHASES[kind], wanted, tmp_path / f"run-{number}", rng)
        if done >= kills:
            break
    assert done >= kills


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "number", "phase"),
    [
        ("paths", signal.SIGHUP, "last.safetensors"),
        ("paths", signal.SIGTERM, "figures/*"),
        ("confirm", signal.SIGHUP, "candidates/*layers*/*.safetensors"),
        ("confirm", signal.SIGTERM, "candidates/final/*.safetensors"),
        ("confirm", signal.SIGINT, "report.json"),
        ("looks", signal.SIGTERM, "candidates/free-2/*.safetensors"),
    ],
)
def test_a_signal_saves_and_the_run_resumes(
    wanted: Any, tmp_path: Path, kind: str, number: signal.Signals, phase: str
) -> None:
    _, expected = wanted(kind)
    place = tmp_path / "run"
    child = fork(lambda: perform(JOBS[kind], place), tmp_path / "said")
    assert killed_after(child, 0.0, number, place=place, phase=phase) == 128 + number
    finish(kind, place, expected)


@pytest.mark.faults
@pytest.mark.parametrize("kind", JOBS)
def test_a_directory_that_becomes_read_only_in_any_phase(wanted: Any, kind: str) -> None:
    """Another user may read what root's run has written, but not write."""
    _, expected = wanted(kind)
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    place, said = folder / "run", folder / "said"
    try:
        for phase in PHASES[kind]:
            child = fork(lambda: perform(JOBS[kind], place), said)
            if killed_after(child, 0.0, place=place, phase=phase) == 0:
                break  # it was faster
            before = contents(place)
            paths = [place, *place.rglob("*")]
            for path in paths:
                path.chmod(0o555 if path.is_dir() else 0o444)
            code = ended(fork(lambda: perform(JOBS[kind], place), said, user=NOBODY))
            words = said.read_text()
            assert (code, "\n" in words) == (2, False), words
            assert "Permission denied" in words or "Read-only" in words, words
            assert contents(place) == before
            COUNTS["read-only directories"] += 1
            for path in paths:
                path.chmod(0o755 if path.is_dir() else 0o644)
        finish(kind, place, expected)
    finally:
        shutil.rmtree(folder)


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
        COUNTS["writes to a full disk"] += code == 2
        assert "\n" not in said
        if code and limit > 500:  # which also bounds what is said
            assert f"{place}/" in said, said
            with pytest.raises(RunError):
                load(place)
    assert failures > 1
    finish(kind, place, expected)


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
