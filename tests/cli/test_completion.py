"""Completion as a person meets it: the printed script in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")
pytestmark = pytest.mark.skipif(BASH is None, reason="there is no bash")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PATH with the command in it, and the script that it prints."""
    place = tmp_path_factory.mktemp("bin")
    command = place / "groupella"
    start = "import sys; from groupella.cli.app import main; sys.argv[0] = 'groupella'; main()"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{start}" "$@"\n')
    command.chmod(0o755)
    # Typer looks for the shell among a process's parents, and the tests may have none.
    printed = subprocess.run(
        [command, "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    (place / "completion.sh").write_text(printed.stdout)
    return place


def complete(home: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    script = f"""
        source {home}/completion.sh
        complete -p groupella | grep -q _groupella_completion || exit 3
        COMP_WORDS=({" ".join(f"'{w}'" for w in ("groupella", *words))})
        COMP_CWORD={len(words)}
        _groupella_completion groupella
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    assert BASH is not None
    result = subprocess.run(
        [BASH, "--norc", "--noprofile", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": f"{home}:{os.environ['PATH']}"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout.split()


def test_commands_are_offered(home: Path) -> None:
    assert complete(home, "s") == ["select", "sweep"]
    assert complete(home, "rep") == ["reproduce"]


def test_values_are_offered(home: Path) -> None:
    assert complete(home, "select", "--groups", "z2,p4") == ["z2,p4", "z2,p4m"]
    assert complete(home, "sweep", "--data", "digits", "--groups", "z") == ["z2", "z1", "z3"]
    assert complete(home, "sweep", "--engine", "") == ["local", "ray"]
    assert complete(home, "reproduce", "mul") == ["multigroup"]
    assert "mnist:rotated" in complete(home, "select", "--data", "mnist")


def test_options_are_offered(home: Path) -> None:
    assert complete(home, "select", "--al") == ["--alpha"]
