"""The plugin: fixtures in a project that has none, at no cost until a test asks for one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import sys
from torch import nn

def test_shifts(assert_equivariant, image_space):
    images = image_space("z2", "p4", size=8, channels=1)
    conv = nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")
    assert_equivariant(conv, images, images.with_channels(2), "z2")

def test_border(assert_equivariant, image_space):
    images = image_space("z2", size=(8, 6), channels=1)
    assert_equivariant(nn.Conv2d(1, 2, 3, padding=1), images, images.with_channels(2), "z2")

def test_turns(assert_rotation_equivariant, equivariance_error, image_space):
    pool = nn.Sequential(nn.AvgPool2d(32), nn.Flatten())
    assert_rotation_equivariant(pool, (1, 32, 32))
    images = image_space("z2", size=32, channels=1)
    assert float(equivariance_error(pool, images, None, "z2")) < 1e-4
"""


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly"]
    command += ["-p", "no:groupella", "-p", "groupella.pytest_plugin"]
    environment = {**os.environ, "PYTEST_ADDOPTS": "", "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, "--rootdir", str(path), "-c", os.devnull, *options, str(path)],
        cwd=path,
        env=environment,
        capture_output=True,
        text=True,
    )


def test_a_project_gets_the_fixtures_and_the_reason_of_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_model.py").write_text(TESTS)
    result = run(tmp_path)
    assert "1 failed, 2 passed" in result.stdout, result.stdout + result.stderr
    assert "zero padding is the likely cause" in result.stdout


def test_the_plugin_imports_nothing_heavy() -> None:
    code = "import sys, groupella.pytest_plugin; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "False\n", result.stderr


def test_pytest_finds_it_where_groupella_is_installed() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert '[project.entry-points.pytest11]\ngroupella = "groupella.pytest_plugin"' in text
