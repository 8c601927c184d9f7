"""What a failing test says about its likely cause, and modules of escnn."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupella.groups import GroupSet, from_escnn, p4, to_escnn, z2
from groupella.groups.gate import load_nn
from groupella.testing import assert_equivariant, likely_causes

IMAGES = GroupSet(z2(), p4()).space((8, 8), 1, "trivial")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def test_zero_padding_is_named_as_the_cause() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))
    with pytest.raises(AssertionError, match=r'zero padding .*padding_mode="circular" the error'):
        assert_equivariant(module, IMAGES, IMAGES.with_channels(2), z2())
    assert module[0].padding_mode == "zeros"


def test_zero_padding_is_not_blamed_for_something_else() -> None:
    module = nn.Conv2d(1, 2, 3, padding=1)
    with torch.no_grad():
        module.weight.fill_(1.0)
        module.weight[:, :, 0, 0] = 3.0
    found = likely_causes(module, IMAGES, IMAGES.with_channels(2), p4(), 1e-5)
    assert found == ()


def test_a_missing_output_space_is_named_as_the_cause() -> None:
    module = nn.Conv2d(1, 5, 3, padding=1, padding_mode="circular")
    with pytest.raises(AssertionError, match=r"\(5, 8, 8\) of an image.*--out 5 .*error is \d"):
        assert_equivariant(module, IMAGES, None, "z2")


def test_a_vector_is_no_image() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    assert likely_causes(module, IMAGES, None, z2(), 1e-5) == ()


def test_pooling_is_named_as_the_cause() -> None:
    class Largest(nn.Module):
        """Moves the largest pixel to the corner: a translation that depends on the sample."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            place = [torch.unravel_index(one.argmax(), (8, 8)) for one in x[:, 0]]
            rolled = [
                one.roll((-int(i), -int(j)), (1, 2)) for one, (i, j) in zip(x, place, strict=True)
            ]
            return torch.stack(rolled)

    with pytest.raises(AssertionError, match="up_to_translation=True"):
        assert_equivariant(Largest(), IMAGES, IMAGES, z2())


def test_a_symmetry_may_be_a_name() -> None:
    module = nn.Conv2d(1, 5, 3, padding=1, padding_mode="circular")
    assert_equivariant(module, IMAGES, IMAGES.with_channels(5), "z2")
    with pytest.raises(TypeError, match="a name, or several"):
        assert_equivariant(module, IMAGES, IMAGES.with_channels(5), 3)  # type: ignore[arg-type]


def test_zero_padding_of_a_module_of_escnn_is_named() -> None:
    field = to_escnn(IMAGES)
    regular = load_nn().FieldType(field.gspace, [field.gspace.regular_repr] * 2)
    module = load_nn().R2Conv(field, regular, 3, padding=1)
    space_out = from_escnn(regular, (8, 8))
    assert_equivariant(module, IMAGES, space_out, p4(), elements=0, tolerance=3.0)
    with pytest.raises(AssertionError, match="zero padding"):
        assert_equivariant(module, IMAGES, space_out, z2())
