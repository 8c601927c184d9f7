"""`groupella select` and `sweep` with a person's own groups, paths, images, and time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.report import ReportContent
from groupella.runs.directory import load
from groupella.runs.jobs import Job
from groupella.runs.record import Record

MINE = """
import numpy as np
from groupella.groups import Symmetry, z2

sites = np.arange(16).reshape(4, 4)
turned_over = Symmetry.from_generators("turned over", (4, 4), [sites.T.argsort(axis=None)])

def make():
    return [turned_over]

GROUPS = [z2(), turned_over]
"""


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """An .npz with 50 grey images in two classes, of which a fifth is kept for testing."""
    rng = np.random.default_rng(0)
    file = tmp_path / "my_images.npz"
    names = np.array(["dark", "light"])
    labels = np.arange(50) % 2
    pixels = rng.integers(0, 100, (50, 4, 4)) + 100 * labels[:, None, None]
    np.savez(file, images=pixels.astype(np.uint8), labels=names[labels])
    return file


def invoke(command: str, *arguments: object) -> Any:
    words = [command, *map(str, arguments), "--alpha", "1", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def select(out: Path, *arguments: object) -> tuple[dict[str, Any], ReportContent]:
    found = invoke("select", *arguments, "--out", out)
    assert Path(found["report"]) == out / "report.html"
    return found, load(out).content


def paths_of(content: ReportContent) -> list[set[str]]:
    return [{p.path for p in layer.paths} for layer in content.selection.layers]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("GROUPS", {"trivial", "z2", "turned over"}), ("make", {"trivial", "turned over"})],
)
def test_groups_of_a_file_on_images_of_an_npz(
    tmp_path: Path, images: Path, name: str, wanted: set[str]
) -> None:
    (tmp_path / "my_groups.py").write_text(MINE)
    groups = f"{tmp_path / 'my_groups.py'}:{name}"
    place = tmp_path / "sweep"  # of one run, with a path for every group
    options = ("--groups", groups, "--data", images, "--epochs", 1, "--out", place)
    (found,) = invoke("sweep", "--search", "paths", *options)["runs"]
    assert found["epochs"] == 1
    (run,) = [d for d in place.iterdir() if d.is_dir()]
    content = load(run).content
    assert content.selection.n_data == 40
    assert content.held_out.n == 10
    assert set(content.groups) == wanted
    # A path for what obeys both z2 and the other, of which neither contains the other.
    both = {"z2&turned over"} if "z2" in wanted else set()
    assert all(paths == wanted | both for paths in paths_of(content))
    assert {e.label for e in content.examples} == {"dark", "light"}


def test_paths_that_are_named(tmp_path: Path, images: Path) -> None:
    _, content = select(
        tmp_path / "run",
        *("--groups", "z2", "--paths", "F-FC+CONV", "--data", images, "--epochs", 1),
    )
    assert paths_of(content)
    assert all(paths == {"F-FC", "CONV"} for paths in paths_of(content))


def test_a_folder_of_images(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split, count in (("train", 6), ("test", 2)):
        for colour in ("blue", "green", "red"):
            folder = tmp_path / "photos" / split / colour
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (8, 9, 3)).astype(np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
    found, content = select(
        tmp_path / "run",
        *("--groups", "z2", "--paths", "F-FC+CONV", "--epochs", 1),
        *("--data", tmp_path / "photos", "--size", 4),
    )
    assert content.selection.n_data == 18
    assert content.held_out.n == 6
    assert {e.label for e in content.examples} == {"blue", "green", "red"}
    assert {e.pixels.shape for e in content.examples} == {(4, 4, 3)}
    assert found["accuracy"] == content.held_out.accuracy


def test_a_budget_is_measured_once_and_kept(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many epochs fit into it is the affair of `test_budget.py`."""
    measured = []

    def fitting(job: Job, budget: float, *_: object) -> Job:
        measured.append(budget)
        return job.for_epochs(2)

    monkeypatch.setattr("groupella.runs.directory.with_budget", fitting)
    arguments = ("--groups", "z2", "--data", images, "--budget", "1m30s")
    found, content = select(tmp_path / "run", *arguments)
    # The last network trains on for half as many.
    assert found["epochs"] == len(content.history) == 1
    assert Record.load(tmp_path / "run").budget == 90
    assert select(tmp_path / "run", *arguments)[0] == found
    assert measured == [90]


def test_data_that_a_budget_has_no_time_for_are_left_out(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitting(job: Job, *_: object) -> Job:
        less = {**job.training, "looks": 1, "layers": False}
        return replace(job, train_size=24, training=less).for_epochs(4)

    monkeypatch.setattr("groupella.runs.directory.with_budget", fitting)
    arguments = ("--groups", "z2", "--data", images, "--budget", "1m")
    found, content = select(tmp_path / "run", *arguments)
    assert content.selection.n_data == 24
    assert Record.load(tmp_path / "run").job.train_size == 24
    # Without its mark the run is unfinished: it resumes with the same data.
    (tmp_path / "run" / "finished.json").unlink()
    again, content = select(tmp_path / "run", *arguments)
    assert content.selection.n_data == 24
    assert again == found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("s4", "s4 is defined on 4 sites, not on 5"),
        ("z2", "z2 acts on 2-dimensional lattices, not on 5 sites; permutations do"),
    ],
)
def test_groups_that_do_not_fit_the_data_are_refused_before_time_is_measured(
    tmp_path: Path, groups: str, message: str
) -> None:
    file = tmp_path / "vectors.csv"
    rows = np.random.default_rng(0).standard_normal((40, 6))
    np.savetxt(file, rows, delimiter=",", header="a,b,c,d,e,y", comments="")
    words = ["select", "--groups", groups, "--data", str(file), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert message in result.output
    assert "measuring" not in result.output


def test_a_sweep_over_paths(tmp_path: Path, images: Path) -> None:
    found = invoke(
        *("sweep", "--data", images, "--groups", "z2", "--epochs", 1, "--out", tmp_path / "sweep"),
        *("--paths", "F-FC+CONV", "--paths", "CONV", "--jobs", "1"),
    )["runs"]
    assert [set(row["shares"]) for row in found] == [{"F-FC", "CONV"}, {"CONV"}]
    assert [row["row"] for row in found] == [
        f"{images} F-FC+CONV seed 0",
        f"{images} CONV seed 0",
    ]
    runs = [d for d in (tmp_path / "sweep").iterdir() if d.is_dir()]
    assert {load(d).job.paths for d in runs} == {"F-FC+CONV", "CONV"}
