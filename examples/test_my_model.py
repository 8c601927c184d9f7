"""Test the symmetry of your own model: copy this file next to it and run pytest."""

import pytest
import torch
from torch import nn

from groupella.groups import GroupSet, flips, p4, z2
from groupella.testing import assert_equivariant, equivariance_error

IMAGE = GroupSet(z2(), p4(), flips()).space((16, 16), channels=3, fibre="trivial")


def make_model() -> nn.Module:
    """Your model: images (batch, 3, 16, 16) to logits (batch, 10)."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def test_the_logits_do_not_change_under_shifts() -> None:
    assert_equivariant(make_model(), IMAGE, None, z2())


def test_the_features_move_with_the_image() -> None:
    assert_equivariant(make_model()[:2], IMAGE, IMAGE.with_channels(8), z2())


@pytest.mark.parametrize("group", [p4(), flips()], ids=str)
def test_the_model_is_free_to_use_orientation(group: object) -> None:
    torch.manual_seed(0)
    error = equivariance_error(make_model(), IMAGE, None, group)
    print(error)  # shown by pytest -s: the error for every element of the group
    assert float(error) > 1e-3
