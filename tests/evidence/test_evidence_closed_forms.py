"""Evidence against closed forms: Bayesian linear regression, finite differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import Evidence, Prior, removal
from groupella.evidence.likelihoods import Categorical, Gaussian

N, D = 30, 4


def regression(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    w = torch.tensor([1.0, -2.0, 0.0, 0.5], dtype=torch.float64)
    y = x @ w[:, None] + 0.3 * torch.randn(N, 1, generator=generator, dtype=torch.float64)
    return x, y


def gaussian(noise: float) -> Gaussian:
    likelihood = Gaussian().double()
    with torch.no_grad():
        likelihood.log_noise.fill_(math.log(noise))
    return likelihood


def exact_log_evidence(x: Tensor, y: Tensor, delta: float, noise: float) -> float:
    """log N(y | 0, σ² I + X Xᵀ/δ)."""
    covariance = noise**2 * torch.eye(len(x), dtype=torch.float64) + x @ x.T / delta
    quadratic = (y[:, 0] * torch.linalg.solve(covariance, y[:, 0])).sum()
    constant = torch.logdet(2 * math.pi * covariance)
    return -0.5 * float(quadratic + constant)


def linear_at_map(x: Tensor, y: Tensor, delta: float, noise: float) -> nn.Linear:
    model = nn.Linear(x.shape[1], 1, bias=False).double()
    set_to_map(model, x, y, delta, noise)
    return model


def set_to_map(model: nn.Linear, x: Tensor, y: Tensor, delta: float, noise: float) -> None:
    hessian = x.T @ x / noise**2 + delta * torch.eye(x.shape[1], dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.linalg.solve(hessian, x.T @ y / noise**2).T)


def evidence_of(model: nn.Linear, x: Tensor, y: Tensor, delta: float, noise: float) -> Evidence:
    evidence = Evidence(model, gaussian(noise), Prior.from_network(model, precisions=delta))
    evidence.collect((x, y))
    return evidence


@pytest.mark.parametrize("delta", [0.01, 1.0, 300.0])
@pytest.mark.parametrize("noise", [0.3, 2.0])
def test_equals_the_exact_marginal_likelihood_of_linear_regression(
    delta: float, noise: float
) -> None:
    x, y = regression()
    evidence = evidence_of(linear_at_map(x, y, delta, noise), x, y, delta, noise)
    value = float(evidence.log_marginal_likelihood().detach())
    assert value == pytest.approx(exact_log_evidence(x, y, delta, noise), abs=1e-8)
    assert evidence.report().log_marginal_likelihood == pytest.approx(value, abs=1e-9)


def test_is_exact_for_several_outputs_too() -> None:
    x, y = regression()
    y = torch.cat([y, y.flip(0), y.square()], 1)
    model = nn.Linear(D, 3, bias=False).double()
    set_to_map(model, x, y, 2.0, 0.5)
    evidence = evidence_of(model, x, y, 2.0, 0.5)
    exact = sum(exact_log_evidence(x, y[:, [k]], 2.0, 0.5) for k in range(3))
    assert float(evidence.log_marginal_likelihood().detach()) == pytest.approx(exact, abs=1e-8)


def small_network() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x = torch.randn(25, 3, dtype=torch.float64)
    return network, x, torch.arange(25) % 3


def test_gradient_in_log_precisions_equals_autograd_and_finite_differences() -> None:
    network, x, y = small_network()
    evidence = Evidence(network, Categorical())
    evidence.collect((x, y))
    (automatic,) = torch.autograd.grad(
        evidence.log_marginal_likelihood(), evidence.prior.log_precision
    )
    torch.testing.assert_close(evidence.gradient(), automatic, rtol=1e-10, atol=1e-10)
    step = 1e-5
    for i in range(len(evidence.prior)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                evidence.prior.log_precision[i] += sign * step
            values.append(float(evidence.log_marginal_likelihood().detach()))
            with torch.no_grad():
                evidence.prior.log_precision[i] -= sign * step
        slope = (values[0] - values[1]) / (2 * step)
        assert float(automatic[i]) == pytest.approx(slope, abs=1e-6)


def test_noise_gradient_equals_a_new_collection_at_another_noise() -> None:
    x, y = regression()
    model = linear_at_map(x, y, 1.0, 0.4)
    slope = evidence_of(model, x, y, 1.0, 0.4).noise_gradient()
    step = 1e-5
    ahead, behind = (
        float(evidence_of(model, x, y, 1.0, 0.4 * math.exp(h)).log_marginal_likelihood().detach())
        for h in (step, -step)
    )
    assert slope == pytest.approx((ahead - behind) / (2 * step), rel=1e-6)


def test_cached_spectrum_follows_the_noise() -> None:
    x, y = regression()
    model = linear_at_map(x, y, 1.0, 0.4)
    evidence = evidence_of(model, x, y, 1.0, 0.4)
    with torch.no_grad():
        evidence.likelihood.log_noise.fill_(math.log(0.9))  # type: ignore[attr-defined]
    fresh = evidence_of(model, x, y, 1.0, 0.9)
    assert float(evidence.log_marginal_likelihood().detach()) == pytest.approx(
        float(fresh.log_marginal_likelihood().detach()), abs=1e-9
    )


@pytest.mark.parametrize("method", ["fixed_point", "adam", "linearised"])
def test_alternating_with_the_map_reaches_the_maximum_of_the_exact_evidence(method: str) -> None:
    x, y = regression()
    model = linear_at_map(x, y, 1.0, 1.0)
    likelihood = gaussian(1.0)
    evidence = Evidence(model, likelihood)
    for _ in range(40):
        delta, noise = evidence.prior.precision("weight"), float(likelihood.noise.detach())
        set_to_map(model, x, y, delta, noise)
        evidence.update((x, y), method, steps=20, lr=0.05)  # type: ignore[arg-type]
    delta, noise = evidence.prior.precision("weight"), float(likelihood.noise.detach())
    best = exact_log_evidence(x, y, delta, noise)
    for a in (0.9, 1.0, 1.1):
        for b in (0.9, 1.0, 1.1):
            assert exact_log_evidence(x, y, a * delta, b * noise) <= best + 1e-3


def test_fixed_point_steps_settle_at_zero_gradient() -> None:
    network, x, y = small_network()
    evidence = Evidence(network, Categorical())
    evidence.update((x, y), "fixed_point", steps=60)
    assert float(evidence.gradient().abs().max()) < 1e-6


def test_adam_raises_the_evidence() -> None:
    network, x, y = small_network()
    evidence = Evidence(network, Categorical())
    evidence.collect((x, y))
    before = float(evidence.log_marginal_likelihood().detach())
    evidence.step("adam", steps=200, lr=0.1)
    after = float(evidence.log_marginal_likelihood().detach())
    evidence.step("fixed_point", steps=60)
    best = float(evidence.log_marginal_likelihood().detach())
    assert before < after <= best + 1e-6
    assert best - after < 0.05


def test_removal_equals_the_change_of_the_exact_evidence() -> None:
    """With orthogonal inputs the two groups do not interact, so the closed form is exact."""
    x, y = regression()
    x, _ = torch.linalg.qr(x)
    x = x * 5

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 1, bias=False).double()
            self.b = nn.Linear(2, 1, bias=False).double()

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.a(x[:, :2]) + self.b(x[:, 2:])
            return out

    model = Two()
    set_to_map(model.a, x[:, :2], y, 1.5, 0.3)
    set_to_map(model.b, x[:, 2:], y, 1.5, 0.3)
    evidence = Evidence(model, gaussian(0.3), Prior.from_network(model, precisions=1.5))
    evidence.collect((x, y))
    full = exact_log_evidence(x, y, 1.5, 0.3)
    assert float(evidence.log_marginal_likelihood().detach()) == pytest.approx(full, abs=1e-8)
    reduced = exact_log_evidence(x[:, 2:], y, 1.5, 0.3)
    assert removal(evidence, ["a"]) == pytest.approx(reduced - full, abs=1e-8)


class Stretched(nn.Module):
    """A linear map of tanh(exp(ρ) x): ρ is a hyperparameter inside the network."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.rho = nn.Parameter(torch.tensor(0.2, dtype=torch.float64))
        self.first = nn.Linear(3, 4).double()
        self.last = nn.Linear(4, 2).double()
        self.hyperparameters = {"rho": "position"}

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(torch.tanh(self.first(torch.tanh(self.rho.exp() * x))))
        return out


@pytest.mark.parametrize("passes", [1, 2])
def test_gradient_of_a_hyperparameter_inside_the_network(passes: int) -> None:
    network = Stretched()
    x = torch.randn(12, 3, dtype=torch.float64)
    y = torch.arange(12) % 2
    evidence = Evidence(network, Categorical())
    assert evidence.prior.hyperparameters == ("rho",)
    found = evidence.hyper_gradient((x, y), passes=passes)["rho"]
    assert network.rho.grad is None
    step, values = 1e-5, []
    for sign in (1, -1):
        with torch.no_grad():
            network.rho.add_(sign * step)
        evidence.collect((x, y))
        values.append(float(evidence.log_marginal_likelihood().detach()))
        with torch.no_grad():
            network.rho.sub_(sign * step)
    assert float(found) == pytest.approx((values[0] - values[1]) / (2 * step), abs=1e-6)
