"""What held-out data say of the uncertainty of the network that is handed over."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from groupella.evidence import fitted_temperature
from groupella.evidence.likelihoods import Bernoulli, Categorical
from groupella.groups import GroupSet, cyclic, translations
from groupella.training import FindSettings, FoundSymmetry, find_symmetry, r_squared

FAST = FindSettings(epochs=20, width=8, looks=1, layers=False)


def drawn(n: int, k: int, factor: float) -> tuple[Tensor, Tensor]:
    """Logits that are `factor` times those from which the classes were drawn."""
    generator = torch.Generator().manual_seed(0)
    f = 2 * torch.randn(n, k, generator=generator, dtype=torch.double)
    y = torch.multinomial(f.softmax(1), 1, generator=generator).flatten()
    return factor * f, y


@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0])
def test_predictions_that_are_too_sure_get_the_temperature_that_they_lack(factor: float) -> None:
    assert fitted_temperature(Categorical(), *drawn(4000, 4, factor)) == pytest.approx(
        factor, rel=0.05
    )


@pytest.mark.parametrize("factor", [0.3, 1.0])
def test_predictions_are_never_sharpened(factor: float) -> None:
    assert fitted_temperature(Categorical(), *drawn(4000, 4, factor)) == 1.0


def test_a_handful_of_data_asks_for_nothing() -> None:
    assert fitted_temperature(Categorical(), *drawn(4, 3, 1.5)) == 1.0


def test_several_labels_have_one_temperature() -> None:
    generator = torch.Generator().manual_seed(0)
    f = 2 * torch.randn(3000, 3, generator=generator, dtype=torch.double)
    y = (torch.rand(f.shape, generator=generator) < f.sigmoid()).float()
    assert fitted_temperature(Bernoulli(), 4 * f, y) == pytest.approx(4.0, rel=0.1)


def test_r_squared_of_a_target_that_does_not_vary_is_bounded() -> None:
    y = torch.stack([torch.arange(4.0), torch.ones(4)], 1)
    assert r_squared(y.clone(), y) == 1.0
    assert r_squared(y + torch.tensor([0.0, 1e-3]), y) == 0.5
    # By hand: 1 − Σ (y − f)² / Σ (y − mean)² = 1 − 4/5.
    assert r_squared(y[:, :1] + 1.0, y[:, :1]) == pytest.approx(0.2)


def waves(n: int, seed: int, noise: float) -> tuple[Tensor, Tensor]:
    """Waves of one or two periods at any phase."""
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    x = np.cos((y[:, None] + 1) * 2 * np.pi / 8 * np.arange(8) + phase)
    x = x + noise * rng.normal(size=x.shape)
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(y)


@pytest.fixture(scope="module")
def found() -> FoundSymmetry:
    return find_symmetry(waves(300, 0, 0.7), GroupSet(translations(1)), 2, FAST, progress=False)


@pytest.mark.slow
def test_the_predictive_of_a_search_is_not_worse_than_its_weights(found: FoundSymmetry) -> None:
    predictive = found.predictive
    x, y = waves(600, 1, 0.7)
    plain, calibrated = predictive.quality(x, y, "map"), predictive.quality(x, y)
    assert calibrated.nll <= plain.nll + 0.01
    assert calibrated.ece is not None
    assert plain.ece is not None
    assert calibrated.ece <= plain.ece + 0.02
    assert torch.equal(predictive.outputs(x), found.network(x).double())


@pytest.mark.slow
def test_strange_inputs_are_predicted_less_surely(found: FoundSymmetry) -> None:
    predictive = found.predictive
    x, _ = waves(200, 2, 0.7)
    strange = 4 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    usual, unusual = (
        predictive.probabilities(inputs, "map").amax(1) - predictive.probabilities(inputs).amax(1)
        for inputs in (x, strange)
    )
    assert float(unusual.mean()) > float(usual.mean()) + 0.01


@pytest.mark.slow
def test_intervals_of_a_regression_cover_what_they_say() -> None:
    def sets(n: int, seed: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 1, 4))
        y = x.sum((1, 2)) / 2 + 0.5 * rng.normal(size=n)
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]

    found = find_symmetry(
        sets(400, 0), GroupSet(cyclic(4)), 1, FAST, task="regression", progress=False
    )
    predictive = found.predictive
    x, y = sets(1000, 1)
    for level in (0.5, 0.9):
        low, high = predictive.interval(x, level)
        assert float(((low <= y) & (y <= high)).double().mean()) == pytest.approx(level, abs=0.05)
    # The noise is that of data which the network had not seen, not what it left of the others.
    residual = found.held_out.outputs - found.held_out.targets
    assert predictive.evidence.noise == pytest.approx(float(residual.square().mean().sqrt()))
