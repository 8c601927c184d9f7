"""The examples are short, run without warnings in well under a minute, and find what they say."""

from __future__ import annotations

import ast
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from groupella.cli.app import app

LONGEST = 40  # CPU seconds
EXAMPLES = Path(__file__).parents[2] / "examples"
# What the least symmetric layer, or each task, of each example obeys.
FOUND = {
    "deployment.py": ["s4"],
    "own_data.py": ["z2"],
    "own_groups.py": ["molecule"],
    "own_model.py": ["none"],
    "own_path.py": ["none"],
    "sequences.py": ["z1", "line_reflections"],
    "sets.py": ["s5", "cyclic5"],
    "vectors.py": ["SO(2)z"],
    "voxels.py": ["octahedral", "z3"],
}


def test_every_example_is_run_here() -> None:
    names = {path.name for path in EXAMPLES.iterdir() if path.suffix == ".py"}
    assert names == {*FOUND, "test_my_model.py"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short_and_uses_public_names_only(path: Path) -> None:
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 60
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [*node.module.split("."), *(alias.name for alias in node.names)]
            assert not [name for name in names if name.startswith("_")]


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_an_example_finds_what_it_says(name: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    result = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    lines = [line.split(" obeys ") for line in result.stdout.splitlines()]
    assert {*FOUND[name]} <= {line[1] for line in lines if len(line) == 2}
    assert "False" not in result.stdout
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < LONGEST
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sequences.py", "sets.py", "voxels.py"])
def test_the_command_of_an_example_finds_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data that it writes are those of its first lines, before the first search."""
    text = (EXAMPLES / name).read_text("utf-8")
    (command,) = (line for line in text.splitlines() if line.startswith("    groupella select"))
    words = command.split()[1:]
    file = words[words.index("--data") + 1]
    monkeypatch.chdir(tmp_path)
    made: dict[str, Any] = {}
    exec(compile(text.partition("tasks = ")[0], name, "exec"), made)
    np.savez(file, x=made["x"], y=made[Path(file).stem])
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    tasks = re.findall(r'"(\w+)": \1\b', text)
    wanted = dict(zip(tasks, FOUND[name], strict=True))
    assert json.loads(result.stdout.splitlines()[-1])["verdict"] == wanted[Path(file).stem]


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    result = subprocess.run(
        [*command, "--rootdir", tmp_path, "-c", os.devnull, EXAMPLES / "test_my_model.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert "4 passed" in result.stdout
