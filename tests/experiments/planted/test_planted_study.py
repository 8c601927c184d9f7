"""`groupella reproduce planted`, and where `groupella planted` writes to."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner, Result

from groupella.cli.app import app
from groupella.experiments import planted as package
from groupella.experiments.commands.reproduce import SCALES
from groupella.experiments.planted import PRESETS, CaseResult, Planted
from groupella.runs.record import versions


@dataclass(frozen=True)
class Stub:
    """A case that finds what it is told to."""

    key: str
    found: str = "p4"
    part: str = "linear"
    is_short: bool = True

    @property
    def recipe(self) -> dict[str, Any]:
        return {}

    def run(self, workspace: Path) -> CaseResult:
        if not self.found:
            raise ValueError("no teacher")
        return CaseResult("linear", self.key, ("p4",), (self.found,), (True,), 100, 0.1, 0, 1.0)


class Stubs:
    """Settings whose cases are given; their names end in the seed."""

    def __init__(self, *stubs: Stub) -> None:
        self.stubs = stubs

    def cases(self, seed: int = 0) -> list[Stub]:
        return [replace(stub, key=f"{stub.key}-s{seed}") for stub in self.stubs]


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> None:
    stubs = Stubs(Stub("right"), Stub("less", "z2"))
    monkeypatch.setattr(package, "PRESETS", {"quick": stubs, "full": Stubs(Stub("all"))})


def reproduce(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["reproduce", "planted", "--out", str(place), *arguments])


def test_every_scale_of_a_study_is_a_preset_of_frozen_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GROUPELLA_DATA", raising=False)
    assert tuple(package.SCALES) == SCALES
    sizes = {}
    for scale, name in package.SCALES.items():
        settings = PRESETS[name]
        assert isinstance(settings, Planted)
        with pytest.raises(dataclasses.FrozenInstanceError):
            settings.linear = ()  # type: ignore[misc]
        cases = settings.cases(seed=3)
        assert min(case.seed for case in cases) == 3  # type: ignore[attr-defined]
        assert len({case.key for case in cases}) == len(cases)
        sizes[scale] = len(cases)
    assert sizes == {"quick": 225, "hour": 235, "paper": 450}


@pytest.mark.usefixtures("stubbed")
def test_a_study_writes_its_summary_beside_its_cases(tmp_path: Path) -> None:
    result = reproduce(tmp_path, "--seed", "2", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])
    assert (found["study"], found["preset"], found["linear_right"]) == ("planted", "quick", 0.5)
    names = {"right-s2.json", "less-s2.json", "summary.json", "summary.md"}
    assert {file.name for file in tmp_path.iterdir()} == names
    content = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert content["versions"] == versions()
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("# planted, preset quick, seed 2\n\n| part |")
    assert "1 of 2" in text
    assert "- less-s2, layer 1: planted p4, found z2" in text
    assert f"torch {versions()['torch']}" in text


@pytest.mark.usefixtures("stubbed")
def test_somebodys_own_summary_is_refused_and_kept(tmp_path: Path) -> None:
    (tmp_path / "summary.md").write_text("mine")
    result = reproduce(tmp_path, "--json")
    assert result.exit_code == 2
    assert "holds summary.md but no run, so that it is somebody else's" in result.stderr
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


@pytest.mark.usefixtures("stubbed")
def test_rows_of_the_study_are_cases_and_paper_is_all_of_them(tmp_path: Path) -> None:
    assert reproduce(tmp_path, "--row", "less").exit_code == 0
    assert not (tmp_path / "right-s0.json").exists()
    result = reproduce(tmp_path, "--row", "righ")
    assert result.stdout.endswith(f"summary: {tmp_path / 'summary.md'}\n")
    content = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert content["counts"]["linear"]["layers"] == 2
    assert reproduce(tmp_path / "paper", "--preset", "paper").exit_code == 0
    assert (tmp_path / "paper" / "all-s0.json").exists()


def test_a_case_that_fails_leaves_a_summary_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "PRESETS", {"quick": Stubs(Stub("bad", ""), Stub("good"))})
    result = reproduce(tmp_path, "--json")
    assert result.exit_code == 2
    assert "groupella reproduce: bad-s0: bad-s0 failed: no teacher" in result.stderr
    content = json.loads((tmp_path / "summary.json").read_text(encoding="utf-8"))
    assert content["counts"]["linear"]["layers"] == 1


@pytest.mark.parametrize(
    "wrong",
    [["--preset", "full"], ["--epochs", "3"], ["--data-dir", "data"], ["--row", "cubic"]],
    ids=lambda words: words[0],
)
def test_what_the_study_has_not_is_refused(tmp_path: Path, wrong: list[str]) -> None:
    assert reproduce(tmp_path / "out", *wrong).exit_code == 2
    assert not (tmp_path / "out").exists()


def planted(place: Path, *arguments: object) -> Result:
    words = ["planted", "--jobs", "1", "--no-progress", "--directory", str(place)]
    return CliRunner().invoke(app, [*words, *map(str, arguments)])


@pytest.mark.usefixtures("stubbed")
@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--figure", "planted.xyz", "the name must end in one of"),
        ("--figure", "planted", "the name must end in one of"),
        ("--figure", "folder.png", "is a directory"),
        ("--summary", "folder.png", "is a directory"),
        ("--summary", "file/summary.json", "file"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_any_work(
    tmp_path: Path, option: str, name: str, message: str
) -> None:
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    result = planted(tmp_path / "cases", option, tmp_path / name)
    assert result.exit_code == 2
    assert result.stderr.startswith("groupella planted: ")
    assert message in result.stderr
    assert not (tmp_path / "cases").exists()


@pytest.mark.usefixtures("stubbed")
def test_a_figure_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "planted.svg"
    assert planted(tmp_path, "--figure", file).exit_code == 0
    before = file.read_bytes()
    assert b"<svg" in before

    def half(self: Figure, name: Path, **_: object) -> None:
        Path(name).write_text("<sv")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", half)
    result = planted(tmp_path, "--figure", file)
    assert result.exit_code == 2
    assert "No space left on device" in result.stderr
    assert [f.read_bytes() for f in file.parent.iterdir()] == [before]
