"""What training takes is known from shapes alone, and what does not fit is refused at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import groupella
from groupella.groups import GroupSet, Symmetry, p4, trivial
from groupella.training import FindSettings, TooLargeError, _footprint, find_symmetry, footprint


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 1 GiB on which nothing may be trained."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a training began")

    monkeypatch.setattr(_footprint, "memory_of_machine", lambda: 2**30)
    monkeypatch.setattr("groupella.training._candidates.fit", refuse)


def test_the_footprint_is_that_of_a_network_counted_by_hand() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 5, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(5 * 64, 7)
    )
    found = footprint(network, (3, 8, 8))
    # Kept per datum: the input, and what the ReLU gives, which is also what the last layer takes.
    assert found.each == 4 * (3 * 64 + 5 * 64)
    assert found.fixed == 4 * 4 * (5 * 3 * 9 + 5 + 7 * 5 * 64 + 7)
    assert found.products == 64 * 5 * 3 * 9 + 7 * 5 * 64


def images(n: int, side: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(1, 1, side, side).expand(n, 1, side, side), torch.arange(n) % 2


@pytest.mark.usefixtures("small_machine")
def test_a_search_that_does_not_fit_is_refused_with_numbers_at_once() -> None:
    words = r"with batches of \d+, needs at least [\d.]+ GiB, and this machine has 1\.0 GiB. Use "
    words += r"smaller images \(--size\), fewer channels \(--alpha, width=\) or smaller batches"
    with pytest.raises(TooLargeError, match=words):
        find_symmetry(images(80, 224), GroupSet(trivial(), p4()), 2, progress=False)
    x, y = images(80, 224)
    with pytest.raises(ValueError, match=words):
        groupella.select(
            x.numpy() + np.arange(80)[:, None, None, None] % 2, y.numpy(), "z2,p4", size=224
        )


@pytest.mark.usefixtures("small_machine")
def test_matrices_of_all_pairs_of_pixels_are_refused_before_they_are_made() -> None:
    sites = np.arange(128 * 128).reshape(128, 128)
    rows = Symmetry.from_generators("rows", (128, 128), [np.roll(sites, 1, axis=1).ravel()])
    with pytest.raises(
        TooLargeError, match=r"obeys rows, on 16,384 sites, needs at least 2\.0 GiB"
    ):
        find_symmetry(images(40, 128), GroupSet(trivial(), rows), 2, progress=False)


@pytest.mark.usefixtures("small_machine")
def test_what_would_take_months_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_footprint, "memory_of_machine", lambda: 2**33)
    with pytest.raises(TooLargeError, match=r"takes at least [\d,]+ days"):
        find_symmetry(
            images(80, 224), GroupSet(p4()), 2, FindSettings(epochs=10**8), progress=False
        )


@pytest.mark.usefixtures("small_machine")
def test_what_fits_is_trained() -> None:
    with pytest.raises(AssertionError, match="a training began"):
        find_symmetry(images(40, 64), GroupSet(p4()), 2, progress=False)
