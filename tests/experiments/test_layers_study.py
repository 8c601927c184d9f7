"""The layer-structure table: the paper's four measures of every path, layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupella.decide._selection import LayerSelection, PathSelection, Selection
from groupella.experiments.commands.reproduce import find, find_details
from groupella.experiments.layers import PUBLISHED_SHARES, details
from groupella.report import ReportContent
from groupella.runs.directory import Done


def layer(number: int, fc: float) -> LayerSelection:
    """FC has the share `fc` of relative effective parameters."""
    paths = (
        PathSelection("FC", 3e6, 1.5e-9, 1000, 250.0, fc, 1.0, fc > 0.5, ("none",)),
        PathSelection("CONV", 0.07, 10.7, 50, 40.0, 1 - fc, 100.0, True, ("z2",)),
    )
    return LayerSelection(f"layers.{number}", paths, "z2", 1.0)


def done(tmp_path: Path, *shares: float) -> Done:
    layers = tuple(layer(number, fc) for number, fc in enumerate(shares))
    content = ReportContent.__new__(ReportContent)
    object.__setattr__(content, "selection", Selection(layers, -10.0, 5))
    return Done(find("layers", "quick").rows(0)[0].job, tmp_path, content)


def test_every_layer_has_its_four_measures_its_type_and_the_published_type(tmp_path: Path) -> None:
    shares = [0.01] * 6 + [0.9, 0.2]
    text = details({"FC+CONV": done(tmp_path, *shares), "F-FC+CONV": done(tmp_path, 0.3)})
    first, second = text.split("## F-FC+CONV")
    lines = [line.strip("| ").split("|") for line in first.splitlines() if "layers." in line]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert " ".join(cells[0]) == "layers.0 3e+06 0.07 1.5e-09 10.7 0.25 0.8 0.01 0.99 CONV CONV"
    assert [row[-2] for row in cells] == ["CONV"] * 6 + ["FC", "CONV"]
    assert [row[-1] for row in cells] == ["CONV"] * 6 + ["FC", "CONV"]
    assert "paper" in first
    assert "paper" not in second  # of which nothing is published


def test_all_scales_look_into_the_published_network() -> None:
    assert find_details("layers") is details
    assert find_details("toy") is None
    for scale in ("quick", "hour", "paper"):
        assert "FC+CONV" in [row.name for row in find("layers", scale).rows(0)]
    assert len(PUBLISHED_SHARES) == 8
    assert sum(PUBLISHED_SHARES) == pytest.approx(7, abs=1e-3)
