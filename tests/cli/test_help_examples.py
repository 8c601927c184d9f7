"""Every example that a command's help prints gets as far as the work that it asks for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.data import BASES, TRANSFORMS
from groupella.runs import Job
from groupella.runs.directory import Assignment
from groupella.runs.study import Row

WORK = (
    "groupella.answers.load",
    "groupella.testing.equivariance_error",
    "groupella.cli._installation.examine",
    "groupella.data.fetch",
    "groupella.data.verify",
    "groupella.experiments.peers.run_all",
    "groupella.experiments.planted.run_all",
    "groupella.runs.directory.Assignment.do",
    "groupella.runs.directory.redraw",
    "groupella.runs.directory.load",
    "groupella.runs.study.perform",
)
FILES = {
    "my_model.py": "from torch import nn\nnet = nn.Flatten()\ndef make():\n    return net\n",
    "my_groups.py": "from groupella.groups import p4, z2\nGROUPS = [z2(), p4()]\n",
}


class Reached(BaseException):
    """The command has understood its arguments and begins to work."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.arguments = arguments


def commands(group: Any = None, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command."""
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))
        else:
            yield (*words, name)


def examples(words: tuple[str, ...]) -> list[str]:
    """The lines of the printed help that begin with the command's name, on a wide terminal."""
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300"})
    assert result.exit_code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", result.output)
    return re.findall(r"^\s*(?:Example: )?(groupella .*?)\s*$", plain, re.MULTILINE)


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is downloaded, trained or measured; the files that examples name are there."""

    def reach(*arguments: object, **_: object) -> NoReturn:
        raise Reached(arguments)

    for name in WORK:
        monkeypatch.setattr(name, reach)
    monkeypatch.setattr("groupella.runs.ray.is_installed", lambda: True)
    monkeypatch.chdir(tmp_path)
    for file, text in FILES.items():
        (tmp_path / file).write_text(text)


def work_of(arguments: list[str]) -> tuple[Any, ...]:
    """What the work was given when it was to begin."""
    try:
        result = CliRunner().invoke(app, arguments)
    except Reached as reached:
        return reached.arguments
    pytest.fail(f"{arguments} ended with exit code {result.exit_code}:\n{result.output}")


def jobs_of(arguments: tuple[Any, ...]) -> list[Job]:
    """The jobs among what the work was given."""
    rows = [a for given in arguments for a in (given if isinstance(given, list) else [given])]
    return [a.job for a in rows if isinstance(a, Row | Assignment)]


def is_known(data: str) -> bool:
    name, _, transform = data.partition(":")
    return (name in BASES or name.endswith(".npz")) and transform in ("", *TRANSFORMS)


@pytest.mark.parametrize("words", list(commands()), ids=" ".join)
@pytest.mark.usefixtures("stubbed")
def test_examples_are_understood(words: tuple[str, ...]) -> None:
    found = examples(words)
    assert found
    for example in found:
        _, *arguments = shlex.split(example)
        assert tuple(arguments[: len(words)]) == words
        assert all(is_known(job.data) for job in jobs_of(work_of(arguments))), example


@pytest.mark.usefixtures("stubbed")
@pytest.mark.parametrize(
    "example",
    [
        "select --gruops z2",
        "select --groups p5",
        "select --budget soon",
        "select --groups other.py:GROUPS",
        "sweep --seeds 0-4",
        "sweep --data digits --seeds 4-0",
        "sweep --data digits --engine slurm",
        "reproduce toy --preset slow",
        "reproduce tables",
        "reproduce toy --row FC+FC",
        "check my_model.py:nothing",
        "data fetch",
    ],
)
def test_other_words_are_refused_before_any_work(example: str) -> None:
    assert CliRunner().invoke(app, shlex.split(example)).exit_code == 2
