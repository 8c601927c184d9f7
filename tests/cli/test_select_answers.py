"""What `groupella select` answers: a verdict that was tested, or that it does not know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.experiments.planted._select_tasks import ALL_HANDED, HANDED, shapes
from groupella.runs.directory import load

MINE = """
import numpy as np
from groupella.groups import Symmetry

sites = np.arange(16).reshape(4, 4)
MINE = [Symmetry.from_generators("turned over", (4, 4), [sites.T.ravel()])]
"""


def run(*arguments: object) -> Any:
    width = () if "--alpha" in arguments else ("--alpha", "1")
    return CliRunner().invoke(app, ["select", *map(str, arguments), *width])


def answer(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def saved(place: Path, x: Any, labels: Any) -> Path:
    np.savez(place / "mine.npz", images=x.astype(np.uint8), labels=labels)
    return place / "mine.npz"


@pytest.fixture
def noise(tmp_path: Path) -> Path:
    """100 random images of 4×4 pixels with random labels."""
    rng = np.random.default_rng(0)
    labels = np.array(["cat", "dog"])[rng.integers(0, 2, 100)]
    return saved(tmp_path, rng.integers(0, 256, (100, 4, 4)), labels)


@pytest.fixture
def corners(tmp_path: Path) -> Path:
    """A bright pixel in the left or the right half, which transposing does not keep apart."""
    rng = np.random.default_rng(0)
    n = 400
    rows, columns = rng.integers(0, 4, (2, n))
    x = rng.integers(0, 30, (n, 4, 4))
    x[np.arange(n), rows, columns] = 255
    return saved(tmp_path, x, np.array(["left", "right"])[(columns >= 2).astype(int)])


def test_random_labels_are_undecided_with_exit_code_0(tmp_path: Path, noise: Path) -> None:
    options = ("--groups", "z2,p4", "--data", noise, "--epochs", 4, "--out", tmp_path / "run")
    found = answer(*options)
    assert found["verdict"] == "undecided"
    assert found["reason"]
    assert 0 <= found["probability"] <= 1
    rows = {row["name"]: row for row in found["consequences"]}
    assert list(rows) == ["chance", "free", "z2", "p4"]
    for name, row in rows.items():
        assert 0 <= row["accuracy"] <= 1, name
        assert row["nll"] > 0, name
    content = load(tmp_path / "run").content
    assert content.selection.verdict == "undecided"
    assert [row.name for row in content.consequences] == list(rows)
    report = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "undecided" in report.lower()
    # A finished run is not repeated, and its table and words are printed from what was saved.
    assert answer(*options) == found
    said = run(*options)
    assert said.exit_code == 0
    assert all(name in said.stdout for name in ("chance", "z2", "p4"))
    assert "undecided" in said.stdout.lower() or "cannot tell" in said.stdout.lower()


def test_labels_that_a_group_of_ones_own_does_not_leave_alone(
    tmp_path: Path, corners: Path
) -> None:
    """Its networks are dense: also the one that obeys nothing is reported layer by layer."""
    (tmp_path / "mine.py").write_text(MINE)
    found = answer(
        *("--groups", f"{tmp_path / 'mine.py'}:MINE", "--data", corners, "--epochs", 20),
        *("--out", tmp_path / "run"),
    )
    assert found["verdict"] == "none"
    assert found["probability"] > 0.9
    assert found["accuracy"] > 0.9
    assert set(found["layers"].values()) == {"none"}


@pytest.mark.slow
def test_a_folder_of_shapes_whose_hand_matters_obeys_turns_but_no_mirrors(tmp_path: Path) -> None:
    """From files to the verdict, and back from the run: colours, places and turns are random."""
    x, labels = shapes(HANDED, ALL_HANDED, np.random.default_rng(0), n=500)
    for number, (image, label) in enumerate(zip(x, labels, strict=True)):
        file = tmp_path / "shapes" / label / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(file)
    found = answer(
        *("--groups", "z2,p4,p4m", "--data", tmp_path / "shapes", "--epochs", 20),
        *("--alpha", 2, "--out", tmp_path / "run"),
    )
    assert found["verdict"] == "p4"
    assert found["probability"] > 0.99
    rows = {row["name"]: row for row in found["consequences"]}
    assert rows["p4"]["accuracy"] > 0.85 > 0.75 > rows["p4m"]["accuracy"]
    assert found["accuracy"] > 0.9
    assert load(tmp_path / "run").content.selection.judgement.verdict == "p4"


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--epochs", "3", "--epochs 3 is too short"),
        ("--confirm", "guess", "no --confirm guess; expected predictions or evidence"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(
    tmp_path: Path, noise: Path, option: str, value: str, words: str
) -> None:
    options = ("--groups", "z2", "--data", noise, "--out", tmp_path / "run")
    result = run(*options, option, value)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert words in result.stderr
    assert not (tmp_path / "run").exists()


def test_images_with_one_label_are_refused_in_one_line(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (40, 4, 4))
    file = saved(tmp_path, x, np.array(["cat"] * 40))
    result = run("--groups", "z2", "--data", file, "--epochs", 4, "--out", tmp_path / "run")
    assert result.exit_code == 2, result.output
    assert result.stderr.strip().count("\n") == 0
