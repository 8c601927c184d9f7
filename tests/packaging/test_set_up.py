"""``tools/venv``: bad circumstances give one clear line and a non-zero exit, and are mended after.

Nothing is downloaded here: pip is a stand-in that does what each case needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A Python whose environments contain a scripted pip. ``-m venv DIR`` makes DIR/bin/python a copy
# of the script; ``-m pip`` does as FAKE_PIP says; torch is not there before it is installed; other
# ``-c`` go to the real interpreter.
FAKE_PYTHON = """#!/bin/sh
case "$*" in
*"-m venv "*)
    for dir in "$@"; do :; done
    mkdir -p "$dir/bin" && cp "$0" "$dir/bin/python" ;;
*"-m pip "*)
    echo "$@" >>"$FAKE_LOG"
    eval "${FAKE_PIP:-:}" ;;
*load_group*) eval "${FAKE_IMPORT:-:}" ;;
*"import torch"*) exit 1 ;;
-V) echo "Python 3.11.99" ;;
*) exec REAL -S "$@" ;;
esac
"""


class Checkout:
    """A directory with tools/venv, two locks and a scripted Python."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "pip-calls"
        (root / "tools").mkdir()
        shutil.copy(ROOT / "tools" / "venv", root / "tools" / "venv")
        (root / "requirements.lock").write_text("torch==2.13.0\nescnn==1.0.11 --hash=sha256:0\n")
        (root / "requirements-docs.lock").write_text("sphinx==9\n")
        (root / "pyproject.toml").write_text("")
        (root / "setup.py").write_text("")
        self.python = root / "fake-python"
        self.python.write_text(FAKE_PYTHON.replace("REAL", sys.executable))
        self.python.chmod(0o755)

    def make(self, *extras: str, **environment: str) -> subprocess.CompletedProcess[str]:
        base = {"PATH": os.environ["PATH"], "PYTHON": str(self.python), "FAKE_LOG": str(self.log)}
        return subprocess.run(
            ["tools/venv", ".venv", "requirements.lock", *extras],
            cwd=self.root,
            env={**base, **environment},
            capture_output=True,
            text=True,
        )

    def calls(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [line.split("--no-compile ")[1] for line in lines]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def only_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode != 0
    (line,) = result.stderr.splitlines()
    return line


ALL = [
    "--no-deps --require-hashes --requirement .venv/hashed.txt",
    "--constraint .venv/pins.txt torch==2.13.0",
    "--no-deps --no-build-isolation --editable .",
]


def test_what_has_hashes_comes_first_then_torch_and_all_of_it_once(checkout: Checkout) -> None:
    assert checkout.make().returncode == 0
    assert checkout.calls() == ALL
    venv = checkout.root / ".venv"
    assert (venv / "hashed.txt").read_text() == "escnn==1.0.11 --hash=sha256:0\n"
    assert (venv / "pins.txt").read_text() == "torch==2.13.0\nescnn==1.0.11\n"
    again = checkout.make()
    assert (again.returncode, again.stdout, checkout.calls()) == (0, "", [])


def test_a_changed_lock_updates_the_environment_in_place(checkout: Checkout) -> None:
    checkout.make()
    checkout.calls()
    (checkout.root / ".venv" / "kept").touch()
    (checkout.root / "requirements.lock").write_text("torch==2.13.0\nescnn==1.0.12\n")
    assert "updating .venv" in checkout.make().stdout
    assert checkout.calls() == ALL
    assert (checkout.root / ".venv" / "kept").exists()


def test_extras_are_added_once_and_again_when_their_lock_changes(checkout: Checkout) -> None:
    for expected in ([*ALL, "--no-deps --require-hashes --requirement requirements-docs.lock"], []):
        assert checkout.make("requirements-docs.lock").returncode == 0
        assert checkout.calls() == expected
    (checkout.root / "requirements-docs.lock").write_text("sphinx==10\n")
    checkout.make("requirements-docs.lock")
    assert checkout.calls() == ["--no-deps --require-hashes --requirement requirements-docs.lock"]


@pytest.mark.parametrize(
    "damage",
    [
        "rm -rf .venv/.groupella",  # interrupted before the end
        "rm .venv/bin/python",  # the interpreter was removed
        "rm -rf .venv && mkdir .venv",
        "rm -rf .venv && touch .venv",
        "printf '#!/bin/sh\\nexit 1\\n' >.venv/bin/python",
    ],
)
def test_a_half_made_environment_is_made_anew(checkout: Checkout, damage: str) -> None:
    checkout.make()
    checkout.calls()
    subprocess.run(damage, shell=True, cwd=checkout.root, check=True)
    assert checkout.make().returncode == 0
    assert checkout.calls() == ALL
    assert checkout.make().stdout == ""


def test_a_moved_checkout_is_made_anew(checkout: Checkout, tmp_path: Path) -> None:
    checkout.make()
    moved = tmp_path / "elsewhere"
    shutil.copytree(checkout.root, moved, ignore=shutil.ignore_patterns("elsewhere"))
    checkout.root = moved
    checkout.calls()
    assert "removing .venv" in checkout.make().stdout
    assert checkout.calls() == ALL


@pytest.mark.parametrize(
    ("pip_says", "complaint"),
    [
        ("NewConnectionError: Failed to establish a new connection", "is the network there?"),
        ("ERROR: No matching distribution found for torch==2.13.0", "is the network there?"),
        ("ERROR: ResolutionImpossible: for help visit", "is the network there?"),
        ("OSError: [Errno 28] No space left on device", "no space left on the disk"),
        ("ERROR: Failed building wheel for x", "could not install the packages"),
        ("THESE PACKAGES DO NOT MATCH THE HASHES", "is not the one that was locked"),
    ],
)
def test_a_failing_pip_is_one_line_and_the_next_run_repairs(
    checkout: Checkout, pip_says: str, complaint: str
) -> None:
    failed = checkout.make(FAKE_PIP=f"echo '{pip_says}'; exit 1")
    line = only_line(failed)
    assert complaint in line
    assert "the packages of requirements.lock" in line
    assert pip_says in (checkout.root / ".venv.log").read_text()
    checkout.calls()
    assert checkout.make().returncode == 0
    assert checkout.calls() == ALL


def test_a_broken_installation_is_one_line_and_the_next_run_repairs(checkout: Checkout) -> None:
    failed = checkout.make(FAKE_IMPORT="echo Traceback; echo 'ImportError: no escnn'; exit 1")
    assert only_line(failed).endswith("do not import: ImportError: no escnn")
    assert checkout.make().returncode == 0


def test_no_python_at_all(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "sed", "rm", "mkdir", "grep", "tail"):
        (tools / name).symlink_to(shutil.which(name) or name)
    line = only_line(checkout.make(PATH=str(tools), PYTHON=""))
    assert "needs Python 3.10 or newer" in line
    assert "found no python3" in line


def test_only_an_old_python(checkout: Checkout, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "cat", "cksum", "sed", "rm", "mkdir", "grep", "tail"):
        (tools / name).symlink_to(shutil.which(name) or name)
    old = tools / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.18 && exit\nexit 1\n')
    old.chmod(0o755)
    line = only_line(checkout.make(PATH=str(tools), PYTHON=""))
    assert "found Python 3.8.18" in line


def test_a_wrong_choice_of_python(checkout: Checkout) -> None:
    assert "PYTHON=/bin/false is not Python 3.10" in only_line(checkout.make(PYTHON="/bin/false"))


def test_another_choice_of_python_makes_the_environment_anew(checkout: Checkout) -> None:
    checkout.make()
    checkout.calls()
    other = checkout.root / "other-python"
    other.write_text(checkout.python.read_text().replace("-V)", "*sys.version*) echo 3.12 ;;\n-V)"))
    other.chmod(0o755)
    assert "made with another Python" in checkout.make(PYTHON=str(other)).stdout
    assert checkout.calls() == ALL
    assert checkout.make(PYTHON="").stdout == ""


def test_a_missing_lock(checkout: Checkout) -> None:
    (checkout.root / "requirements.lock").unlink()
    assert "cannot read requirements.lock" in checkout.make().stderr
