"""``groupella sweep --engine ray`` finds what the local engine finds, through a real Ray here.

Ray runs in processes apart from the tests': it leaves threads and handlers behind.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.runs import ray as _ray
from groupella.runs.directory import Assignment
from groupella.runs.jobs import Job

SWEEP = ["sweep", "--data", "digits"]
OWN = ["sweep", "--data", "mine.npz", "--groups", "my_groups.py:GROUPS", "--seeds", "0-1"]
OWN += ["--alpha", "1", "--search", "paths", "--epochs", "30", "--json"]
FIRST, SECOND = (f"mine-npz-my-groups-py-GROUPS-seed-{seed}" for seed in (0, 1))
PATIENCE = 240
CLUSTER = """
import sys, ray
info = ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR",
                object_store_memory=100 * 2**20, _node_ip_address="127.0.0.1")
print(info.address_info["address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
# While there is a file "wait", training pauses after its first checkpoint until it is interrupted.
GROUPS = """
import signal
import time
from pathlib import Path

from groupella.groups import z2
from groupella.training import History

GROUPS = [z2()]
save = History.save


def save_then_wait(history, path):
    History.save = save
    save(history, path)
    handler, received = signal.getsignal(signal.SIGINT), []
    signal.signal(signal.SIGINT, lambda *signals: received.append(signals))
    while not received:
        time.sleep(0.02)
    signal.signal(signal.SIGINT, handler)
    handler(*received[0])


if Path("wait").exists():
    History.save = save_then_wait
"""
with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray"
)


# Ray's workers have niceness 15 by default; on a busy machine they would hardly run.
ENVIRONMENT = {"RAY_ADDRESS": "", "RAY_worker_niceness": "0"}
Spawn = Callable[..., subprocess.Popen[str]]


def sweep(spawn: Spawn, place: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    options = ("--out", str(place), "--engine", "ray", *more)
    return spawn("-m", "groupella.cli", *OWN, *options, **{**ENVIRONMENT, **environment})


def without_times(text: str) -> Any:
    found = json.loads(text.splitlines()[-1])["runs"]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


@pytest.fixture
def cluster(spawn: Spawn) -> Iterator[dict[str, str]]:
    """A Ray cluster of one core: the environment variables needed to join it."""
    key = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    process = spawn("-c", CLUSTER, **{**ENVIRONMENT, **key})
    assert process.stdout is not None
    yield {**key, "RAY_ADDRESS": process.stdout.readline().strip()}
    process.communicate(timeout=PATIENCE)


@pytest.mark.slow
@with_ray
def test_ray_finds_what_the_local_engine_finds(
    spawn: Spawn, tmp_path: Path, cluster: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On files that are named from where the sweep was started; the cluster was elsewhere."""
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).random((40, 8, 8))
    np.savez("mine.npz", images=images, labels=np.arange(40) % 2)
    Path("my_groups.py").write_text(GROUPS)
    local = CliRunner().invoke(app, [*OWN, "--jobs", "1", "--out", "local"])
    assert local.exit_code == 0, local.output
    place = Path("ray")
    shutil.copytree(Path("local") / FIRST, place / FIRST)
    finished = (place / FIRST / "report.html").stat().st_mtime_ns

    Path("wait").touch()
    process = sweep(spawn, place, "--jobs", "1")
    history = place / SECOND / "history.json"
    end = time.monotonic() + PATIENCE
    while not history.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, err
    assert err.splitlines()[-1] == f"interrupted; saved in {place}. Rerun the command to resume."
    assert not (place / SECOND / "report.json").exists()
    assert len(json.loads(history.read_text())) >= 1

    Path("wait").unlink()
    process = sweep(spawn, place, **cluster)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert without_times(out) == without_times(local.stdout)
    assert (place / FIRST / "report.html").stat().st_mtime_ns == finished
    assert {run.parent.name for run in place.glob("*/report.html")} == {FIRST, SECOND}


def test_work_begins_where_its_relative_names_are_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(_ray, "attempt", lambda _: os.getcwd())
    task = Assignment(Job(title="", data="mine.npz", groups="z2"), tmp_path)
    assert _ray.attempt_from(str(tmp_path), task) == str(tmp_path)
    failure = _ray.attempt_from(str(tmp_path / "nowhere"), task)
    assert failure is not None
    assert "does not see" in failure
    assert "mine.npz" in failure
    # What is not named from there does not need it.
    for data in ("mnist:rotated", "/shared/mine.npz"):
        task = Assignment(Job(title="", data=data, groups="z2"), tmp_path)
        assert _ray.attempt_from("/nowhere", task) == str(tmp_path)


@pytest.mark.slow
@with_ray
def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path) -> None:
    arguments = [*SWEEP, "--engine", "ray", "--address", "127.0.0.1:1", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.output.startswith("groupella sweep: nothing answers at 127.0.0.1:1")


def test_without_ray_the_extra_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    place = tmp_path / "out"
    result = CliRunner().invoke(app, [*SWEEP, "--engine", "ray", "--out", str(place)])
    assert result.exit_code == 2
    assert result.output == (
        "groupella sweep: --engine ray requires Ray: pip install groupella[ray]\n"
    )
    assert not place.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "slurm"], "no engine 'slurm'; choose local or ray"),
        (["--address", "auto"], "--address requires --engine ray"),
    ],
)
def test_other_engines_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*SWEEP, *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
