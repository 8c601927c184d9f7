"""The paper's tables as rows of jobs, and the summary beside the published numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from groupella._schema import build
from groupella.cli._sweep import seed_list
from groupella.cli.app import app
from groupella.data import ImageData
from groupella.experiments.commands.reproduce import SCALES, chosen_names, find, studies
from groupella.networks import PRESETS, count_parameters
from groupella.runs import Job
from groupella.runs.study import Row, table

ROWS = {"toy": 12, "cifar10": 22, "multigroup": 10, "separable": 8, "layers": 1}


@pytest.mark.parametrize("name", studies())
@pytest.mark.parametrize("scale", SCALES)
def test_every_preset_is_frozen_and_has_distinct_rows(name: str, scale: str) -> None:
    study = find(name, scale)
    assert dataclasses.is_dataclass(study)
    with pytest.raises(dataclasses.FrozenInstanceError):
        study.budget = 1.0  # type: ignore[misc]
    rows = study.rows(3)
    assert len({r.key for r in rows}) == len(rows)
    for row in rows:
        assert row.job.seed == 3
        assert row.job.settings().epochs >= 1
        assert build(Job, json.loads(json.dumps(row.job.as_dict()))) == row.job
    if scale == "paper":
        assert len(rows) == ROWS[name]


def paper_rows() -> list[Row]:
    return [row for name in studies() for row in find(name, "paper").rows(0)]


@pytest.mark.parametrize("row", paper_rows(), ids=lambda row: f"{row.job.preset}-{row.key}")
def test_paper_rows_build_the_published_networks(row: Row) -> None:
    preset = PRESETS[row.job.preset or ""]
    data = _shape_of_data(preset.in_channels, preset.classes)
    with torch.device("meta"):
        network = row.job.network(data)
    assert count_parameters(network, weights_only=True) == preset.count(paper_biases=True)


def _shape_of_data(channels: int, classes: int) -> ImageData:
    x, y = torch.zeros(1, channels, 32, 32), torch.zeros(1, dtype=torch.int64)
    names = tuple(map(str, range(classes)))
    return ImageData(x, y, x, y, names, "shape", 0, (0.0,) * channels, (1.0,) * channels)


@pytest.mark.parametrize(("name", "full"), [("toy", {"FC"}), ("cifar10", {"FC", "FC+CONV"})])
def test_rows_of_an_hour_with_a_full_fc_path_take_large_batches_and_are_narrow_by_evidence(
    name: str, full: set[str]
) -> None:
    found = {row.name: row.job for row in find(name, "hour").rows(0)}
    batches = {key: job.settings().batch_size for key, job in found.items()}
    assert max(batches.values()) == 256
    large = {key for key, size in batches.items() if size == 256}
    assert {key.removesuffix(" map").split()[-1] for key in large} == full
    narrow = {key for key, job in found.items() if job.alpha == 2}
    assert narrow == {key.replace("map", "evidence") for key in large}
    assert {job.alpha for key, job in found.items() if key not in narrow} == {10}


@pytest.mark.parametrize(
    ("wanted", "count"),
    [([], 22), (["CONV evidence"], 1), (["S-CONV"], 8), (["FC map", "CONV map"], 2)],
)
def test_a_row_is_chosen_by_its_name_or_by_a_part_of_names(wanted: list[str], count: int) -> None:
    rows = find("cifar10", "paper").rows(0)
    assert len(chosen_names([row.name for row in rows], wanted)) == count


def test_a_row_that_is_not_there_is_an_error_beside_one_that_is() -> None:
    with pytest.raises(typer.BadParameter, match="no row contains 'VGG'; there are FC map"):
        chosen_names([row.name for row in find("cifar10", "paper").rows(0)], ["CONV map", "VGG"])


@pytest.mark.slow
def test_reproduce_writes_a_summary_beside_the_paper(tmp_path: Path) -> None:
    arguments = ["reproduce", "toy", "--preset", "quick", "--row", "digit F-FC+CONV evidence"]
    arguments += ["--epochs", "1", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout.splitlines()[-1])["rows"]
    assert [r["row"] for r in found] == ["digit F-FC+CONV evidence"]
    assert found[0]["paper"] == {"accuracy": 98.86}
    assert found[0]["paper_data"] == "MNIST"  # the digits only stand for it
    assert set(found[0]["shares"]) == {"F-FC", "CONV"}
    assert sum(found[0]["shares"].values()) == pytest.approx(1)
    assert "digit F-FC+CONV evidence" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "summary.json").read_text()) == found


def test_published_numbers_stand_beside_rows_on_the_published_data() -> None:
    papers = {row.name: dict(row.paper) for row in find("toy", "hour").rows(0)}
    assert papers["digit F-FC+CONV evidence"] == {"accuracy": 98.86}
    assert papers["digit F-FC+CONV map"] == {}
    text = table(summary_of_nothing("digit F-FC+CONV evidence", papers["digit F-FC+CONV evidence"]))
    assert "98.86" in text


@pytest.mark.parametrize(
    ("study", "row", "paper", "data"),
    [
        ("toy", "digit F-FC+CONV evidence", {"accuracy": 98.86}, "MNIST"),
        (
            "multigroup",
            "digits:rotated evidence",
            {"nll": 0.136, "accuracy": 95.55, "evidence": 0.896},
            "MNIST",
        ),
        ("separable", "full", {"accuracy": 73.70}, "rotated CIFAR-10"),
    ],
)
def test_quick_rows_show_what_is_published_and_of_which_data(
    study: str, row: str, paper: dict[str, float], data: str
) -> None:
    (found,) = (r for r in find(study, "quick").rows(0) if r.name == row)
    assert dict(found.paper) == paper
    assert found.paper_data == data
    said = table(summary_of_nothing(row, paper, data))
    assert "accuracy, % of the paper" in said.splitlines()[0]
    assert said.endswith(f"The paper's numbers were measured on {data}, not on these data.\n")


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    head = table(summary_of_nothing("digit", {})).splitlines()[0]
    assert head == "| row | obeys | epochs |"


def summary_of_nothing(
    name: str, paper: dict[str, float], data: str | None = None
) -> list[dict[str, object]]:
    empty = dict.fromkeys(("accuracy", "nll", "evidence"))
    rest = {"verdict": "", "shares": {}, "epochs": 0, "paper_data": data}
    return [{"row": name, **empty, "paper": paper, **rest}]


@pytest.mark.parametrize("arguments", [["nothing"], ["toy", "--preset", "slow"]])
def test_unknown_studies_and_presets_are_refused(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["reproduce", *arguments]).exit_code == 2


def test_seeds_are_ranges_or_lists() -> None:
    assert seed_list("0-3") == [0, 1, 2, 3]
    assert seed_list("0, 3,7") == [0, 3, 7]
    for text in ("", "a", "1,1", "3-1"):
        with pytest.raises(ValueError, match="seeds"):
            seed_list(text)
