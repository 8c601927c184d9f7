"""The examples are short, run without warnings in less than 20 s, and find what they say."""

from __future__ import annotations

import ast
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
# What the least symmetric layer of each example obeys.
FOUND = {
    "own_data.py": "z2",
    "own_groups.py": "molecule",
    "own_model.py": "none",
    "own_path.py": "none",
    "sequences.py": "z1",
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
    assert FOUND[name] in [line[1] for line in lines if len(line) == 2]
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 20
    assert not list(tmp_path.iterdir())


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
