"""Predictions against the exact posterior of linear models, and against dense Jacobians."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import Evidence, Predictive, Prior, calibration_error
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian


def linear_problem(outputs: int = 2) -> tuple[nn.Linear, Gaussian, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(20, 3, dtype=torch.float64)
    y = torch.randn(20, outputs, dtype=torch.float64)
    likelihood = Gaussian().double()
    with torch.no_grad():
        likelihood.log_noise.fill_(math.log(0.7))
    return nn.Linear(3, outputs, bias=False).double(), likelihood, x, y


def test_equals_the_exact_posterior_predictive_of_linear_regression() -> None:
    model, likelihood, x, y = linear_problem()
    delta, variance = 2.5, 0.49
    posterior = torch.linalg.inv(x.T @ x / variance + delta * torch.eye(3, dtype=torch.float64))
    with torch.no_grad():
        model.weight.copy_((posterior @ x.T @ y / variance).T)
    evidence = Evidence(model, likelihood, Prior.from_network(model, precisions=delta))
    evidence.collect((x, y))
    new = torch.randn(7, 3, dtype=torch.float64)
    mean, covariance = Predictive(evidence).normal(new)
    spread = (new @ posterior * new).sum(1) + variance
    exact = spread[:, None, None] * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(mean, new @ model.weight.detach().T)
    torch.testing.assert_close(covariance, exact, rtol=1e-10, atol=1e-10)
    targets = torch.randn(7, 2, dtype=torch.float64)
    nll = Predictive(evidence).quality(new, targets).nll
    squares = ((targets - mean).square() / spread[:, None]).sum(1)
    expected = 0.5 * (squares + 2 * (2 * math.pi * spread).log()).mean()
    assert nll == pytest.approx(float(expected), abs=1e-10)


def test_covariance_equals_the_dense_jacobian_formula() -> None:
    """A small convolutional network: J (H + δ)⁻¹ Jᵀ with every matrix written out."""
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 3),
    ).double()
    x = torch.randn(5, 1, 4, 4, dtype=torch.float64)
    evidence = Evidence(network, Categorical(), Prior.from_network(network, precisions=0.8))
    evidence.collect((x, torch.arange(5) % 3))
    f, covariance = Predictive(evidence).latent(x)
    exact = torch.zeros(5, 3, 3, dtype=torch.float64)
    for name, parameter in network.named_parameters():
        dense = evidence.blocks[name].to_dense() + 0.8 * torch.eye(
            parameter.numel(), dtype=torch.float64
        )
        for n in range(5):
            rows = [
                torch.autograd.grad(network(x[n : n + 1])[0, k], parameter)[0].reshape(-1)
                for k in range(3)
            ]
            j = torch.stack(rows)
            exact[n] += j @ torch.linalg.solve(dense, j.T)
    torch.testing.assert_close(f, network(x).detach())
    torch.testing.assert_close(covariance, exact, rtol=1e-9, atol=1e-10)


def classifier() -> tuple[Evidence, Tensor, Tensor]:
    torch.manual_seed(2)
    network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    x = torch.randn(40, 4)
    y = x[:, :3].argmax(1)
    evidence = Evidence(network, Categorical())
    evidence.collect((x, y))
    return evidence, x, y


def test_methods_agree_where_the_posterior_is_narrow() -> None:
    evidence, x, _ = classifier()
    with torch.no_grad():
        evidence.prior.log_precision.fill_(math.log(1e10))
    predictive = Predictive(evidence)
    plain = predictive.probabilities(x, "map")
    torch.testing.assert_close(plain, evidence.network(x).softmax(1).double().detach())
    for method in ("probit", "mc"):
        p = predictive.probabilities(x, method)
        torch.testing.assert_close(p, plain, rtol=0, atol=1e-3)


def test_uncertainty_softens_confidence() -> None:
    evidence, x, y = classifier()
    with torch.no_grad():
        for parameter in evidence.network.parameters():
            parameter.mul_(5)
    evidence.collect((x, y))
    predictive = Predictive(evidence)
    far = 10 * x
    confidence = {
        m: float(predictive.probabilities(far, m).max(1).values.mean())
        for m in ("map", "probit", "mc")
    }
    assert confidence["probit"] < confidence["map"] - 0.01
    assert confidence["mc"] < confidence["map"] - 0.01


def test_monte_carlo_matches_the_integral_for_one_binary_output() -> None:
    torch.manual_seed(3)
    x = torch.randn(30, 2, dtype=torch.float64)
    y = (x[:, :1] > 0).double()
    network = nn.Linear(2, 1).double()
    evidence = Evidence(network, Bernoulli())
    evidence.collect((x, y))
    predictive = Predictive(evidence)
    f, covariance = predictive.latent(x)
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    values = torch.sigmoid(f + covariance[:, 0].sqrt() * grid)
    integral = torch.trapezoid(values * density, grid, dim=1)[:, None]
    mc = predictive.probabilities(x, "mc", samples=20_000, generator=torch.Generator())
    torch.testing.assert_close(mc, integral, rtol=0, atol=0.01)
    torch.testing.assert_close(predictive.probabilities(x, "probit"), integral, rtol=0, atol=0.02)
    quality = predictive.quality(x, y)
    assert quality.accuracy is not None
    assert 0 <= (quality.ece or 0) <= 1


def test_calibration_error_of_known_cases() -> None:
    sure = torch.tensor([[1.0, 0.0]] * 4)
    assert calibration_error(sure, torch.tensor([0, 0, 0, 0])) == pytest.approx(0.0)
    assert calibration_error(sure, torch.tensor([0, 1, 0, 1])) == pytest.approx(0.5)
    mixed = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    # Right half the time in both bins: |0.5 − 0.9| and |0.5 − 0.6|, equally many data.
    assert calibration_error(mixed, torch.tensor([0, 1, 1, 0])) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="labels"):
        calibration_error(sure, torch.zeros(4, 2).long())


def test_quality_of_a_perfect_and_a_useless_classifier() -> None:
    evidence, x, y = classifier()
    quality = Predictive(evidence).quality(x, y, "map")
    p = evidence.network(x).detach().double().log_softmax(1)
    assert quality.nll == pytest.approx(-float(p[torch.arange(40), y].mean()), abs=1e-6)
    assert quality.accuracy == pytest.approx(float((p.argmax(1) == y).double().mean()))


def test_wrong_likelihoods_are_refused() -> None:
    evidence, x, _ = classifier()
    with pytest.raises(TypeError, match="Gaussian"):
        Predictive(evidence).normal(x)
    with pytest.raises(ValueError, match="method"):
        Predictive(evidence).probabilities(x, "exact")  # type: ignore[arg-type]
    model, likelihood, inputs, _ = linear_problem()
    with pytest.raises(TypeError, match="normal"):
        Predictive(Evidence(model, likelihood)).probabilities(inputs)
    with pytest.raises(RuntimeError, match="collect"):
        Predictive(Evidence(model, likelihood)).latent(inputs)
