"""The recipes of CONTRIBUTING.md, followed to the letter.

Those for a likelihood and a data set are followed in tests/evidence/test_likelihoods.py and
tests/data/test_data_files.py.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import groupella.experiments
from groupella.cli.app import app
from groupella.groups import _catalogue, meaning, named_group
from groupella.runs.spelling import complete_groups

RECIPES = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
MODEL = """
import torch
from torch import nn

class Sum(nn.Module):
    def forward(self, x):
        return x.sum(AXES)
"""


def recipe(name: str) -> str:
    """The code of the recipe of that name."""
    text = RECIPES.read_text(encoding="utf-8")
    found = re.search(rf"\*\*Add a {name}\.\*\*[^*]*?```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def test_a_group_is_registered_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_catalogue, "CATALOGUE", dict(_catalogue.CATALOGUE))
    exec(recipe("group"), vars(_catalogue))
    monkeypatch.delattr(_catalogue, "rows")  # added by the recipe
    assert named_group("rows").order((8, 8)) == 8
    assert meaning("rows") == "shifts along rows of 8×8 images"
    assert complete_groups("z2,ro") == ["z2,rows"]
    codes = {}
    for name, axes in {"rows": "3", "columns": "2"}.items():
        file = tmp_path / f"{name}.py"
        file.write_text(MODEL.replace("AXES", axes))
        arguments = ["check", f"{file}:Sum", "--groups", "rows", "--size", "8", "--json"]
        result = CliRunner().invoke(app, arguments)
        codes[name] = result.exit_code
        assert list(json.loads(result.output)["errors"]) == ["rows"]
    assert codes == {"rows": 0, "columns": 1}


def test_a_name_is_registered_only_once() -> None:
    with pytest.raises(ValueError, match="already has a group 'p4'"):
        _catalogue.named("p4", meaning="another")(_catalogue.z2)


def test_a_study_is_one_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "widths.py").write_text(recipe("study"), encoding="utf-8")
    places = [*groupella.experiments.__path__, str(tmp_path)]
    monkeypatch.setattr(groupella.experiments, "__path__", places)
    try:
        arguments = ["reproduce", "widths", "--epochs", "1", "--row", "width 1", "--json"]
        result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    finally:
        sys.modules.pop("groupella.experiments.widths", None)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["row"], row["alpha"], row["epochs"]) == ("width 1", 1, 1)
    assert "width 1" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")
