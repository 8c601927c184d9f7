"""Frozen batch statistics: the same function as in evaluation, in training as well."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from groupella.networks import freeze_statistics


def test_training_neither_uses_nor_changes_the_statistics_of_a_batch() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.Sequential(nn.BatchNorm2d(4), nn.ReLU()), nn.Flatten()
    )
    x = 3 * torch.randn(8, 1, 5, 5) + 1
    network(x)
    expected = copy.deepcopy(network).eval()(x)
    before = dict(network.named_parameters())
    frozen = freeze_statistics(network)
    state = {k: v.clone() for k, v in frozen.state_dict().items()}
    torch.testing.assert_close(frozen.train()(x), expected)
    assert all(torch.equal(v, state[k]) for k, v in frozen.state_dict().items())
    after = dict(frozen.named_parameters())
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in after)
    freeze_statistics(frozen)


def test_what_cannot_be_frozen_is_named() -> None:
    network = nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"0 has no running statistics .*track_running_stats=True"):
        freeze_statistics(network)
