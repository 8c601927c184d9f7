"""Counting, intervals, the store of finished cases and the command."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from groupella._files import alone
from groupella._schema import build
from groupella.cli.app import app
from groupella.experiments import planted as package
from groupella.experiments.planted import (
    CaseResult,
    Counts,
    LinearCase,
    _runner,
    calibration,
    headline,
    run_all,
    summary,
    wilson,
)
from groupella.experiments.planted._result import imposes_wrong
from groupella.runs import RunError
from groupella.runs.engines import Engine, Work


def result(planted: tuple[str, ...], verdicts: tuple[str, ...], **more: Any) -> CaseResult:
    given: dict[str, Any] = {
        "part": "linear",
        "key": "case",
        "counted": (True,) * len(planted),
        "n": 100,
        "noise": 0.1,
        "seed": 0,
        "seconds": 1.0,
    }
    return CaseResult(planted=planted, verdicts=verdicts, **{**given, **more})


@dataclass(frozen=True)
class Stub:
    key: str
    version: int = 1
    part: str = "linear"
    is_short: bool = True

    @property
    def recipe(self) -> dict[str, Any]:
        return {"version": self.version}

    def run(self, workspace: Path) -> CaseResult:
        workspace.mkdir(parents=True, exist_ok=True)
        log = workspace / "runs"
        log.write_text(log.read_text() + "x" if log.exists() else "x")
        return result(("p4",), ("p4",), key=self.key)


class Stubs:
    """Settings whose cases are given."""

    def __init__(self, *stubs: Stub) -> None:
        self.stubs = stubs

    def cases(self, seed: int = 0) -> list[Stub]:
        return [replace(stub, key=f"{stub.key}{seed or ''}") for stub in self.stubs]


@pytest.mark.parametrize(
    ("planted", "verdict", "wrong"),
    [
        ("p4", "p4", False),
        ("p4", "z2", False),
        ("p4", "none", False),
        ("p4", "p4m", True),
        ("p4", "flips", True),
        ("p4m", "p4 and flips", False),
        ("p4", "p4 and flips", True),
        ("none", "none", False),
        ("none", "undecided", False),
        ("none", "z2", True),
    ],
)
def test_wrong_symmetry_is_one_that_the_planted_does_not_contain(
    planted: str, verdict: str, wrong: bool
) -> None:
    assert imposes_wrong(planted, verdict) == wrong


def test_counts_leave_dropped_layers_out() -> None:
    first = result(("p4m", "p4", "none"), ("p4m", "z2", "z2"))
    second = result(("p4", "z2"), ("p4m", "z2"), counted=(False, True))
    assert Counts.of([first, second]) == Counts(layers=4, right=2, wrong=1, undecided=0, dropped=1)


def test_wilson_interval_matches_published_values() -> None:
    # Newcombe (1998), table I: 81 of 263 and 15 of 148.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)


def test_undecided_layers_are_neither_right_nor_wrong() -> None:
    found = result(("none", "p4"), ("undecided", "p4"))
    assert Counts.of([found]) == Counts(layers=2, right=1, wrong=0, undecided=1, dropped=0)
    assert build(CaseResult, json.loads(json.dumps(asdict(found)))) == found


def test_calibration_compares_probabilities_with_what_was_planted() -> None:
    def said(p: float, planted: str) -> CaseResult:
        chances = {"p4": p, "none": 1 - p}
        return result((planted,), ("undecided",), details={"probabilities": chances})

    found = calibration([said(0.8, "p4"), said(0.8, "none"), said(0.999, "p4")])
    assert [(b["cases"], b["right"]) for b in found["bins"]] == [(2, 1), (1, 1)]
    assert found["error"] == pytest.approx((0.6 + 0.001) / 3, abs=1e-4)
    assert calibration([result(("p4",), ("p4",))])["error"] is None


def test_headline_has_the_promised_names() -> None:
    found = headline([result(("p4",), ("p4",)), result(("none",), ("z2",), part="deep")])
    assert found["linear_right"] == 1.0
    assert found["deep_right"] == 0.0
    assert found["wrong_symmetry"] == 0.5
    assert found["counts"]["deep"]["layers"] == 1


def test_summary_lists_what_is_not_right() -> None:
    content = summary([result(("p4",), ("z2",))], "quick")
    assert content["not_right"] == ["case, layer 1: planted p4, found z2"]
    assert content["by_group"] == {"linear": {"p4": {"z2": 1}}}


def test_finished_cases_are_skipped_unless_their_recipe_changed(tmp_path: Path) -> None:
    cases = [Stub("a"), Stub("b")]
    first = run_all(cases, tmp_path, progress=False)
    again = run_all([*cases, Stub("c")], tmp_path, progress=False)
    assert [o.key for o in again] == ["a", "b", "c"]
    assert again[:2] == first
    assert (tmp_path / "a" / "runs").read_text() == "x"
    run_all([Stub("a", version=2)], tmp_path, progress=False)
    assert (tmp_path / "a" / "runs").read_text() == "xx"


def test_cases_run_in_processes_have_the_same_results(tmp_path: Path) -> None:
    cases = [LinearCase("p4", 100, seed) for seed in range(2)]
    here, there = run_all(cases, tmp_path / "a", progress=False), tmp_path / "b"
    elsewhere = run_all(cases, there, jobs=2, progress=False)
    for mine, other in zip(here, elsewhere, strict=True):
        assert replace(mine, seconds=0.0) == replace(other, seconds=0.0)
    assert sorted(p.name for p in there.iterdir()) == sorted(f"{c.key}.json" for c in cases)


def test_a_failure_names_its_case(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"linear-trivial8-nothing-n100-s0 failed: .* not in tuple"):
        run_all([LinearCase("nothing", 100, 0)], tmp_path, progress=False)


def test_the_command_stops_its_processes_and_says_what_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stopped processes do is the affair of `test_stopping.py`."""
    stopped = []

    def processes(workers: int) -> Engine:
        def engine(pieces: Mapping[str, Work]) -> Generator[str, None, None]:
            (tmp_path / "last.safetensors").touch()
            try:
                yield from pieces
                signal.raise_signal(signal.SIGTERM)
            finally:
                stopped.append(workers)

        return engine

    monkeypatch.setattr(package, "PRESETS", {"quick": Stubs(Stub("a"), Stub("b"))})
    monkeypatch.setattr(_runner, "processes", processes)
    arguments = ["planted", "--jobs", "2", "--no-progress", "--directory", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    saved = f"interrupted; saved in {tmp_path}. Rerun the command to resume.\n"
    assert (result.exit_code, result.stdout, result.stderr) == (143, "", saved)
    assert stopped == [2]


def test_a_workspace_of_another_recipe_is_cleared(tmp_path: Path) -> None:
    for version, runs in ((1, "x"), (2, "x")):
        run_all([Stub("a", version=version, is_short=False)], tmp_path, progress=False)
        assert (tmp_path / "a" / "runs").read_text() == runs
    (tmp_path / "a.json").unlink()
    run_all([Stub("a", version=2, is_short=False)], tmp_path, progress=False)
    assert (tmp_path / "a" / "runs").read_text() == "xx"


def test_a_workspace_in_which_another_process_works_is_refused_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all([Stub("a", is_short=False)], tmp_path, progress=False)
    monkeypatch.setattr(_runner, "alone", partial(alone, patience=0.0))
    with alone(tmp_path / "a"), pytest.raises(RunError, match=r"^.*/a is in use, .*$"):
        run_all([Stub("a", version=2, is_short=False)], tmp_path, progress=False)
    assert (tmp_path / "a" / "runs").read_text() == "x"


def test_command_runs_only_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stubs = [Stub("deep-p4-s0"), Stub("deep-p4-s1"), Stub("deep-z2-s1")]
    monkeypatch.setattr(package, "PRESETS", {"quick": Stubs(*stubs)})
    arguments = ["planted", "--jobs", "1", "--no-progress", "--directory", str(tmp_path)]
    assert CliRunner().invoke(app, [*arguments, "--only", "deep-*-s1"]).exit_code == 0
    assert sorted(p.stem for p in tmp_path.glob("*.json")) == ["deep-p4-s1", "deep-z2-s1"]
    result = CliRunner().invoke(app, [*arguments, "--only", "deep-*", "--only", "s1"])
    assert result.exit_code == 2
    assert "deep-p4-s0 to deep-z2-s1" in " ".join(result.stderr.split())


def test_command_prints_the_headline_on_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "PRESETS", {"quick": Stubs(Stub("a"), Stub("b"))})
    arguments = ["planted", "--json", "--jobs", "1", "--no-progress", "--directory", str(tmp_path)]
    files = ["--figure", str(tmp_path / "f.png"), "--summary", str(tmp_path / "s.json")]
    result = CliRunner().invoke(app, [*arguments, *files])
    assert result.exit_code == 0, result.output
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["linear_right"] == 1.0
    assert last["counts"]["linear"]["layers"] == 2
    assert (tmp_path / "f.png").stat().st_size > 0
    assert json.loads((tmp_path / "s.json").read_text())["preset"] == "quick"


def test_command_refuses_unknown_presets_and_parts(tmp_path: Path) -> None:
    for wrong in (["--preset", "slow"], ["--part", "cubic"]):
        result = CliRunner().invoke(app, ["planted", *wrong, "--directory", str(tmp_path)])
        assert result.exit_code == 2


def test_the_figure_shows_what_was_said_against_what_is_right() -> None:
    said = ((0.6, True), (0.6, False), (0.95, True), (0.95, True))
    results = [
        result(
            ("p4",),
            ("p4" if fine else "z2",),
            part="select",
            key=str(i),
            details={"probabilities": {"p4" if fine else "z2": p}, "true_members": ["z2", "p4"]},
        )
        for i, (p, fine) in enumerate(said)
    ]
    panel = package.figure(results).axes[2]
    line = panel.containers[0].lines[0]
    assert line.get_xdata() == pytest.approx([0.6, 0.95])
    assert line.get_ydata() == pytest.approx([0.5, 1.0])
    assert "calibration error 0.075" in panel.get_legend().get_texts()[0].get_text()
