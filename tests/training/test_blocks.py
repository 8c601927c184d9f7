"""Copies of data are held out together, and count as one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from groupella.decide.claims import Difference
from groupella.groups import GroupSet, cyclic
from groupella.training import FindSettings, find_symmetry
from groupella.training._blocks import copies
from groupella.training._candidates import split


def draw(n: int, dim: int = 16, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, 1, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_copies_are_found_at_any_scale(noise: float, scale: float) -> None:
    origin = torch.arange(200) % 40
    x = draw(40)[origin] + noise * draw(200, seed=1)
    found = copies(scale * x + scale)
    assert len(torch.unique(found)) == 40
    assert all(len(torch.unique(found[origin == i])) == 1 for i in range(40))


def test_data_that_only_lie_densely_are_no_copies() -> None:
    assert len(torch.unique(copies(draw(300)))) == 300
    dense = copies(draw(2000, dim=1))
    assert torch.bincount(torch.unique(dense, return_inverse=True)[1]).max() < 200


def test_data_given_twice_are_pairs() -> None:
    x = draw(60)
    assert torch.equal(copies(torch.cat([x, x]))[:60], copies(torch.cat([x, x]))[60:])
    assert len(torch.unique(copies(torch.cat([x, x])))) == 60


def test_equal_data_are_one_block_also_if_all_are() -> None:
    assert len(torch.unique(copies(torch.ones(30, 1, 4, 4)))) == 1


def test_a_split_keeps_blocks_together_and_is_the_same_without_copies() -> None:
    labels = torch.arange(400) % 4
    settings = FindSettings(seed=3)
    plain = split(labels, settings)
    alone = split(labels, settings, 0, torch.arange(400) + 7)
    assert all(torch.equal(a, b) for a, b in zip(plain, alone, strict=True))
    blocks = torch.arange(400) // 8
    for fold in (0, 1):
        train, held = split(blocks % 4, settings, fold, blocks)
        assert not set(blocks[train].tolist()) & set(blocks[held].tolist())
        assert 80 <= len(held) <= 120
        assert set((blocks[held] % 4).tolist()) == {0, 1, 2, 3}


def test_errors_of_copies_are_those_of_what_was_copied() -> None:
    gap = np.random.default_rng(0).standard_normal(40)
    zeros, classes = np.zeros(40), np.arange(40) % 2
    once = Difference.of(gap, zeros, classes)
    many = Difference.of(
        np.repeat(gap, 5), np.zeros(200), np.repeat(classes, 5), np.repeat(np.arange(40), 5)
    )
    assert many.mean == pytest.approx(once.mean)
    assert many.error == pytest.approx(once.error)
    assert once.error == pytest.approx(gap.std(ddof=1) / np.sqrt(40))
    assert (many.worst, many.worst_error) == pytest.approx((once.worst, once.worst_error))
    assert many.worst_z == pytest.approx(once.worst_z)


@pytest.mark.slow
@pytest.mark.parametrize(("origins", "noise"), [(50, 0.0), (100, 0.05)])
def test_copies_on_both_sides_assert_no_symmetry(origins: int, noise: float) -> None:
    # Known by heart, a copy is predicted whatever the network obeys: cyclic shifts seemed to hold.
    base, origin = draw(origins), torch.arange(5 * origins) % origins
    x = base[origin] + noise * draw(len(origin), seed=1)
    found = find_symmetry(
        (x, (base[origin, 0, 0] > 0).long()),
        GroupSet(cyclic(16)),
        settings=FindSettings(epochs=30, width=16),
        progress=False,
    )
    assert found.verdict in ("none", "undecided")
