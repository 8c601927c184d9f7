"""``groupella check`` measures a user's own model and answers by its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from groupella.cli.app import app

MODELS = """
import torch
from torch import nn

def plain():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))

class Symmetric(nn.Module):
    def forward(self, x):
        return x.square().sum((2, 3))

symmetric = Symmetric()

def same():
    return nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular")

def strided():
    return nn.Conv2d(1, 2, 3, padding=1, stride=2, padding_mode="circular")

def broken():
    raise KeyError("weights")

def needy(width):
    return nn.Conv2d(1, width, 3)

NUMBER = 3

class Raises(nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def forward(self, x):
        raise self.error

looks_up = Raises(KeyError("weights"))
asserts = Raises(AssertionError())
divides = Raises(ZeroDivisionError("division\\nby zero"))
leaves = Raises(SystemExit(0))

def padded():
    torch.manual_seed(0)
    return nn.Conv2d(1, 2, 3, padding=1)

def steerable():
    from groupella.groups.gate import load_gspaces, load_nn
    torch.manual_seed(0)
    enn, space = load_nn(), load_gspaces().rot2dOnR2(4)
    one = enn.FieldType(space, [space.trivial_repr])
    many = enn.FieldType(space, [space.regular_repr] * 2)
    return enn.SequentialModule(
        enn.R2Conv(one, many, 3, padding=1, padding_mode="circular"), enn.ReLU(many)
    )

class Overflows(nn.Module):
    def forward(self, x):
        return x.sum((2, 3)) * float("inf")

overflows = Overflows()
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "models.py"
    file.write_text(MODELS)
    return file


def check(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", *arguments, "--channels", "1", "--size", "8"])
    return result.exit_code, result.output


def test_an_invariant_model_passes(models: Path) -> None:
    code, output = check(f"{models}:symmetric", "--groups", "z2,p4m")
    assert code == 0
    assert "ok  invariant under p4m" in output


def test_a_plain_network_fails_and_the_worst_element_is_named(models: Path) -> None:
    code, output = check(f"{models}:plain", "--groups", "p4", "--json")
    assert code == 1
    found = json.loads(output)
    assert not found["right"]
    assert found["errors"]["p4"]["error"] > 0.01
    assert found["errors"]["p4"]["worst"]


def test_a_circular_convolution_moves_with_shifts_but_not_with_turns(models: Path) -> None:
    assert check(f"{models}:same", "--groups", "z2", "--out", "2")[0] == 0
    assert check(f"{models}:same", "--groups", "p4", "--out", "2")[0] == 1


def test_a_model_of_escnn_moves_as_its_field_types_say(models: Path) -> None:
    code, output = check(f"{models}:steerable", "--groups", "z2,p4", "--out", "8")
    assert code == 0, output
    assert "ok  equivariant under p4" in output
    code, output = check(f"{models}:steerable", "--groups", "z2", "--out", "2")
    assert code == 2
    assert "gives 8 channels, not 2: give --out 8" in output
    arguments = ["check", f"{models}:steerable", "--groups", "z2", "--channels", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "give --channels 1" in result.output


def test_a_missing_out_and_zero_padding_are_named_as_causes(models: Path) -> None:
    code, output = check(f"{models}:same", "--groups", "z2")
    assert code == 1
    assert "hint: the output has the shape (2, 8, 8) of an image" in output
    assert "--out 2" in output
    code, output = check(f"{models}:padded", "--groups", "z2", "--out", "2")
    assert code == 1
    assert "hint: zero padding is the likely cause" in output
    code, output = check(f"{models}:padded", "--groups", "z2", "--out", "2", "--json")
    assert "zero padding" in json.loads(output)["errors"]["z2"]["hints"][0]
    code, output = check(f"{models}:plain", "--groups", "z2", "--out", "2")
    assert code == 2
    assert "which are no images: leave --out away" in output


@pytest.mark.parametrize(
    ("model", "groups", "message"),
    [
        ("NUMBER", "z2", "cannot be called"),
        ("nothing", "z2", "has no 'nothing'"),
        ("symmetric", "p5", "no group 'p5'"),
        ("symmetric", "none", "every model obeys the trivial group"),
        ("broken", "z2", "KeyError: 'weights'"),
        ("needy", "z2", "it is called without arguments"),
    ],
)
def test_wrong_arguments_exit_with_two(models: Path, model: str, groups: str, message: str) -> None:
    code, output = check(f"{models}:{model}", "--groups", groups)
    assert code == 2
    assert message in output


def test_help_shows_examples() -> None:
    result = CliRunner().invoke(app, ["check", "--help"])
    assert "groupella check my_model.py:make --groups p4" in result.output


def test_a_rotation_of_oblong_images_is_refused_in_one_line(models: Path) -> None:
    arguments = ["check", f"{models}:symmetric", "--groups", "p4", "--size", "8x6"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert len(result.output.strip().splitlines()) == 1


def test_a_size_is_made_of_numbers(models: Path) -> None:
    result = CliRunner().invoke(app, ["check", f"{models}:symmetric", "--size", "abc"])
    assert result.exit_code == 2
    assert "--size must be a side such as 32" in result.output


def test_a_stride_is_told_of_the_option_and_not_of_the_argument(models: Path) -> None:
    code, output = check(f"{models}:strided", "--groups", "z2", "--out", "2")
    assert code == 2
    assert "--pools" in output
    assert "up_to_translation" not in output


def test_a_file_without_a_name_is_told_so(models: Path) -> None:
    code, output = check(str(models), "--groups", "z2")
    assert code == 2
    assert "write file.py:NAME" in output


@pytest.mark.parametrize("out", [[], ["--out", "1"]], ids=["invariance", "equivariance"])
@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("looks_up", "KeyError: 'weights'"),
        ("asserts", "AssertionError"),
        ("divides", "ZeroDivisionError: division by zero"),
        ("leaves", "SystemExit: 0"),
    ],
)
def test_a_model_that_fails_is_no_answer(
    models: Path, model: str, reason: str, out: list[str]
) -> None:
    code, output = check(f"{models}:{model}", "--groups", "z2", *out)
    assert code == 2
    assert output.endswith(f": {reason}\n")
    assert len(output.splitlines()) == 1


def test_outputs_that_are_not_finite_are_no_answer(models: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    code, output = check(f"{models}:overflows", "--groups", "z2", "--json")
    assert code == 2
    found = json.loads(output, parse_constant=refuse)
    assert found["right"] is None
    assert found["errors"]["z2"]["error"] is None
    assert "output is not finite" in found["errors"]["z2"]["reason"]
    code, output = check(f"{models}:overflows", "--groups", "z2")
    assert code == 2
    assert "?  invariant under z2: cannot be measured" in output


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-1"])
def test_a_tolerance_is_a_number(models: Path, tolerance: str) -> None:
    code, output = check(f"{models}:symmetric", "--groups", "z2", "--tolerance", tolerance)
    assert code == 2
    assert "--tolerance must be at least 0" in output


def test_other_channels_than_those_of_the_model_are_named(models: Path) -> None:
    arguments = ["check", f"{models}:same", "--groups", "z2"]
    told = CliRunner().invoke(app, [*arguments, "--out", "2"])
    assert told.exit_code == 0  # the first layer says how many
    result = CliRunner().invoke(app, [*arguments, "--channels", "3"])
    assert result.exit_code == 2
    assert "Its first layer takes 1 channels: give --channels 1" in result.output
