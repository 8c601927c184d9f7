"""A command executes a user's groups file once, and reads the data of a run once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import groupella.data._load as load
from groupella.cli.app import app
from groupella.runs import Job


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """How often the data were read and the groups file was executed by a command."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "images.npz",
        x=rng.integers(0, 256, (40, 8, 8), dtype=np.uint8),
        y=np.arange(40) % 2,
    )
    log = tmp_path / "executed"
    (tmp_path / "my_groups.py").write_text(
        "from groupella.groups import z2\n"
        f"with open({str(log)!r}, 'a') as log:\n    log.write('x')\n"
        "GROUPS = [z2()]\nONE = z2()\n"
    )
    monkeypatch.chdir(tmp_path)
    reads: list[Path] = []
    original = load.from_npz

    def reading(path: Path, *arguments: Any, **options: Any) -> Any:
        reads.append(path)
        return original(path, *arguments, **options)

    def fitting(job: Job, budget: float, data: Any) -> Job:
        """The epochs that fit into the budget, without measuring."""
        assert len(data.train_y) == 20
        return job.for_epochs(1)

    monkeypatch.setattr(load, "from_npz", reading)
    monkeypatch.setattr("groupella.runs.directory.with_budget", fitting)

    def run(*arguments: str) -> tuple[int, int]:
        common = ("--groups", "my_groups.py:GROUPS", "--data", "images.npz", "--alpha", "1")
        sizes = ("--train-size", "20", "--out", str(tmp_path / "out"), "--json")
        result = CliRunner().invoke(app, [*arguments, *common, *sizes])
        assert result.exit_code == 0, result.output
        executed = len(log.read_text()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return executed, len(reads)

    return run


def test_select_with_a_budget_reads_everything_once(counted: Any) -> None:
    assert counted("select", "--budget", "1m", "--motion", "my_groups.py:ONE") == (1, 1)


def test_a_finished_run_reads_no_data(counted: Any) -> None:
    assert counted("select", "--paths", "F-FC+CONV", "--epochs", "1") == (1, 1)
    assert counted("select", "--paths", "F-FC+CONV", "--epochs", "1")[1] == 1


def test_a_sweep_in_this_process_reads_the_data_of_each_run_once(counted: Any) -> None:
    assert counted(
        "sweep", "--search", "paths", "--epochs", "1", "--seeds", "0-1", "--jobs", "1"
    ) == (1, 2)
