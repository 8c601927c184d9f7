"""Many runs are refused before the first is begun, where it is known that one of them will fail."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import groupella.data as data
from groupella.cli import _sweep as command
from groupella.cli.app import app
from groupella.experiments.commands.reproduce import find
from groupella.runs.directory import Assignment
from groupella.runs.jobs import Job
from groupella.runs.record import RunError
from groupella.runs.study import Row, make_ready, perform

JOB = Job(title="tiny", data="digits", groups="z2", alpha=1, training={"epochs": 1})


class Begun(BaseException):
    """Work has begun, with these pieces."""


def begin(pieces: Mapping[str, Any]) -> Generator[str, None, None]:
    raise Begun(pieces)
    yield


def refused(place: Path, *arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--out", str(place)])
    assert result.exit_code == 2, result.output
    assert not place.exists()
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "mnits"], "no data set 'mnits': neither one of digits, mnist"),
        (["--data", "digits:rotatd"], "Did you mean 'digits:rotated'?"),
        (["--data", "nowhere.npz"], "no data set 'nowhere.npz': there is no such file"),
        (["--data", __file__], "expected an .npz file, a .csv file or a folder of images"),
        (["--paths", "CONV", "--paths", "CNOV"], "unknown path 'CNOV'; did you mean 'CONV'?"),
        (["--paths", "GCONV:p4"], "no member 'p4'"),
        (["--paths", "CONV+GCONV"], "GCONV needs a member with translations and a point group"),
        (["--data", "digits"], "--data digits is given twice"),
        (["--search", "grid"], "no --search grid; choose confirm or paths"),
        (["--paths", "CONV", "--search", "confirm"], "--paths requires --search paths"),
        (["--epochs", "1"], "--epochs 1 is too short to learn anything"),
        (["--paths", "CONV", "--paths", "CONV"], "--paths CONV is given twice"),
    ],
)
def test_a_sweep_is_refused_before_any_work(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    common = ["sweep", "--data", "digits", "--groups", "z2", "--epochs", "9"]
    assert message in refused(tmp_path / "out", *common, *arguments)


def test_data_that_would_share_a_directory_are_refused(tmp_path: Path) -> None:
    files = [str(tmp_path / name) for name in ("my_data.npz", "my-data.npz")]
    for file in files:
        np.savez(file, images=np.zeros((4, 4, 4)), labels=np.arange(4) % 2)
    message = refused(tmp_path / "out", "sweep", "--data", files[0], "--data", files[1])
    assert "would share the directory" in message
    assert all(file in message for file in files)


def test_rows_keep_the_directories_that_finished_runs_are_in() -> None:
    names = ["digit+quadrant F-FC+CONV evidence", "mnist:rotated map", "S-FC:lengthscales map"]
    assert [Row(name, JOB).key for name in names] == [
        "digit+quadrant-F-FC+CONV-evidence",
        "mnist-rotated-map",
        "S-FC-lengthscales-map",
    ]
    with pytest.raises(RunError, match="'a b' and 'a_b' would share the directory a-b"):
        perform([Row("a b", JOB), Row("a_b", JOB)], Path("nowhere"))


def test_a_study_is_refused_before_any_work_where_its_data_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def public(name: str, *_: object) -> None:
        if name == "cifar10":
            raise data.DataError("could not download cifar-10-python.tar.gz")

    monkeypatch.setattr(data, "public", public)
    message = refused(tmp_path / "out", "reproduce", "multigroup", "--preset", "hour")
    assert message == "groupella reproduce: could not download cifar-10-python.tar.gz"


def test_every_public_data_set_is_got_once_before_the_first_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[tuple[str, str | None]] = []
    monkeypatch.setattr(data, "public", lambda name, where: got.append((name, where)))
    rows = find("multigroup", "hour").rows(0)
    with pytest.raises(Begun):
        perform(rows, tmp_path, engine=begin, check=lambda jobs: make_ready(jobs, "there"))
    assert got == [("mnist", "there"), ("cifar10", "there")]
    got.clear()
    make_ready([row.job for row in rows], fetch=False)
    make_ready([JOB])
    assert got == []


def test_a_preset_needs_no_names_of_paths() -> None:
    make_ready([replace(JOB, preset="toy-digit/CONV", paths="nothing")])


@pytest.mark.parametrize("given", [True, False], ids=["given", "environment"])
def test_work_elsewhere_is_told_the_data_directory_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GROUPELLA_DATA", "other" if given else "mine")
    with pytest.raises(Begun) as begun:
        perform([Row("one", JOB)], Path("out"), engine=begin, data_dir="mine" if given else None)
    (task,) = begun.value.args[0].values()
    assert isinstance(task, Assignment)
    assert (task.data_dir, task.directory) == (str(tmp_path / "mine"), tmp_path / "out" / "one")
    assert task.job == JOB


@pytest.mark.parametrize(
    ("jobs", "seeds", "wanted"),
    [(None, "0-4", 3), (None, "0-1", 2), (None, "0", None), (1, "0-4", None), (7, "0-1", 7)],
)
def test_sweeps_go_to_local_processes_by_default(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    jobs: int | None,
    seeds: str,
    wanted: int | None,
) -> None:
    """One a core; None stands for this process."""
    workers: list[int | None] = []

    def processes(count: int) -> Any:
        workers.append(count)
        return begin

    monkeypatch.setattr("groupella.runs.engines.processes", processes)
    monkeypatch.setattr("groupella.runs.engines.here", begin)
    monkeypatch.setattr(command.os, "cpu_count", lambda: 3)
    options: Sequence[str] = () if jobs is None else ("--jobs", str(jobs))
    arguments = ["sweep", "--data", "digits", "--seeds", seeds, "--out", str(tmp_path), *options]
    with pytest.raises(Begun):
        CliRunner().invoke(app, arguments)
    assert workers == ([] if wanted is None else [wanted])
