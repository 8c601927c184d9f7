"""Rotations by any angle: interpolation with a measured error of its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella.groups.gate import load_gspaces, load_nn
from groupella.nn.turning import turned
from groupella.testing import assert_rotation_equivariant, rotation_error


def blur(size: int = 7) -> nn.Module:
    """A convolution with a round filter."""
    conv = nn.Conv2d(1, 1, size, padding=size // 2, bias=False)
    r = torch.arange(size) - size // 2
    with torch.no_grad():
        conv.weight[0, 0] = torch.exp(-0.25 * (r[:, None].square() + r.square()))
    return conv


class Power(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.square().sum((2, 3))


def test_quarter_turns_are_those_of_the_grid() -> None:
    x = torch.randn(2, 3, 9, 9).double()
    for k in range(4):
        torch.testing.assert_close(turned(x, 90.0 * k), x.rot90(k, (2, 3)))


def test_interpolation_costs_what_the_docstring_says() -> None:
    for size in (16, 33, 64):
        found = rotation_error(Power(), (1, size, size))
        assert 0.01 < found.interpolation < 0.05


def test_round_filters_and_sums_pass() -> None:
    assert_rotation_equivariant(blur(), (1, 32, 32), "image")
    assert_rotation_equivariant(nn.Sequential(blur(), Power()), (1, 32, 32))


def test_an_ordinary_convolution_fails_and_the_angles_are_listed() -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(1, 4, 5, padding=2, bias=False)
    with pytest.raises(AssertionError, match=r"(?s)not equivariant under rotations.*45.0°.*alone"):
        assert_rotation_equivariant(conv, (1, 32, 32), "image")
    square = nn.Sequential(conv, Power())
    error = rotation_error(square, (1, 32, 32))
    assert float(error) > 0.1


def test_a_quarter_turn_network_fails_between_quarter_turns() -> None:
    class FourTurns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(1, 8, 5, padding=2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            turned = [self.conv(x.rot90(k, (2, 3))).relu().sum((2, 3)) for k in range(4)]
            return torch.stack(turned).amax(0)

    found = rotation_error(FourTurns(), (1, 32, 32), angles=(45.0, 90.0, 180.0))
    assert found.errors[90.0] < 1e-4
    assert found.errors[45.0] > 100 * found.errors[90.0]


def test_a_module_of_escnn_for_eighths_of_a_turn_is_closer() -> None:
    enn, gspace = load_nn(), load_gspaces().rot2dOnR2(8)
    torch.manual_seed(0)
    one = enn.FieldType(gspace, [gspace.trivial_repr])
    many = enn.FieldType(gspace, [gspace.regular_repr] * 2)
    module = enn.SequentialModule(
        enn.R2Conv(one, many, 7, padding=3, bias=False), enn.ReLU(many), enn.GroupPooling(many)
    )
    found = rotation_error(module, (1, 33, 33), "image", angles=(45.0, 90.0))
    plain = nn.Sequential(nn.Conv2d(1, 2, 7, padding=3, bias=False), nn.ReLU())
    assert float(found) < 0.15
    assert float(rotation_error(plain, (1, 33, 33), "image", angles=(45.0, 90.0))) > 0.5


def test_wrong_arguments_are_told() -> None:
    with pytest.raises(ValueError, match="'invariant' or 'image'"):
        rotation_error(Power(), (1, 8, 8), "vector")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not that of images"):
        rotation_error(Power(), (1, 8, 8), "image")
    with pytest.raises(ValueError, match="channels, height, width"):
        rotation_error(Power(), (8, 8))


def test_an_image_that_should_turn_is_told_from_one_that_should_not() -> None:
    with pytest.raises(AssertionError, match="which turns with the input: give output='image'"):
        assert_rotation_equivariant(blur(), (1, 16, 16))
    with pytest.raises(AssertionError) as raised:
        assert_rotation_equivariant(nn.Flatten(), (1, 16, 16))
    assert "output='image'" not in str(raised.value)
