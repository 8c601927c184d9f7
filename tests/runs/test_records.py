"""A directory goes on only with what it was begun with; what fails leaves nothing half-done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.evidence import NonFiniteError
from groupella.runs import directory
from groupella.runs import engines as _engines
from groupella.runs.budget import with_budget
from groupella.runs.directory import Assignment, finished, run
from groupella.runs.engines import here, processes
from groupella.runs.jobs import Job
from groupella.runs.record import Record, RunError, digest
from groupella.runs.study import Row, finished_rows, perform, summary
from groupella.training import CurvatureTooLargeError, Interrupted

TINY = Job(
    title="tiny",
    data="digits",
    groups="z2",
    train_size=40,
    alpha=1,
    hidden=4,
    blocks=((1, 2), (2, 2)),
    training={"epochs": 1, "batch_size": 20, "method": "map"},
)


def said(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_other_epochs_are_another_run(tmp_path: Path) -> None:
    run(TINY, tmp_path, progress=False)
    assert Assignment(TINY, tmp_path).is_finished
    with pytest.raises(RunError, match=r"holds another run: epochs=1 there, 30 here\."):
        _ = Assignment(TINY.for_epochs(30), tmp_path).is_finished


@pytest.mark.slow
def test_a_budget_goes_on_with_its_epochs_and_no_other_budget_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "with_budget", lambda job, *_: job.for_epochs(2))
    Assignment(TINY, tmp_path, 100.0).do(progress=False)
    monkeypatch.delattr(directory, "with_budget")  # is not measured again
    task = Assignment(TINY, tmp_path, 100.0)
    assert task.settled == TINY.for_epochs(2)
    assert task.is_finished
    with pytest.raises(RunError, match=r"a budget of 100 s, not with a budget of 3600 s\."):
        _ = Assignment(TINY, tmp_path, 3600.0).is_finished
    run(TINY, tmp_path / "counted", progress=False)
    with pytest.raises(RunError, match="started with 1 epochs, not with a budget of 100 s"):
        _ = Assignment(TINY, tmp_path / "counted", 100.0).settled


@pytest.mark.parametrize("method", ["map", "adam"])
def test_a_budget_that_is_too_short_is_refused_with_one_that_would_do(method: str) -> None:
    training = {**TINY.training, "method": method, "burn_in": 1, "curvature_subset": 20}
    job = replace(TINY, training=training)
    least = {"map": "one is the least", "adam": r"evidence needs 3 \(a burn-in of 1"}[method]
    with pytest.raises(RunError, match=rf"0\.001s is too short: an epoch takes .*{least}"):
        with_budget(job, 0.001, job.load())


def test_own_data_that_changed_are_another_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file = tmp_path / "own.npz"

    def write(labels: int) -> None:
        x = rng.integers(0, 256, (40, 8, 8), dtype=np.uint8)
        np.savez(file, x=x, y=np.arange(40) % labels)

    write(2)
    job = replace(TINY, data=str(file), train_size=None)
    run(job, tmp_path / "run", progress=False)
    assert finished(tmp_path / "run", job)
    write(2)
    with pytest.raises(RunError, match=r"own\.npz has changed since the run started"):
        finished(tmp_path / "run", job)
    assert Record.of(job).files != Record.load(tmp_path / "run").files


def test_a_groups_file_and_a_folder_have_digests(tmp_path: Path) -> None:
    groups = tmp_path / "my_groups.py"
    groups.write_text("GROUPS = 1\n")
    folder = tmp_path / "images"
    (folder / "cats").mkdir(parents=True)
    (folder / "cats" / "1.png").write_bytes(b"cat")
    job = replace(TINY, groups=f"{groups}:GROUPS", data=f"{folder}:rotated")
    assert set(job.own_files().values()) == {groups, folder}
    before = Record.of(job).files
    (folder / "cats" / "1.png").rename(folder / "cats" / "2.png")
    groups.write_text("GROUPS = 2\n")
    after = Record.of(job).files
    assert all(before[name] != after[name] for name in before)
    assert digest(tmp_path / "nowhere") == ""
    assert replace(TINY, data="mnist:rotated").own_files() == {}


def test_data_that_are_not_there_leave_no_run(tmp_path: Path) -> None:
    place = tmp_path / "run"
    common = ["--paths", "F-FC+CONV", "--epochs", "1", "--alpha", "1", "--train-size", "40"]
    common += ["--out", str(place)]
    code, output = said("select", "--data", "mnits", *common)
    assert (code, "no data set 'mnits'" in output) == (2, True)
    assert not place.exists()
    assert said("select", "--data", "digits", "--groups", "z2", *common)[0] == 0
    code, output = said(
        "select", "--data", "digits", "--groups", "z2", "--paths", "F-FC+CONV", "--out", str(place)
    )
    assert code == 2  # five minutes, where it was begun with one epoch
    assert "started with 1 epochs" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["demo", "--seed", "-1"],
        ["select", "--seed", "-1"],
        ["reproduce", "toy", "--seed", "-1"],
        ["select", "--epochs", "1", "--budget", "soon"],
    ],
)
def test_wrong_numbers_exit_with_two(arguments: list[str]) -> None:
    assert said(*arguments)[0] == 2


def test_a_file_is_no_place_for_runs(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for arguments in (
        ["select", "--epochs", "1", "--out", str(file)],
        ["reproduce", "toy", "--epochs", "1", "--row", "digit CONV map", "--out", str(file)],
        ["sweep", "--data", "digits", "--epochs", "9", "--out", str(file)],
    ):
        code, output = said(*arguments)
        assert code == 2, output
        assert "Traceback" not in output
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("engine", "bad", "message"),
    [
        (processes(2), replace(TINY, data="mnits"), "bad: no data set 'mnits'"),
        (
            here,
            replace(TINY, training={**TINY.training, "lr": 1e30, "prior_step": "gradient"}),
            "bad: the loss is not finite in step",
        ),
    ],
    ids=["data", "divergence"],
)
def test_a_row_that_fails_does_not_stop_the_others(
    tmp_path: Path, engine: _engines.Engine, bad: Job, message: str
) -> None:
    rows = [Row("bad", bad), Row("good", TINY)]
    with pytest.raises(RunError, match=message):
        perform(rows, tmp_path, engine=engine)
    assert [entry["row"] for entry in summary(rows, finished_rows(rows, tmp_path))] == ["good"]


class Raises:
    """Work that fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def do(self, progress: bool) -> None:
        raise self.error


class Counts:
    """Work that notes that it was done."""

    times = 0

    def do(self, progress: bool) -> None:
        self.times += 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NonFiniteError("the loss is not finite"), "^bad: the loss is not finite$"),
        (RuntimeError("not enough memory: you tried to allocate 8 GB"), "^bad: not enough memory"),
        (CurvatureTooLargeError("its factors are too large"), "^bad: its factors are too large$"),
        (RuntimeError(), "^bad: RuntimeError$"),
        (KeyError("weights"), r"^bad: Traceback (.|\n)*raise self.error\nKeyError: 'weights'"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_whatever_error_stops_a_piece_of_work_is_reported_when_the_others_are_done(
    error: Exception, message: str
) -> None:
    after = Counts()
    with pytest.raises(RunError, match=message):
        list(here({"bad": Raises(error), "good": after}))
    assert after.times == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Interrupted("at epoch 1", None)])
def test_what_is_stopped_does_no_other_work(stop: KeyboardInterrupt) -> None:
    after = Counts()
    with pytest.raises(type(stop)):
        list(here({"stopped": Raises(stop), "never": after}))
    assert after.times == 0


@pytest.mark.slow
def test_the_summary_has_all_rows_that_are_finished(tmp_path: Path) -> None:
    common = ["reproduce", "toy", "--preset", "quick", "--epochs", "1", "--out", str(tmp_path)]
    for row in ("digit CONV map", "digit+quadrant CONV map"):
        code, output = said(*common, "--row", row, "--json")
        assert code == 0, output
        assert [r["row"] for r in json.loads(output.splitlines()[-1])["rows"]] == [row]
    found = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert [r["row"] for r in found] == ["digit CONV map", "digit+quadrant CONV map"]
    code, output = said(
        *common[:4], "--epochs", "2", "--out", str(tmp_path), "--row", "digit CONV map"
    )
    assert (code, "epochs=1 there, 2 here" in output) == (2, True)


class Fails:
    def do(self, progress: bool) -> None:
        raise RunError("its data are gone")


class Interrupts:
    def do(self, progress: bool) -> None:
        raise KeyboardInterrupt


def test_what_failed_before_an_interruption_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        list(here({"first": Fails(), "second": Interrupts()}))
    assert capsys.readouterr().err == "first failed: its data are gone\n"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["sweep", "--data", "digits"], "summary.md"), (["demo"], "report.html")],
)
def test_somebodys_own_summary_is_refused_and_kept(
    tmp_path: Path, arguments: list[str], name: str
) -> None:
    (tmp_path / name).write_text("mine")
    code, output = said(*arguments, "--out", str(tmp_path))
    assert code == 2
    assert f"holds {name} but no run" in output
    assert (tmp_path / name).read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [name]
