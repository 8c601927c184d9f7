"""Runs write their directory, are not repeated, and go on after an interruption."""

from __future__ import annotations

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.experiments import cifar10, toy
from groupella.runs.budget import with_budget
from groupella.runs.directory import load, run
from groupella.runs.jobs import Job, halving
from groupella.runs.record import RunError
from groupella.runs.study import Row, summary, table
from groupella.training import EpochRecord, Interrupted

TINY = Job(
    title="tiny",
    data="digits",
    groups="z2",
    train_size=60,
    alpha=1,
    hidden=4,
    blocks=((1, 2), (2, 2)),
    training={
        "epochs": 4,
        "burn_in": 1,
        "curvature_subset": 20,
        "curvature_samples": 1,
        "batch_size": 20,
    },
)
FILES = {"settings.json", "history.json", "last.safetensors", "selection.json", "report.json"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "one"
    run(TINY, place, progress=False)
    return place


def test_the_directory_holds_everything(directory: Path) -> None:
    there = {p.name for p in directory.iterdir()}
    assert FILES | {"report.html", "figures"} <= there
    settings = json.loads((directory / "settings.json").read_text())
    assert settings["seed"] == 0
    assert {"groupella", "torch", "numpy", "python"} <= set(settings["versions"])
    assert len(json.loads((directory / "history.json").read_text())) == 4


def test_a_finished_run_is_not_run_again(directory: Path) -> None:
    again = run(TINY, directory, progress=False)
    assert again.fit is None
    assert again.job == TINY
    assert again.content.selection == load(directory).content.selection


def test_another_job_is_refused(directory: Path) -> None:
    with pytest.raises(RunError, match=r"holds another run: alpha=1 there, 2 here"):
        run(replace(TINY, alpha=2), directory, progress=False)


def test_an_interrupted_run_goes_on_to_the_same_answer(directory: Path, tmp_path: Path) -> None:
    def stop(record: EpochRecord) -> None:
        if record.epoch == 1:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(TINY, tmp_path, progress=False, on_epoch=stop)
    with pytest.raises(RunError, match="not finished"):
        load(tmp_path)
    done = run(TINY, tmp_path, progress=False)
    assert done.fit is not None
    assert done.content.selection == load(directory).content.selection


def test_a_damaged_checkpoint_is_named(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path / "run")
    (tmp_path / "run" / "report.json").unlink()
    (tmp_path / "run" / "last.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"last\.safetensors"):
        run(TINY, tmp_path / "run", progress=False)


def test_what_is_not_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run"):
        load(tmp_path)
    (tmp_path / "settings.json").write_text("{")
    with pytest.raises(RunError, match="is not the settings of a run"):
        load(tmp_path)


def test_a_budget_becomes_epochs() -> None:
    data = TINY.load()
    few, more = (with_budget(TINY, seconds, data).training["epochs"] for seconds in (40, 200))
    assert 3 <= few < more


def test_a_budget_of_map_takes_no_curvature(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("MAP needs no curvature")

    monkeypatch.setattr("groupella.training._run.Run.collect", refuse)
    by_map = replace(TINY, training={**TINY.training, "method": "map"})
    assert with_budget(by_map, 60, by_map.load()).training["epochs"] > 10


def test_a_map_run_whose_curvature_is_too_large_is_reported_without_a_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupella.training._cost.MOST_ROWS", 3)
    by_map = replace(TINY, training={**TINY.training, "method": "map"})
    done = run(by_map, tmp_path, progress=False)
    assert not done.content.selection.is_measured
    assert "was not measured" in done.report.read_text(encoding="utf-8")
    (found,) = summary([Row("tiny", by_map)], {"tiny": load(tmp_path)})
    assert (found["verdict"], found["evidence"], found["shares"]) == ("not measured", None, {})
    assert found["nll"] is not None
    assert "not measured" in table([found])
    result = CliRunner().invoke(app, ["inspect", str(tmp_path), "--redraw"])
    assert result.exit_code == 0
    assert "was not measured" in result.stdout


def test_map_rows_of_studies_are_wide_although_fully_connected() -> None:
    for rows in (toy.PRESETS["hour"].rows(0), cifar10.PRESETS["hour"].rows(0)):
        narrow = [row for row in rows if row.job.alpha != 10]
        assert {row.job.alpha for row in narrow} == {2}
        assert all(row.name.endswith("evidence") for row in narrow)
        assert {str(row.job.preset).split("/")[1] for row in narrow} <= {"FC", "FC+CONV"}
        full = [row for row in rows if str(row.job.preset).endswith(("/FC", "/FC+CONV"))]
        assert 2 * len(narrow) == len(full)


def test_the_lattice_is_halved_while_it_can_be() -> None:
    assert halving((16, 16)) == ((1, 2), (2, 2), (4, 2))
    assert halving((32, 32)) == ((1, 2), (2, 2), (4, 2), (4, 2))
    assert halving((7, 7)) == ((1, 1), (2, 1), (4, 1))


def test_inspect_shows_a_run(directory: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(directory), "--redraw"])
    assert result.exit_code == 0, result.output
    assert "equivariance" in result.output
    assert "report.html" in result.output.replace("\n", "")
    found = CliRunner().invoke(app, ["inspect", str(directory), "--json"])
    assert json.loads(found.output)["layers"].keys() == {"layers.0", "layers.1"}


def test_inspect_refuses_what_is_no_run(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not a run" in result.output


def test_select_answers_in_json_and_does_not_repeat(tmp_path: Path) -> None:
    arguments = ["select", "--groups", "z2", "--data", "digits", "--train-size", "60", "--alpha"]
    arguments += ["1", "--epochs", "3", "--paths", "F-FC+CONV", "--out", str(tmp_path / "run")]
    arguments += ["--json"]
    first = CliRunner().invoke(app, arguments)
    assert first.exit_code == 0, first.output
    found = json.loads(first.output)
    assert found["verdict"] in ("z2", "none", "undecided")
    assert found["epochs"] == 3
    assert Path(found["report"]).exists()
    written = Path(found["report"]).stat().st_mtime_ns
    assert json.loads(CliRunner().invoke(app, arguments).output) == found
    assert Path(found["report"]).stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--groups", "p5"], "no group 'p5'"),
        (["--budget", "soon"], "duration"),
        (["--data", "nothing-there"], "nothing-there"),
    ],
)
def test_select_refuses_with_a_reason(tmp_path: Path, arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["select", *arguments, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert message in result.output
