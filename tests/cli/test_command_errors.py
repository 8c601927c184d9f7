"""Failures that can be foreseen end in one line and exit code 2; 1 is for an answer that is no."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

import groupella.data as data
import groupella.runs.directory as runs
from groupella.cli.app import app
from groupella.cli.errors import plain_errors
from groupella.data import DataError
from groupella.evidence import NonFiniteError
from groupella.runs.record import RunError


def raising(error: Exception) -> Any:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


def said(*arguments: object) -> str:
    """What a command says in its only line, with exit code 2."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr.strip()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (PermissionError(13, "Permission denied", "/runs"), "Permission denied: '/runs'"),
        (ValueError("expected 3, got 4"), "expected 3, got 4"),
        (DataError("mnist is damaged"), "mnist is damaged"),
        (RunError("not finished"), "not finished"),
        (NonFiniteError("the loss is not finite"), "the loss is not finite"),
        (FloatingPointError(), "FloatingPointError"),
        (MemoryError("9 GiB"), "not enough memory (9 GiB)"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_foreseeable_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, words: str
) -> None:
    with pytest.raises(typer.Exit) as stop, plain_errors("command"):
        raise error
    assert stop.value.exit_code == 2
    line = capsys.readouterr().err
    assert line.startswith("groupella command: ")
    assert line.endswith(f"{words}\n")


@pytest.mark.parametrize("error", [KeyError("fault"), AssertionError(), typer.Exit(130)])
def test_faults_of_the_program_and_exits_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as passed, plain_errors("command"):
        raise error
    assert passed.value is error


def test_an_error_that_is_an_answer_exits_with_one() -> None:
    for error, code in ((DataError("damaged"), 1), (OSError("read-only"), 2)):
        with pytest.raises(typer.Exit) as stop, plain_errors("command", no=(DataError,)):
            raise error
        assert stop.value.exit_code == code


def test_select_that_diverges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "run", raising(NonFiniteError("parameter θ is NaN or infinite")))
    line = said("select", "--data", "digits", "--epochs", 4, "--out", tmp_path / "run", "--json")
    assert line == "groupella select: parameter θ is NaN or infinite"


def test_inspect_that_cannot_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "redraw", raising(OSError(30, "Read-only file system", "figures")))
    assert "Read-only file system: 'figures'" in said("inspect", tmp_path, "--redraw")


def test_planted_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    only = ["--only", "linear-*-p4-n100-s0", "--jobs", 1, "--no-progress"]
    assert "Not a directory" in said("planted", "--directory", file, *only)


def test_data_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "verify", raising(PermissionError(13, "Permission denied", "mnist")))
    assert said("data", "verify", "mnist") == (
        "groupella data verify: [Errno 13] Permission denied: 'mnist'"
    )
