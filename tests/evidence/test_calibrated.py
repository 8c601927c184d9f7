"""A calibrated predictive is never worse than the weights alone, and better on strange inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_digits, make_moons
from torch import Tensor, nn

from groupella.curvature import mc
from groupella.evidence import Evidence, Predictive, Prior, Quality
from groupella.evidence.likelihoods import Categorical
from groupella.groups import p4
from groupella.networks import fold, invariant_net
from groupella.training import fit

Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Trained:
    """A trained network, data it has not seen, and what makes its inputs strange."""

    network: nn.Module
    train: Data
    held: Data
    test: Data
    strange: Callable[[Tensor], Tensor]


def digits(seed: int, noise: float = 0.0) -> tuple[Data, Data, Data]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(images, dtype=torch.float32)[order].reshape(-1, 1, 8, 8) / 8 - 1
    y = torch.tensor(labels)[order]
    generator = torch.Generator().manual_seed(seed)
    wrong = torch.rand(len(y), generator=generator) < noise
    y = torch.where(wrong, torch.randint(10, y.shape, generator=generator), y)
    return tuple(zip(x.split([400, 200, 1197]), y.split([400, 200, 1197]), strict=True))


def noisy(x: Tensor) -> Tensor:
    return x + 0.7 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))


def shifted(x: Tensor) -> Tensor:
    return x.roll(1, -1)


def mlp(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs))


def trained(network: nn.Module, parts: tuple[Data, Data, Data], strange, epochs: int) -> Trained:
    fit(
        network,
        parts[0],
        Categorical(),
        prior=Prior.from_network(network, precisions=1e-6),
        method="map",
        epochs=epochs,
        lr=0.01,
        batch_size=50,
        progress=False,
    )
    return Trained(network, *parts, strange)


def on_digits() -> Trained:
    return trained(mlp(64, 10), digits(0), shifted, 30)


def on_wrong_labels() -> Trained:
    return trained(mlp(64, 10), digits(1, 0.15), noisy, 30)


def convolutional() -> Trained:
    network = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return trained(network, digits(2), noisy, 15)


def rotation_invariant() -> Trained:
    made = trained(invariant_net(p4(), (8, 8), 1, 10, width=8), digits(3), noisy, 15)
    return Trained(fold(made.network), made.train, made.held, made.test, made.strange)


def on_moons() -> Trained:
    x, y = make_moons(1500, noise=0.35, random_state=0)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
    parts = tuple(zip(x.split([150, 150, 1200]), y.split([150, 150, 1200]), strict=True))
    return trained(mlp(2, 2), parts, lambda x: 2.5 * x + torch.tensor([0.0, 1.0]), 60)


NETWORKS = (on_digits, on_wrong_labels, convolutional, rotation_invariant, on_moons)


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, Quality]]:
    """Of each network: quality by its weights alone and calibrated, on usual and strange data."""
    made = {}
    for make in NETWORKS:
        torch.manual_seed(0)
        one = make()
        evidence = Evidence(one.network, Categorical())
        evidence.update(one.train, subset=200, mode=mc(4, seed=0))
        calibrated = Predictive(evidence).calibrated(*one.held)
        x, y = one.test
        x, y = x[:400], y[:400]
        made[make.__name__] = {
            "map": calibrated.quality(x, y, "map"),
            "calibrated": calibrated.quality(
                x,
                y,
            ),
            "map, strange": calibrated.quality(one.strange(x), y, "map"),
            "calibrated, strange": calibrated.quality(
                one.strange(x),
                y,
            ),
        }
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", [make.__name__ for make in NETWORKS])
def test_never_worse_than_the_weights_alone(
    found: dict[str, dict[str, Quality]], name: str
) -> None:
    plain, calibrated = found[name]["map"], found[name]["calibrated"]
    assert calibrated.nll <= plain.nll + 0.01
    assert plain.ece is not None
    assert calibrated.ece is not None
    assert calibrated.ece <= plain.ece + 0.02


@pytest.mark.slow
def test_better_on_shifted_and_noisy_inputs(found: dict[str, dict[str, Quality]]) -> None:
    for name, qualities in found.items():
        plain, calibrated = qualities["map, strange"], qualities["calibrated, strange"]
        assert calibrated.nll < plain.nll - 0.01, name
        assert calibrated.ece is not None
        assert plain.ece is not None
        assert calibrated.ece < plain.ece, name
