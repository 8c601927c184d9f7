"""The demo: what its two tasks are, and when it says that its verdicts are right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from groupella.cli._demo import DIGITS, demo_jobs
from groupella.cli.app import app
from groupella.data import ImageData
from groupella.decide import Candidates, LayerSelection, PathSelection, Selection
from groupella.report import ReportContent
from groupella.runs.directory import Done, load
from groupella.runs.jobs import Job
from groupella.runs.record import RunError
from groupella.training import EpochRecord, History

LARGEST = {"trivial": ("trivial",), "z2": ("trivial", "z2"), "p4": ("trivial", "z2", "p4")}
LIVE = {"none": {"trivial", "z2", "p4"}, "z2": {"z2", "p4"}, "p4": {"p4"}}


def found(verdict: str) -> ReportContent:
    """The content of a run whose one layer uses just the paths that obey `verdict`."""
    paths = tuple(
        PathSelection(name, 1.0, 1.0, 9, 3.0, 1 / 3, -9.0, name in LIVE[verdict], members)
        for name, members in LARGEST.items()
    )
    selection = Selection(
        (LayerSelection("layers.0", paths, verdict, 1.0, "none"),),
        -1.0,
        9,
        candidates=Candidates(("z2", "p4"), {"z2": (), "p4": ("z2",)}),
    )
    history = History([EpochRecord(0, 1.0, 1.0, 0.5, 0.01, 0.1)])
    return ReportContent("a task", "digits", {name: name for name in LARGEST}, selection, history)


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`groupella demo` where training is left out, and finds the verdicts given."""

    def with_verdicts(of_digits: str, of_turns: str, *options: str) -> Any:
        verdicts = {"p4": of_digits, "z2": of_turns}

        def run(job: Job, directory: Path, **_: object) -> Done:
            return Done(job, directory, found(verdicts[str(job.obeys)]))

        monkeypatch.setattr("groupella.runs.directory.run", run)
        return CliRunner().invoke(app, ["demo", "--out", str(tmp_path), *options])

    return with_verdicts


def test_the_demo_is_right_when_both_verdicts_are(demo: Callable[..., Any], tmp_path: Path) -> None:
    result = demo("p4", "z2", "--json", "--seed", "7")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["right"] is True
    assert answer["verdicts"] == {"p4": "p4", "z2": "z2"}
    assert [task["verdict"] for task in answer["tasks"]] == ["p4", "z2"]
    assert answer["seed"] == 7
    assert Path(answer["report"]) == tmp_path / "report.html"
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Asked only which digit it is, the network obeys p4." in report
    assert "Asked also how it was turned, it obeys z2." in report


@pytest.mark.parametrize(
    ("of_digits", "of_turns"),
    [("z2", "z2"), ("none", "z2"), ("p4", "p4"), ("p4", "none"), ("z2", "p4"), ("none", "none")],
)
def test_the_demo_is_not_right_when_a_verdict_is_not(
    demo: Callable[..., Any], of_digits: str, of_turns: str
) -> None:
    result = demo(of_digits, of_turns, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert answer["right"] is False
    assert answer["verdicts"] == {"p4": of_digits, "z2": of_turns}
    words = [f"the network obeys {of_digits}.", f"how it was turned, it obeys {of_turns}."]
    report = Path(answer["report"]).read_text(encoding="utf-8")
    assert all(text.replace("none", "nothing") in report for text in words)


def test_the_demo_says_in_words_whether_it_is_right(
    demo: Callable[..., Any], tmp_path: Path
) -> None:
    right = demo("p4", "z2")
    assert right.exit_code == 0
    assert "That is how the labels were made." in right.stdout
    assert right.stdout.count("What each layer obeys") == 2
    assert f"report: {tmp_path / 'report.html'}" in right.stdout
    (tmp_path / "report.html").unlink()  # no run is beside it, since training is left out
    wrong = demo("p4", "p4")
    assert wrong.exit_code == 1
    assert "The labels were made differently!" in wrong.stdout
    assert "That is how" not in wrong.stdout


@pytest.mark.slow
def test_the_demo_finds_both_symmetries(tmp_path: Path) -> None:
    """As it is, trained: the only test of the settings that it comes with."""
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path), "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert answer["verdicts"] == {"p4": "p4", "z2": "z2"}
    assert [load(tmp_path / task).job for task in ("p4", "z2")] == demo_jobs(0)
    for task in ("p4", "z2"):
        assert (tmp_path / task / "selection.json").exists()
        # Nothing is learned about precisions, so they have no figure.
        assert len(list((tmp_path / task / "figures").glob("*.png"))) == 5
    assert [round(task["probability"], 2) for task in answer["tasks"]] == [1.0, 1.0]
    digit, turn = (task["accuracy"] for task in answer["tasks"])
    assert digit >= 0.95
    assert turn >= 0.85


@pytest.mark.parametrize("error", [RunError, PermissionError])
def test_a_demo_that_cannot_run_exits_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def run(*_: object, **__: object) -> Done:
        raise error("another run is there")

    monkeypatch.setattr("groupella.runs.directory.run", run)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "another run is there" in result.stderr


def test_the_tasks_of_the_demo_differ_in_their_labels_only() -> None:
    digits, turns = demo_jobs(3)
    assert (digits.obeys, turns.obeys) == ("p4", "z2")
    assert replace(turns, obeys="p4", title=digits.title) == digits
    assert [m.name for m in digits.group_set()] == ["trivial", "z2", "p4"]
    assert digits.seed == 3
    first, second = digits.load(progress=False), turns.load(progress=False)
    torch.testing.assert_close(first.train_x, second.train_x, rtol=0, atol=0)
    torch.testing.assert_close(first.test_x, second.test_x, rtol=0, atol=0)
    assert (len(first.classes), len(second.classes)) == (6, 24)


def test_the_labels_of_the_demo_are_digits_and_their_turns() -> None:
    first, second = (job.load(progress=False) for job in demo_jobs(0))
    wanted = [int(digit) for digit in DIGITS.split(",")]
    seen = shown(first)
    assert [digit for digit, _ in seen] == [wanted[label] for label in first.train_y]
    # A label of the second task stands for a digit and a turn, and each such pair has one label.
    labelled = set(zip(second.train_y.tolist(), seen, strict=True))
    assert len(labelled) == len({label for label, _ in labelled}) == len(set(seen)) == 24


def shown(data: ImageData) -> list[tuple[int, int]]:
    """The digit in each training image and its quarter turns, by comparison with the originals."""
    drawn, names = load_digits(return_X_y=True)
    digits = {bytes(x.astype(np.uint8)): int(name) for x, name in zip(drawn, names, strict=True)}
    images = (16 * data.pixels(data.train_x)).round().to(torch.uint8)[:, 0]
    seen = []
    for image in images:
        matches = set()
        for turn in range(4):
            back = torch.rot90(image, -turn)
            quadrants = back.reshape(2, 8, 2, 8).transpose(1, 2).reshape(4, 64)
            (inside,) = quadrants[quadrants.sum(1) > 0]
            matches |= {(d, turn) for d in [digits.get(bytes(inside.numpy()))] if d is not None}
        assert len(matches) == 1
        seen += matches
    return seen
