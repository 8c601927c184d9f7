"""Augmentation acts on training batches, sample by sample, and on nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.data import Augmentation
from groupella.evidence import Evidence
from groupella.evidence.likelihoods import Categorical
from groupella.training import Settings, fit

SETTINGS = Settings(
    epochs=2, batch_size=10, lr=0.01, burn_in=1, curvature_subset=12, curvature_batch=7
)
MOVED = 100.0


class Watched(nn.Module):
    """A linear network that notes what it is given, and in which mode."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(16, 2)
        self.trained_on: list[Tensor] = []
        self.measured_on: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        (self.trained_on if self.training else self.measured_on).append(x.detach().clone())
        out: Tensor = self.linear(x.flatten(1) % MOVED)
        return out


def images(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 1, 4, 4, generator=generator)
    return x, (x[:, 0, 0, 0] > 0.5).long()


def is_one_of(x: Tensor, known: Tensor) -> bool:
    """Whether every sample of x is one of the known ones."""
    return bool((x[:, None] == known).flatten(2).all(2).any(1).all())


@pytest.mark.parametrize("method", ["map", "fixed_point", "adam", "linearised"])
def test_only_training_batches_are_augmented(method: Any) -> None:
    train, held_out = images(30, 1), images(20, 2)
    given = []

    def augment(x: Tensor, generator: torch.Generator) -> Tensor:
        given.append(x.clone())
        return x + MOVED

    network = Watched()
    result = fit(
        network,
        train,
        settings=SETTINGS,
        method=method,
        validation=held_out,
        augment=augment,
        progress=False,
    )
    # Two epochs of three batches: all training data in each, as they are, and no others.
    assert [len(x) for x in given] == [10] * 6
    for epoch in (torch.cat(given[:3]), torch.cat(given[3:])):
        torch.testing.assert_close(*(x.flatten(1).sort(0).values for x in (epoch, train[0])))
    trained = [x for x in network.trained_on if len(x) == 10]
    assert len(trained) == 6
    assert all(float(x.min()) >= MOVED for x in trained)
    # Curvature, the fit to the data and validation see images as they are.
    assert network.measured_on
    assert all(is_one_of(x, torch.cat([train[0], held_out[0]])) for x in network.measured_on)
    validated = [x for x in network.measured_on if is_one_of(x, held_out[0])]
    assert [len(x) for x in validated[-6:]] == [7, 7, 6] * 2
    with torch.no_grad():
        nll = -Categorical().log_likelihood(network.linear(held_out[0].flatten(1)), held_out[1])
    assert result.history[-1].validation_nll == pytest.approx(float(nll) / 20, rel=1e-5)


def test_evidence_is_that_of_images_as_they_are() -> None:
    def far_away(x: Tensor, generator: torch.Generator) -> Tensor:
        return 50 + x

    train = images(30, 1)
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    settings = Settings(epochs=1, batch_size=30, lr=1e-12, burn_in=1, curvature_subset=None)
    result = fit(network, train, settings=settings, augment=far_away, progress=False)
    again = Evidence(network, Categorical(), result.prior)
    again.collect(train)
    wanted = float(again.log_marginal_likelihood().detach())
    assert result.log_evidence == pytest.approx(wanted, rel=1e-6)


def test_every_sample_of_a_batch_is_moved_by_its_own_motion() -> None:
    x, y = images(30, 1)
    network = Watched()
    augment = Augmentation(shift=1, flip=True)
    fit(
        network,
        (x, y),
        settings=SETTINGS,
        method="map",
        augment=augment,
        progress=False,
    )
    motions = [_motions(batch, x) for batch in network.trained_on if len(batch) == 10]
    assert len(motions) == 6
    # Eighteen motions for ten samples: about eight different ones a batch.
    assert all(len(set(batch)) >= 4 for batch in motions)
    assert motions[0] != motions[3]
    assert {flip for batch in motions for _, _, flip in batch} == {False, True}
    assert {step for batch in motions for step, _, _ in batch} == {-1, 0, 1}


def _motions(batch: Tensor, x: Tensor) -> list[tuple[int, int, bool]]:
    """The motion of every sample, found by trying all of them on all images."""
    framed = nn.functional.pad(x, (1, 1, 1, 1))
    moved = {}
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            there = framed[..., 1 - down : 5 - down, 1 - right : 5 - right]
            moved[down, right, False] = there
            moved[down, right, True] = there.flip(-1)
    found = []
    for sample in batch:
        (motion,) = [m for m, images in moved.items() if is_one_of(sample[None], images)]
        found.append(motion)
    return found
