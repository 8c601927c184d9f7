"""``tools/lock check`` finds what does not fit together."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = [path.name for path in ROOT.glob("requirements*.lock")]


def check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "tools" / "lock", "check", "--root", root]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with our pyproject.toml and locks, and next to no code."""
    for name in ("pyproject.toml", *LOCKS):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "groups").mkdir()
    (tmp_path / "groups" / "module.py").write_text("import os\nimport numpy.linalg\n")
    return tmp_path


def edit(path: Path, pattern: str, replacement: str) -> None:
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE)
    assert count
    path.write_text(text)


def test_our_own_tree_agrees() -> None:
    result = check(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_small_sound_tree_agrees(tree: Path) -> None:
    assert check(tree).returncode == 0


@pytest.mark.parametrize(
    ("file", "pattern", "replacement", "complaint"),
    [
        ("requirements.lock", "^scipy==.*\n", "", "scipy is declared but not locked"),
        ("requirements.lock", "^scipy==.*$", "scipy==1.2.0", "scipy 1.2.0 is not '>=1.12'"),
        ("requirements.lock", "^sympy==.*\n", "", "torch needs sympy, which is not locked"),
        ("requirements-docs.lock", "^(sphinx==[^ ]*) .*$", r"\1", "has no hash"),
        ("requirements.lock", "^rich==", "rich>=", "is not pinned with =="),
        ("requirements.lock", "^torch==2.13.0", "torch==2.12.0", "expected one torch==2.13.0"),
        ("requirements-bench.lock", r"\A", "torch==2.9.0\n", "expected one torch==2.13.0"),
        ("requirements-docs.lock", r"\A", "nvidia-nccl-cu12==1.0\n", "does not belong there"),
        ("requirements-numpy2.lock", "^numpy==.*\n", "", "numpy is declared but not locked"),
        ("groups/module.py", r"\A", "import pandas\n", "module.py:1: imports pandas, not declared"),
        (
            "groups/module.py",
            r"\A",
            "import pytest\n",
            "imports pytest, not declared in dependencies",
        ),
    ],
)
def test_a_disagreement_is_named(
    tree: Path, file: str, pattern: str, replacement: str, complaint: str
) -> None:
    edit(tree / file, pattern, replacement)
    result = check(tree)
    assert result.returncode == 1, result.stderr
    assert complaint in result.stdout


def test_a_missing_lock_is_named(tree: Path) -> None:
    (tree / "requirements-docs.lock").unlink()
    result = check(tree)
    assert result.returncode == 1
    assert "requirements-docs.lock: " in result.stdout
