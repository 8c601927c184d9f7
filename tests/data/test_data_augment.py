"""Augmentation: per sample, by whole pixels, never an interpolation."""

from __future__ import annotations

import pytest
import torch

from groupella.data import Augmentation
from groupella.data._augment import shifted


def one_by_one(x: torch.Tensor, down: torch.Tensor, right: torch.Tensor, fill: torch.Tensor):
    out = torch.empty_like(x)
    for n in range(len(x)):
        for c in range(x.shape[1]):
            for i in range(x.shape[2]):
                for j in range(x.shape[3]):
                    a, b = i - int(down[n]), j - int(right[n])
                    inside = 0 <= a < x.shape[2] and 0 <= b < x.shape[3]
                    out[n, c, i, j] = x[n, c, a, b] if inside else fill[c]
    return out


def test_shifts_equal_a_loop_over_pixels() -> None:
    torch.manual_seed(0)
    x, fill = torch.rand(9, 2, 5, 6), torch.tensor([7.0, -3.0])
    down, right = torch.randint(-2, 3, (2, 9))
    assert torch.equal(shifted(x, down, right, 2, fill), one_by_one(x, down, right, fill))


def test_each_sample_draws_its_own_motion() -> None:
    x = torch.zeros(4000, 1, 9, 9)
    x[:, :, 4, 4] = 1
    y = Augmentation(shift=2, flip=False)(x, torch.Generator().manual_seed(0))
    counts = y.sum((0, 1))
    assert counts.sum() == 4000
    assert (counts[2:7, 2:7] > 100).all()  # 25 places, 160 expected in each
    assert counts[2:7, 2:7].sum() == 4000


def test_flips_half_of_the_samples() -> None:
    x = torch.arange(4.0).view(1, 1, 1, 4).expand(2000, 1, 1, 4)
    y = Augmentation(shift=0, flip=True)(x, torch.Generator().manual_seed(0))
    flipped = (y == x.flip(-1)).flatten(1).all(1)
    kept = (y == x).flatten(1).all(1)
    assert (flipped | kept).all()
    assert 900 < flipped.sum() < 1100


def test_same_seed_same_batch_and_fill_enters() -> None:
    x = torch.rand(50, 3, 8, 8)
    augment = Augmentation(shift=3, flip=True, fill=(-1.0, -2.0, -3.0))
    first = augment(x, torch.Generator().manual_seed(5))
    assert torch.equal(first, augment(x, torch.Generator().manual_seed(5)))
    assert not torch.equal(first, augment(x, torch.Generator().manual_seed(6)))
    entered = {float(v) for v in first[first < 0]}
    assert entered == {-1.0, -2.0, -3.0}
    assert (first[:, 0][first[:, 0] < 0] == -1).all()


def test_a_batch_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected images \(n, 3, height, width\)"):
        Augmentation(fill=(0.0, 0.0, 0.0))(torch.rand(5, 1, 8, 8))
    with pytest.raises(ValueError, match="0 or more"):
        Augmentation(shift=-1)
