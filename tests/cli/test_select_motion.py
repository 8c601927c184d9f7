"""``groupella select --motion``: images moved by any group, labels that obey any subgroup of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from groupella.cli.app import app
from groupella.data import labelled
from groupella.groups import p4, p4m
from groupella.runs.record import Record
from groupella.runs.spelling import ArgumentError, one_group

SMALL = ["--paths", "F-FC+CONV", "--epochs", "1", "--alpha", "1", "--train-size", "40", "--json"]


def test_data_are_those_of_labelled(tmp_path: Path) -> None:
    options = ["--groups", "z2", "--data", "digits", "--motion", "p4m", "--obeys", "p4"]
    result = CliRunner().invoke(app, ["select", *options, *SMALL, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["expected"] == "p4"
    there = Record.load(tmp_path / "run").job.load()
    wanted = labelled(p4m(), p4(), "digits", train_size=40)
    assert torch.equal(there.train_x, wanted.train_x)
    assert torch.equal(there.train_y, wanted.train_y)
    assert len(there.classes) == 20


def test_a_group_of_ones_own_may_move_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from groupella.groups import c4\nTURNS = c4()\nNUMBER = 3\nmake = c4\n")
    assert one_group(f"{file}:TURNS").name == one_group(f"{file}:make").name == "c4"
    with pytest.raises(ArgumentError, match=r"mine\.py:NUMBER is int, not a symmetry"):
        one_group(f"{file}:NUMBER")
    options = ["--groups", "z2", "--data", "digits", "--motion", f"{file}:TURNS"]
    result = CliRunner().invoke(app, ["select", *options, *SMALL, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert set(Record.load(tmp_path / "run").files) == {str(file)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--obeys", "p4"], "requires --motion"),
        (["--motion", "p5"], "no group 'p5'"),
        (["--motion", "p4", "--obeys", "p4m"], "p4m"),
        (["--motion", "p4", "--data", "digits:rot90"], "names a transformation"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: list[str], message: str) -> None:
    place = tmp_path / "run"
    result = CliRunner().invoke(app, ["select", *options, *SMALL, "--out", str(place)])
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not place.exists()
