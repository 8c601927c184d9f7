"""A likelihood is one class: the recipe in CONTRIBUTING.md, followed to the letter."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import Evidence, Predictive, Prior, exact_evidence
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from groupella.training import fit

RECIPES = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def poisson() -> Likelihood:
    """The class that the recipe writes."""
    text = RECIPES.read_text(encoding="utf-8")
    found = re.search(r"\*\*Add a likelihood\.\*\*.*?```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {}
    exec(found[1], names)
    made = names["Poisson"]()
    assert isinstance(made, Likelihood)
    return made


def counts(n: int = 300) -> tuple[Tensor, Tensor]:
    """Counts with log-rate 1 + 0.7 x₁ − 0.4 x₂."""
    torch.manual_seed(0)
    x = torch.randn(n, 2, dtype=torch.float64)
    rate = (1 + 0.7 * x[:, :1] - 0.4 * x[:, 1:]).exp()
    return x, torch.poisson(rate)


def test_the_root_of_the_recipe_is_the_hessian() -> None:
    likelihood = poisson()
    f = torch.randn(3, 2, dtype=torch.float64)
    y = torch.tensor([[0.0, 3.0], [1.0, 2.0], [5.0, 0.0]], dtype=torch.float64)
    root = likelihood.hessian_root(f)
    hessian = torch.autograd.functional.hessian(lambda f: -likelihood.log_likelihood(f, y), f)
    blocks = torch.stack([hessian[n, :, n] for n in range(3)])
    torch.testing.assert_close(root @ root.mT, blocks)
    draws = likelihood.sample(f, 20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws @ draws.mT / 20_000, blocks, rtol=0, atol=0.1)


def test_fit_takes_the_likelihood_of_the_recipe() -> None:
    x, y = counts()
    network = nn.Linear(2, 1).double()
    result = fit(network, (x, y), poisson(), epochs=60, lr=0.03, validation=(x, y), progress=False)
    torch.testing.assert_close(
        network.weight.detach(), torch.tensor([[0.7, -0.4]]).double(), rtol=0, atol=0.1
    )
    last = result.history[-1]
    assert (last.accuracy, last.validation_accuracy, last.noise) == (None, None, None)
    with torch.no_grad():
        nll = -float(poisson().log_likelihood(network(x), y)) / 300
    assert last.validation_nll == pytest.approx(nll)
    assert result.log_evidence < -300 * last.nll
    with pytest.raises(ValueError, match=r"data: y has shape \(2, 2\).*\(2, 1\)"):
        fit(network, (x, x), poisson(), progress=False)


def test_evidence_with_the_likelihood_of_the_recipe_is_the_integral_over_the_weight() -> None:
    """One weight: the Laplace approximation against quadrature."""
    x, y = counts()
    x = x[:, :1]
    network = nn.Linear(1, 1, bias=False).double()
    likelihood, delta = poisson(), 2.0
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    log_joint = (x * y).sum() * grid - (grid[:, None] * x[:, 0]).exp().sum(1)
    log_joint += 0.5 * math.log(delta / (2 * math.pi)) - 0.5 * delta * grid**2
    log_joint -= torch.lgamma(y + 1).sum()
    with torch.no_grad():
        network.weight.fill_(float(grid[log_joint.argmax()]))
    evidence = Evidence(network, likelihood, Prior.from_network(network, precisions=delta))
    laplace = exact_evidence(evidence, (x, y), steps=0).log_evidence
    exact = float(log_joint.logsumexp(0)) + math.log(float(grid[1] - grid[0]))
    assert laplace == pytest.approx(exact, abs=0.01)
    # One Kronecker factor of the inputs, one of the outputs: their correlation is lost.
    evidence.collect((x, y))
    assert evidence.log_evidence == pytest.approx(exact, abs=0.5)


def test_predictions_with_the_likelihood_of_the_recipe() -> None:
    x, y = counts()
    network = nn.Linear(2, 1).double()
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[0.7, -0.4]]))
        network.bias.fill_(1.0)
    evidence = Evidence(network, poisson())
    evidence.collect((x, y))
    predictive = Predictive(evidence)
    f, covariance = predictive.latent(x)
    torch.testing.assert_close(predictive.mean(x, "map"), network(x).exp().detach())
    # A rate with a normal logarithm has the mean exp(f + σ²/2).
    mean = predictive.mean(x, samples=20_000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mean, (f + 0.5 * covariance[:, 0]).exp(), rtol=0.01, atol=0)
    plain = predictive.quality(x, y, "map")
    expected = torch.distributions.Poisson(network(x).exp().detach()).log_prob(y)  # type: ignore[no-untyped-call]
    assert plain.nll == pytest.approx(-float(expected.mean()))
    assert (plain.accuracy, plain.ece) == (None, None)
    assert predictive.quality(x, y, "mc").nll == pytest.approx(plain.nll, abs=0.02)
    with pytest.raises(TypeError, match="Poisson has none; use mean"):
        predictive.probabilities(x)
    with pytest.raises(TypeError, match="probit"):
        predictive.quality(x, y, "probit")


@pytest.mark.parametrize(
    ("likelihood", "y", "outputs", "message"),
    [
        (Categorical(), torch.tensor([0, 3]), (2, 3), "label 3 of example 8"),
        (Categorical(), torch.tensor([[0], [1]]), (2, 3), r"shape \(n,\)"),
        (Bernoulli(), torch.tensor([[0.0], [1.5]]), (2, 1), r"example 8 is outside \[0, 1\]"),
        (Bernoulli(), torch.zeros(2, 2), (2, 1), "one target per output"),
        (Gaussian(), torch.tensor([[math.nan], [0.0]]), (2, 1), "first in example 5"),
        (Gaussian(), torch.zeros(2), (2, 3), "one target per output"),
    ],
)
def test_targets_that_cannot_be_taken_are_refused(
    likelihood: Likelihood, y: Tensor, outputs: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        likelihood.check_targets(y, outputs, torch.tensor([5, 8]))


def test_other_parameters_of_a_likelihood_are_trained_with_the_weights() -> None:
    class Tempered(Categorical):
        """Logits divided by a learned temperature."""

        def __init__(self) -> None:
            super().__init__()
            self.log_temperature = nn.Parameter(torch.zeros(()))

        def log_likelihood(self, f: Tensor, y: Tensor) -> Tensor:
            return super().log_likelihood(f * (-self.log_temperature).exp().to(f), y)

    torch.manual_seed(0)
    x = torch.randn(60, 3)
    likelihood = Tempered()
    fit(nn.Linear(3, 3), (x, x.argmax(1)), likelihood, epochs=5, lr=0.05, progress=False)
    assert abs(float(likelihood.log_temperature.detach())) > 0.05
