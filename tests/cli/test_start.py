"""What goes wrong around a command: one line and an exit code, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupella.cli.app import app

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and devices of POSIX")
COMMAND = [sys.executable, "-m", "groupella.cli"]


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [*COMMAND, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
        **options,
    )


def test_a_terminal_that_knows_ascii_only_shows_what_it_can() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "80"}
    done = run("select", "--help", stdout=subprocess.PIPE, env=environment)
    assert done.returncode == 0, done.stderr
    assert "--groups" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_output_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        done = run("--version", stdout=full)
    assert done.returncode == 2
    assert done.stderr == "groupella: cannot write the output: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_outputs_that_are_both_full_or_closed_are_no_answer_and_no_traceback() -> None:
    command = " ".join([*COMMAND, "--version"])
    both = subprocess.run(f"{command} > /dev/full 2> /dev/full", shell=True)
    closed = subprocess.run(f"{command} >&-", shell=True, stderr=subprocess.PIPE)
    assert both.returncode == 2
    assert (closed.returncode, closed.stderr) == (0, b"")


def test_ctrl_c_during_imports_is_silent() -> None:
    program = (
        "import os, signal, sys, importlib.abc\n"
        "class Interrupting(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from groupella.cli.start import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["select", "--seed", str(2**64)], "less than or equal to 9223372036854775807"),
        (["sweep", "--data", "digits", "--seeds", "0-100000000"], "more than 10,000 runs"),
        (["sweep", "--data", "digits", "--seeds", str(2**64)], "a seed is at most"),
    ],
)
def test_numbers_that_are_too_large_are_refused(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert words in result.output


def test_a_user_without_a_home_needs_no_cache(tmp_path: Path) -> None:
    program = (
        "import pwd\n"
        "def unknown(*_): raise KeyError('uid not found')\n"
        "pwd.getpwuid = unknown\n"
        "from groupella.cli.start import main; main()\n"
    )
    hidden = ("HOME", "USER", "LOGNAME", "XDG_CACHE_HOME")
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"],
        env={k: v for k, v in os.environ.items() if k not in hidden},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
