"""Help prints every character of its source: rich markup swallows words in brackets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from groupella.cli.app import app

COLUMNS = "500"


def commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The words of every command and group, with the object that has its texts."""
    yield words, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*words, name))


def one_line(text: str) -> str:
    """Without colours, frames and line breaks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m|[│╭╮╰╯─]", " ", text).split())


def source_of(command: Any) -> Iterator[str]:
    """Every paragraph that the help has to print; a bracket is written as \\[."""
    yield from inspect.cleandoc(command.help or "").split("\n\n")
    yield from (p.help for p in command.params if getattr(p, "help", None))


ALL = list(commands(typer.main.get_command(app)))
IDS = [" ".join(words) or "groupella" for words, _ in ALL]


@pytest.mark.parametrize(("words", "command"), ALL, ids=IDS)
def test_no_help_text_loses_a_character(words: tuple[str, ...], command: Any) -> None:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": COLUMNS})
    assert result.exit_code == 0
    printed = one_line(result.output)
    texts = [one_line(text).replace("\\[", "[") for text in source_of(command)]
    assert texts
    assert [text for text in texts if text not in printed] == []


def test_the_ray_extra_is_printed() -> None:
    result = CliRunner().invoke(app, ["sweep", "--help"], env={"COLUMNS": COLUMNS})
    assert "pip install groupella[ray]" in one_line(result.output)


@pytest.mark.parametrize(("words", "command"), ALL, ids=IDS)
def test_every_option_and_command_is_explained_in_sentences(
    words: tuple[str, ...], command: Any
) -> None:
    assert command.help
    for parameter in command.params:
        assert re.match(r"[A-Za-z].*\.$", parameter.help, re.DOTALL), (words, parameter.name)
