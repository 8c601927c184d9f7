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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupella.cli import app

SWEEP = ["sweep", "--data", "digits", "--groups", "z2", "--seeds", "0-1", "--alpha", "1"]
SWEEP += ["--train-size", "40", "--epochs", "30", "--json"]
FIRST, SECOND = "digits-z2-seed-0", "digits-z2-seed-1"
PATIENCE = 240
CLUSTER = """
import sys, ray
info = ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="ERROR",
                object_store_memory=100 * 2**20, _node_ip_address="127.0.0.1")
print(info.address_info["address"], flush=True)
sys.stdin.read()
ray.shutdown()
"""
with_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install ray"
)


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Workers of Ray are nice by 15, so that on a busy machine they would hardly run.
        env={**os.environ, "RAY_ADDRESS": "", "RAY_worker_niceness": "0", **environment},
    )


def sweep(place: Path, *more: str, **environment: str) -> subprocess.Popen[str]:
    options = ("--out", str(place), "--engine", "ray", *more)
    return start("-m", "groupella.cli", *SWEEP, *options, **environment)


def without_times(text: str) -> Any:
    found = json.loads(text.splitlines()[-1])
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


@pytest.fixture
def cluster() -> Iterator[dict[str, str]]:
    """A Ray cluster of one core, as the environment of those who may join it."""
    key = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    process = start("-c", CLUSTER, **key)
    assert process.stdout is not None
    yield {**key, "RAY_ADDRESS": process.stdout.readline().strip()}
    process.communicate(timeout=PATIENCE)


@with_ray
def test_ray_finds_what_the_local_engine_finds(tmp_path: Path, cluster: dict[str, str]) -> None:
    local = CliRunner().invoke(app, [*SWEEP, "--out", str(tmp_path / "local")])
    assert local.exit_code == 0, local.output
    place = tmp_path / "ray"
    shutil.copytree(tmp_path / "local" / FIRST, place / FIRST)
    finished = (place / FIRST / "report.html").stat().st_mtime_ns

    process = sweep(place, "--jobs", "1")
    history = place / SECOND / "history.json"
    end = time.monotonic() + PATIENCE
    while not history.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, err
    assert err.splitlines()[-1] == f"interrupted; saved in {place}. The same command goes on."
    assert not (place / SECOND / "report.json").exists()
    assert len(json.loads(history.read_text())) >= 1

    process = sweep(place, **cluster)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert without_times(out) == without_times(local.stdout)
    assert (place / FIRST / "report.html").stat().st_mtime_ns == finished


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
        "groupella sweep: --engine ray needs Ray: pip install groupella[ray]\n"
    )
    assert not place.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "slurm"], "no engine 'slurm'; there are local, ray"),
        (["--address", "auto"], "add --engine ray"),
    ],
)
def test_other_engines_are_refused(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, [*SWEEP, *arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert message in result.output
