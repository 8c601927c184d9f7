"""`groupella select` with large and oblong images: what it says, predicts and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import groupella
from groupella.cli.app import app
from groupella.runs import estimate


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["select", *map(str, arguments), "--alpha", "1"])


def answer(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def noise(n: int, *lattice: int, seed: int = 0) -> tuple[Any, Any]:
    """Random images with random labels."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, *lattice)).astype(np.uint8), rng.integers(0, 2, n)


@pytest.fixture
def oblong(tmp_path: Path) -> Path:
    x, y = noise(40, 12, 20)
    np.savez(tmp_path / "oblong.npz", x=x, y=y)
    return tmp_path / "oblong.npz"


def test_the_size_is_said_and_the_accuracy_is_that_of_predictions_for_test_images(
    tmp_path: Path,
) -> None:
    (x, y), (test_x, test_y) = noise(40, 96, 72), noise(200, 96, 72, seed=1)
    np.savez(tmp_path / "large.npz", x_train=x, y_train=y, x_test=test_x, y_test=test_y)
    found = answer(
        *("--groups", "z2", "--data", tmp_path / "large.npz", "--epochs", 4),
        *("--out", tmp_path / "run"),
    )
    assert found["size"] == [32, 24]
    assert found["remarks"][0] == "images of 96×72 were averaged to 32×24"
    assert found["verdict"] == "undecided"
    predicted = groupella.load(tmp_path / "run").predict(test_x)
    assert found["accuracy"] == pytest.approx(np.mean(predicted == test_y.astype(str)))
    assert found["accuracy"] < 0.7  # nothing can be learned


@pytest.mark.parametrize(
    ("fit", "side", "words"),
    [
        ("crop", 12, "images of 12×20 were cut to the central 12×12"),
        ("pad", 20, "images of 12×20 were put on a black 20×20"),
        ("stretch", 12, "images of 12×20 were averaged to 12×12"),
    ],
)
def test_oblong_images_become_square_as_asked(
    tmp_path: Path, oblong: Path, fit: str, side: int, words: str
) -> None:
    found = answer(
        *("--groups", "p4", "--data", oblong, "--fit", fit, "--paths", "CONV", "--epochs", 1),
        *("--out", tmp_path / "run"),
    )
    assert found["size"] == [side, side]
    assert found["remarks"][0] == words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--fit", "squash"), r"no --fit squash; expected one of crop, pad, stretch"),
        (
            ("--paths", "DENSE", "--size", "224"),
            r"training needs at least [\d,]+ GiB, and this machine has 4\.0 GiB: .* is DENSE in",
        ),
        (
            ("--paths", "F-FC+TIED", "--size", "224"),
            r"training needs at least [\d,]+ GiB, and this machine has 4\.0 GiB: .* is F-FC in",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_any_work(
    tmp_path: Path,
    oblong: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    words: str,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was made")

    monkeypatch.setattr(estimate, "memory_of_machine", lambda: 4 * 2**30)
    monkeypatch.setattr("groupella.networks.trunk", refuse)
    place = tmp_path / "run"
    result = run("--groups", "c4,d4", "--data", oblong, *options, "--json", "--out", place)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert re.search(words, result.stderr)
