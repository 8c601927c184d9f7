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
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import groupella.experiments
from groupella.cli.app import app
from groupella.curvature import approximations, curvature
from groupella.evidence.likelihoods import Categorical
from groupella.groups import _catalogue, meaning, named_group, trivial
from groupella.nn.layer import PATHS, Kind
from groupella.nn.shared_maps import LinearMap, record
from groupella.runs import load
from groupella.runs.spelling import complete_groups
from groupella.training import Settings

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


class Averaged(nn.Module):
    """A circular convolution whose output is averaged over sites."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular").double()

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x).mean((2, 3))


def test_an_approximation_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="approximation must be 'expand' or 'reduce', got"):
        curvature(Averaged(), Categorical(), (torch.ones(1, 2, 4, 4),), approximation="thinned")
    known = approximations.APPROXIMATIONS
    monkeypatch.setitem(known, "thinned", known["expand"])  # undone after the recipe's own line
    exec(recipe("curvature approximation"), vars(approximations))
    monkeypatch.delattr(approximations, "Thinned")  # added by the recipe
    torch.manual_seed(0)
    network, y = Averaged(), torch.randint(3, (5,))
    # Where all positions of an image are alike, every second of them says all.
    x = torch.randn(5, 2, 1, 1, dtype=torch.float64).expand(-1, -1, 4, 4)
    alike = [_dense(network, x, y, name) for name in ("thinned", "expand")]
    torch.testing.assert_close(*alike)
    assert Settings(approximation="thinned").approximation == "thinned"
    x = torch.randn(5, 2, 4, 4, dtype=torch.float64)
    assert not torch.allclose(*(_dense(network, x, y, name) for name in ("thinned", "expand")))


def _dense(network: nn.Module, x: Tensor, y: Tensor, approximation: str) -> Tensor:
    found = curvature(network, Categorical(), (x, y), approximation=approximation)
    return found["conv.weight"].to_dense()


def test_a_path_is_one_class_and_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    names = {"PATHS": PATHS, "Kind": Kind, "nn": nn, "torch": torch, "record": record}
    names |= {"LinearMap": LinearMap, "trivial": trivial}
    monkeypatch.setitem(PATHS, "LOW", PATHS["FC"])  # undone after the recipe's own line
    exec(recipe("path"), names)
    arguments = ["select", "--groups", "z2", "--data", "digits", "--train-size", "40", "--epochs"]
    arguments += ["1", "--alpha", "1", "--paths", "LOW+CONV", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    layers = load(tmp_path).content.selection.layers
    assert {path.path for layer in layers for path in layer.paths} == {"LOW", "CONV"}
    first = next(path for path in layers[0].paths if path.path == "LOW")
    # Of 8×8 images and one channel, pooled to 4×4, with an offset for each site.
    assert first.parameters == 8 * (64 + 16) + 16
