"""Groups that this machine cannot hold are refused before anything is allocated for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import groupella.runs.directory as runs
import groupella.runs.memory as memory
from groupella.bases import equivariant_basis, increments
from groupella.cli.app import app
from groupella.runs import Job
from groupella.runs.spelling import ArgumentError, group_set


@pytest.mark.parametrize("text", ["c4,d4", "c2,c4", "mirror,d4"])
def test_the_need_is_that_of_the_dense_basis(text: str) -> None:
    groups, lattice = group_set(text, free=False), (2, 2)
    space = groups.space(lattice, 1)
    parts = increments({m.name: equivariant_basis(space, space, m) for m in groups})
    need = memory.largest_need(groups, lattice)
    assert need is not None
    assert need.bytes == 8 * parts.bases[need.group].dim * space.size**2


@pytest.mark.parametrize("text", ["z2,p4", "d4", "mirror", "c2,mirror"])
def test_bases_that_are_not_dense_need_nothing(text: str) -> None:
    assert memory.largest_need(group_set(text), (4, 4)) is None


def select(place: Path, *arguments: str) -> tuple[int, str]:
    options = ["--data", "digits", "--epochs", "4", "--out", str(place)]
    result = CliRunner().invoke(app, ["select", *arguments, *options])
    return result.exit_code, result.output


def test_a_run_refuses_what_the_machine_cannot_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 8 * 2**30)
    with pytest.raises(ArgumentError, match="but not d4 take 64 GiB; this machine has 8 GiB"):
        runs.run(Job(title="", data="digits", groups="c4,d4"), tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_sweep_refuses_it_too_before_the_row_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 8 * 2**30)
    place = tmp_path / "sweep"
    arguments = ["sweep", "--data", "digits", "--groups", "c4,d4", "--out", str(place)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert result.output == (
        "groupella sweep: digits-c4-d4-seed-0: on 8×8 images the maps that obey c4 but not d4 "
        "take 64 GiB; this machine has 8 GiB. Use smaller images, or leave out one of two groups "
        "without translations\n"
    )
    assert not place.exists()


@pytest.mark.parametrize(
    "error",
    [MemoryError("Unable to allocate 9 GiB"), RuntimeError("can't allocate memory: 9 GiB")],
    ids=["numpy", "torch"],
)
def test_what_could_not_be_foreseen_ends_in_the_same_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(runs, "run", run)
    code, output = select(tmp_path / "run", "--groups", "p4")
    assert code == 2
    assert "do not fit into memory" in output
    assert "9 GiB" in output
    assert "smaller --size" in output
    assert "Traceback" not in output
