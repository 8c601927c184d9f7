"""A clean copy of the source tree, so that builds neither see nor leave other files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def files_of_the_tree() -> list[Path]:
    """The files of the project: those that git tracks or would add; in an sdist, all of them."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    git = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if git.returncode == 0 and (ROOT / ".git").exists():
        paths = [Path(name) for name in git.stdout.split("\0") if name]
    else:
        made = {"__pycache__", "groupella.egg-info", "build", ".pytest_cache", ".hypothesis"}
        paths = [
            path.relative_to(ROOT)
            for path in ROOT.rglob("*")
            if path.is_file() and not made & set(path.parts) and ".venv" not in str(path)
        ]
    return [path for path in paths if (ROOT / path).is_file()]


@pytest.fixture(scope="module")
def source_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("source") / "tree"
    for path in files_of_the_tree():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tree / path)
    return tree
