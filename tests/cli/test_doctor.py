"""``groupella doctor`` and the command line around it."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch
from typer.testing import CliRunner

from groupella import __version__
from groupella.cli import _installation as doctor
from groupella.cli.app import app


def test_a_sound_installation_passes_and_everything_asked_for_is_named() -> None:
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 0, result.output
    for name in (
        "Python",
        "dependencies",
        "torch",
        "escnn",
        "threads",
        "CUDA",
        "py3nj",
        "equivariance",
    ):
        assert f"ok  {name}" in result.output
    assert "FAILED" not in result.output


def test_a_broken_convolution_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor, *args: object) -> torch.Tensor:
        return x.roll(1, 1)  # mixes up the fibre

    monkeypatch.setattr(torch, "rot90", broken)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert "FAILED  equivariance" in result.output
    assert "Failed: equivariance." in result.output
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["sound"]
    assert [f["name"] for f in found["findings"] if not f["ok"]] == ["equivariance"]


def test_a_missing_package_is_one_line_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    findings = {finding.name: finding for finding in doctor.examine()}
    assert not findings["scipy"].ok
    assert "\n" not in findings["scipy"].text
    assert findings["torch"].ok


def test_the_self_check_is_quick_repeatable_and_leaves_the_seed_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    doctor.p4_convolution_error()
    torch.manual_seed(7)
    start = time.process_time()
    first = doctor.p4_convolution_error()
    assert time.process_time() - start < 2
    assert torch.rand(1) == expected
    assert first == doctor.p4_convolution_error() < doctor.TOLERANCE


def test_py3nj_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert "SO(3)" in doctor._py3nj()
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: object())
    assert doctor._py3nj() == "installed"


def test_help_and_version_load_neither_torch_nor_escnn() -> None:
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from groupella.cli.app import app\n"
        "for arguments in (['--help'], ['--version'], ['doctor', '--help']):\n"
        "    result = CliRunner().invoke(app, arguments)\n"
        "    assert result.exit_code == 0, result.output\n"
        "assert not {'torch', 'escnn', 'sklearn', 'matplotlib'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"groupella {__version__}\n"


def test_an_unknown_command_is_refused() -> None:
    result = CliRunner().invoke(app, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output
