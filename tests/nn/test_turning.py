"""Turns of features by any angle: the action, blurred halving, and steerable layers."""

from __future__ import annotations

import pytest
import torch

from groupella.groups import GroupSet, c4, image_turns, p4, z2
from groupella.nn.layer import ResidualPathway
from groupella.nn.turning import BlurPool, Disc, act_turn, turned
from groupella.testing import (
    assert_equivariant,
    equivariance_error,
    rotation_error,
    turning_error,
)

EIGHTHS = GroupSet(image_turns(8, translations=True))


def test_quarter_turns_of_features_are_those_of_the_group() -> None:
    space = EIGHTHS.space((9, 9), 2)
    x = torch.randn(3, *space.shape, dtype=torch.double)
    quarter = space.generators(c4())[0]
    torch.testing.assert_close(act_turn(space, 90.0, x), space.act(quarter, x))
    without = EIGHTHS.space((), 2)
    y = torch.randn(3, 16, dtype=torch.double)
    torch.testing.assert_close(act_turn(without, 45.0, y).view(3, 2, 8), y.view(3, 2, 8).roll(1, 2))


def test_fibres_turn_between_their_elements_as_smooth_functions() -> None:
    space = GroupSet(image_turns(0)).space((), 1)
    angle = torch.arange(16, dtype=torch.double) * 22.5
    wave = torch.cos(torch.deg2rad(3 * angle)) + torch.sin(torch.deg2rad(angle))
    expected = torch.cos(torch.deg2rad(3 * (angle - 10))) + torch.sin(torch.deg2rad(angle - 10))
    torch.testing.assert_close(act_turn(space, 10.0, wave[None]), expected[None])


def test_blurring_before_halving_keeps_turns() -> None:
    pool = BlurPool(1)
    assert float(rotation_error(pool, (1, 32, 32), "image", angles=(30.0, 45.0))) < 0.05

    def every_second(x: torch.Tensor) -> torch.Tensor:
        return x[:, :, ::2, ::2]

    assert float(rotation_error(every_second, (1, 32, 32), "image", angles=(30.0, 45.0))) > 0.1
    x = torch.randn(2, 3, 8, 8)
    three = BlurPool(3)
    torch.testing.assert_close(three(x.rot90(1, (2, 3))), three(x).rot90(1, (2, 3)))
    assert bool((Disc(8, 8)(x)[..., 0, 0] == 0).all())


def layer(groups: GroupSet, first: bool = False) -> ResidualPathway:
    torch.manual_seed(0)
    source = groups.space((24, 24), 2, "trivial" if first else None)
    made = ResidualPathway(
        source, groups.space((24, 24), 2), groups, kernel_size=5, padding="zeros"
    )
    return made.double()


def test_steerable_layers_obey_turns_to_within_an_eighth() -> None:
    for first in (True, False):
        steerable = layer(EIGHTHS, first)
        spaces = steerable.space_in, steerable.space_out
        exact = equivariance_error(steerable, *spaces, c4())
        assert float(exact) < 1e-12
        found = turning_error(steerable, *spaces, EIGHTHS["p8"])
        assert found.errors[90.0] < 1e-10
        assert 1e-4 < found.errors[45.0] < 0.12
        assert_equivariant(steerable, *spaces, image_turns(8), tolerance=0.12)


def test_layers_that_obey_quarter_turns_alone_fail() -> None:
    groups = GroupSet(p4(), image_turns(8, translations=True))
    space = groups.space((24, 24), 2)
    torch.manual_seed(0)
    fourths = ResidualPathway(space, space, groups, "GCONV:p4", kernel_size=5, padding="zeros")
    fourths = fourths.double()
    spaces = fourths.space_in, fourths.space_out
    assert float(equivariance_error(fourths, *spaces, c4())) < 1e-12
    with pytest.raises(AssertionError, match=r"obeys c8 only to within \d+.\d %, allowed 50.0 %"):
        assert_equivariant(fourths, *spaces, image_turns(8), tolerance=0.5)


def test_a_layer_has_a_path_for_turns_beside_exact_ones() -> None:
    groups = GroupSet(z2(), p4(), image_turns(8, translations=True))
    mixed = layer(groups)
    assert set(mixed.paths) == {"z2", "p4", "p8"}
    assert mixed.strictest == ("p8",)
    strict = mixed.strict("p8")
    assert float(turning_error(strict, mixed.space_in, mixed.space_out, groups["p8"])) < 0.12
    with torch.no_grad():
        for weight in mixed.paths["p4"].parameters():
            weight.mul_(30)  # it starts small
    assert float(turning_error(mixed, mixed.space_in, mixed.space_out, groups["p8"])) > 0.5


def test_wrong_questions_are_told() -> None:
    space = GroupSet(p4()).space((8, 8), 1)
    with pytest.raises(ValueError, match="fibre is 'trivial' or 'regular' of turns"):
        act_turn(space, 45.0, torch.zeros(1, *space.shape))
    with pytest.raises(ValueError, match="exact on pixels"):
        turning_error(torch.nn.Identity(), space, space, p4())
    assert turned(torch.ones(1, 1, 8, 8), 45.0, "border").min() > 0.99
