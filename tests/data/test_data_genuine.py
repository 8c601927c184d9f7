"""The genuine MNIST and CIFAR-10, where ``GROUPELLA_DATA`` says they are."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch

from groupella.data import load, public, verify
from groupella.data._catalogue import DATASETS
from groupella.data._copies import locate

PLACE = os.environ.get("GROUPELLA_DATA")


def genuine(name: str) -> str:
    if not PLACE:
        pytest.skip("GROUPELLA_DATA is not set: no genuine data to read")
    if not locate(name, Path(PLACE)):
        pytest.skip(f"GROUPELLA_DATA holds no {name}")
    return PLACE


def test_mnist_is_the_one_everybody_knows() -> None:
    place = genuine("mnist")
    assert all(check.ok for check in verify("mnist", place))
    images = public("mnist", place, download=False)
    assert images.train_x.shape == (60_000, 1, 28, 28)
    assert images.test_x.shape == (10_000, 1, 28, 28)
    assert images.train_y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert float(images.train_x.float().mean() / 255) == pytest.approx(0.1307, abs=1e-4)
    paths = locate("mnist", Path(place))[0].paths
    for item in DATASETS["mnist"].downloads:
        path = paths[item.file]
        if path.name == item.file:
            assert path.stat().st_size == item.size
            assert hashlib.sha256(path.read_bytes()).hexdigest() == item.sha256


def test_mnist_in_quadrants_is_ready_in_seconds() -> None:
    data = load("mnist:quadrants+label", data_dir=genuine("mnist"), download=False)
    assert data.train_x.shape == (60_000, 1, 32, 32)
    counts = torch.bincount(data.train_y % 4)
    assert ((counts - 15_000).abs() < 5 * 106).all()


def test_cifar10_is_the_one_everybody_knows() -> None:
    place = genuine("cifar10")
    images = public("cifar10", place, download=False)  # verifies every batch by its MD5
    assert images.train_x.shape == (50_000, 3, 32, 32)
    assert torch.bincount(images.train_y).tolist() == [5000] * 10
    assert torch.bincount(images.test_y).tolist() == [1000] * 10
    assert images.train_y[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    mean = images.train_x[:10_000].double().mean((0, 2, 3)) / 255
    torch.testing.assert_close(
        mean, torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=5e-3, rtol=0
    )
    again = public("cifar10", place, download=False)  # from the cache
    assert torch.equal(again.test_x, images.test_x)
