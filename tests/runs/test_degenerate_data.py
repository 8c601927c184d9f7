"""Data from which nothing or little can be learned: one clear line, or no confident verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from groupella.cli.app import app

RNG = np.random.default_rng(0)
LABELS = np.arange(40) % 2
NOISE = RNG.normal(size=(40, 4, 4)).astype(np.float32)
Arrays = dict[str, np.ndarray]


def signal(scale: float = 1.0, dtype: str = "f4") -> Arrays:
    """Bright and dark images: a signal that every symmetry leaves alone."""
    x = (NOISE * 0.1 + 3 * LABELS[:, None, None] + 5) * scale
    return {"x": x.astype(dtype), "y": LABELS}


def select(tmp_path: Path, arrays: Arrays, *options: str) -> tuple[int, str, str]:
    np.savez(tmp_path / "own.npz", **arrays)  # type: ignore[arg-type]
    arguments = ["select", "--groups", "z2", "--data", str(tmp_path / "own.npz"), "--epochs", "4"]
    arguments += ["--alpha", "1", "--out", str(tmp_path / "run"), "--json", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result.exit_code, result.stdout, result.stderr


def answer(found: tuple[int, str, str]) -> dict[str, object]:
    code, out, err = found
    assert code == 0, err

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in the answer")

    content: dict[str, object] = json.loads(out, parse_constant=refuse)
    return content


@pytest.mark.slow
@pytest.mark.parametrize(
    "arrays",
    [
        pytest.param({"x": np.full((40, 4, 4), 7.0), "y": LABELS}, id="constant images"),
        pytest.param({"x": np.repeat(NOISE[:1], 40, 0), "y": LABELS}, id="duplicates"),
        pytest.param({"x": NOISE, "y": LABELS}, id="noise"),
        pytest.param({"x": np.zeros((40, 4, 4), np.uint8), "y": LABELS}, id="black"),
    ],
)
def test_without_a_signal_nothing_is_claimed(tmp_path: Path, arrays: Arrays) -> None:
    assert answer(select(tmp_path, arrays))["verdict"] == "undecided"


@pytest.mark.slow
@pytest.mark.parametrize("images", [np.full((40, 4, 4), 7.0), np.repeat(NOISE[:1], 40, 0)])
def test_without_a_signal_no_path_is_claimed_either(tmp_path: Path, images: np.ndarray) -> None:
    arrays = {"x": images, "y": LABELS}
    found = answer(select(tmp_path, arrays, "--paths", "F-FC+CONV", "--epochs", "12"))
    assert found["verdict"] == "undecided"


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: signal(dtype="f2"), id="float16"),
        pytest.param(lambda: signal(10, "i8"), id="integers"),
        pytest.param(lambda: signal(1e30), id="1e30"),
        pytest.param(lambda: {**signal(), "classes": np.array(["a", "b", "c"])}, id="empty class"),
        pytest.param(lambda: {"x": signal()["x"][:, :1, :1], "y": LABELS}, id="1x1"),
        pytest.param(lambda: {"x": signal()["x"][:, :1, :], "y": LABELS}, id="1x4"),
    ],
)
def test_unusual_data_give_an_answer_with_finite_numbers(
    tmp_path: Path, make: Callable[[], Arrays]
) -> None:
    found = answer(select(tmp_path, make()))
    assert found["verdict"] in ("z2", "none", "undecided")
    assert found["nll"] is not None


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": NOISE[:1], "y": LABELS[:1]}, "expected two or more of some class"),
        ({"x": NOISE[:2], "y": LABELS[:2]}, "expected two or more of some class"),
        ({"x": NOISE, "y": np.zeros(40, int)}, "one class"),
        ({"x": NOISE[:0], "y": LABELS[:0]}, "own.npz"),
        ({"x": NOISE.astype("f8") * 1e300, "y": LABELS}, "not finite"),
    ],
)
def test_too_little_is_refused_in_one_line(tmp_path: Path, arrays: Arrays, words: str) -> None:
    with np.errstate(over="ignore"):
        code, out, err = select(tmp_path, arrays)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()
