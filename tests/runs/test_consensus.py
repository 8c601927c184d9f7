"""A sweep says what most of its runs say, with mean and spread over seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.runs.consensus import consensus, swept


def run(task: str, seed: int, verdict: str, accuracy: float | None, **scores: float) -> Any:
    measured = {"accuracy": accuracy, "nll": 0.5, "evidence": None, "scores": scores}
    rest = {"paper": {}, "paper_data": None, "shares": {}, "epochs": 8}
    return {"row": f"{task} seed {seed}", "task": task, "verdict": verdict, **measured, **rest}


def test_more_than_half_of_the_runs_make_a_consensus() -> None:
    verdicts = {"a": "p4 p4 z2", "b": "p4 z2", "c": "undecided undecided p4", "d": "none"}
    found = [
        run(task, seed, verdict, 90.0)
        for task, text in verdicts.items()
        for seed, verdict in enumerate(text.split())
    ]
    entries = {entry["task"]: entry for entry in consensus(found)}
    assert {task: entry["verdict"] for task, entry in entries.items()} == {
        "a": "p4",
        "b": "no consensus",
        "c": "undecided",
        "d": "none",
    }
    assert entries["a"]["verdicts"] == {"p4": 2, "z2": 1}
    assert entries["a"]["runs"] == 3


def test_means_and_spreads_are_those_of_numpy_and_one_run_has_no_spread() -> None:
    values = [91.0, 94.5, 89.25]
    found = [run("a", seed, "p4", value) for seed, value in enumerate(values)]
    found.append(run("b", 0, "p4", None, r2=0.75, rmse=2.0))
    a, b = consensus(found)
    assert a["accuracy"]["mean"] == pytest.approx(np.mean(values))
    assert a["accuracy"]["sd"] == pytest.approx(np.std(values, ddof=1))
    assert "accuracy" not in b
    assert b["r2"] == {"mean": 0.75, "sd": None}
    text = swept(found).splitlines()
    assert text[0] == "| task | runs | obeys | verdicts | accuracy, % | R² | NLL |"
    assert text[2] == "| a | 3 | p4 | p4 3 | 91.6 ± 2.7 | – | 0.500 ± 0.000 |"
    assert text[3] == "| b | 1 | p4 | p4 1 | – | 0.750 | 0.500 |"
    assert "paper" not in "".join(text)


@pytest.mark.slow
def test_a_sweep_does_what_select_does(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((600, 4))
    np.savez(tmp_path / "sums.npz", x=x, y=(x.sum(1) > 0).astype(int))
    arguments = ["sweep", "--data", str(tmp_path / "sums.npz"), "--groups", "permutations"]
    arguments += ["--seeds", "0-1", "--epochs", "12", "--alpha", "1", "--jobs", "1", "--json"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert [row["verdict"] for row in found["runs"]] == ["s4", "s4"]
    (entry,) = found["consensus"]
    assert entry["verdict"] == "s4"
    assert entry["accuracy"]["sd"] >= 0
    assert "Mean ± standard deviation" in (tmp_path / "out" / "summary.md").read_text("utf-8")
