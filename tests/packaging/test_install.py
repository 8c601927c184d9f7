"""The two commands of the installation guide work without a compiler; what is missing is named."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupella.groups.gate import MISSING

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))
COMMANDS = ["pip install .", "pip install --no-deps escnn"]


def closure(names: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions of these names and of all that they require, extras aside."""
    todo, seen = list(names), set()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # for another system or Python
            continue
        yield found
        todo += required(name)


def required(name: str) -> list[str]:
    """The names of the packages that a distribution requires, extras aside."""
    lines = importlib.metadata.requires(name) or []
    return [re.split(r"[^\w.-]", line)[0] for line in lines if "extra ==" not in line]


def test_no_hard_dependency_requires_a_fortran_compiler() -> None:
    reached = {found.metadata["Name"].lower() for found in closure(["groupella"])}
    assert {"torch", "sympy", "joblib"} <= reached
    assert not {"escnn", "py3nj", "lie-learn", "lie_learn"} & reached


def test_whatever_else_escnn_requires_is_a_hard_dependency() -> None:
    assert set(required("escnn")) - set(required("groupella")) == {"py3nj", "lie-learn"}


@pytest.mark.parametrize("page", ["README.md", "docs/installation.md"])
def test_the_two_commands_are_in_the_pages_that_explain_installation(page: str) -> None:
    assert "```text\n" + "\n".join(COMMANDS) + "\n```" in (ROOT / page).read_text("utf-8")


WITHOUT_ESCNN = """
import sys
sys.modules["escnn"] = None
"""


def test_a_command_that_needs_escnn_says_in_one_line_what_to_type() -> None:
    code = WITHOUT_ESCNN + "from groupella.cli.app import main; main()"
    command = [sys.executable, "-c", code, "select", "--data", "digits", "--groups", "p4"]
    result = subprocess.run([*command, "--epochs", "4"], capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (1, "", MISSING + "\n")


def test_doctor_names_what_is_missing_and_what_to_type() -> None:
    code = WITHOUT_ESCNN + (
        "import importlib.metadata as m\n"
        "version = m.version\n"
        "def without(name):\n"
        "    if name == 'pooch': raise m.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "m.version = without\n"
        "from groupella.cli.app import main; main()\n"
    )
    command = [sys.executable, "-c", code, "doctor"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "FAILED  dependencies  not installed: pooch" in result.stdout
    assert f"FAILED  escnn         {MISSING}" in result.stdout
    assert result.stderr.splitlines() == [
        "Failed: dependencies, escnn.",
        "To repair: pip install pooch",
        f"To repair: {COMMANDS[1]}",
    ]


@pytest.mark.slow
def test_the_two_commands_install_everything_without_a_compiler(
    source_tree: Path, tmp_path: Path
) -> None:
    """A fresh environment; only torch (up to several GB) is borrowed from this one."""
    venv.create(tmp_path / "fresh", with_pip=True, symlinks=True)
    tools = tmp_path / "fresh" / "bin"
    unwanted = ("PYTHON", "VIRTUAL_ENV", "CC", "CXX", "FC", "F77", "F90")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    pins = tmp_path / "pins.txt"  # with hashes, pip would ask for every requirement's
    lock = (ROOT / "requirements.lock").read_text()
    pins.write_text("".join(line.split(" --hash=")[0] + "\n" for line in lock.splitlines()))
    clean |= {"PATH": str(tools), "PIP_CONSTRAINT": str(pins)}

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tools / command.split()[0], *command.split()[1:]],
            cwd=source_tree,
            env=clean,
            capture_output=True,
            text=True,
        )

    reached = run(f"{COMMANDS[1]} --dry-run")
    if reached.returncode:
        assert "No matching distribution" in reached.stderr, reached.stderr
        pytest.skip("pip cannot reach a package index")
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    for distribution in closure(["torch"]):
        for name in {path.parts[0] for path in distribution.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(SITE / name)
    for command in COMMANDS:
        result = run(command)
        assert result.returncode == 0, result.stdout + result.stderr
    result = run("groupella doctor")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "not installed, and not needed" in result.stdout
