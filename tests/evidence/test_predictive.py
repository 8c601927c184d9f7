"""Predictions against the exact posterior of linear models, and against dense Jacobians."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from groupella._schema import parse_json, write_json
from groupella.evidence import (
    Evidence,
    ExactPosterior,
    Predictive,
    Prior,
    calibration_error,
    reliability,
    restored,
    stored,
)
from groupella.evidence._tails import fitted_tails, tail_quantile
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian, likelihood_of


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


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli()])
def test_variance_is_that_of_what_the_likelihood_sees(likelihood: Categorical | Bernoulli) -> None:
    torch.manual_seed(1)
    x = torch.randn(12, 3, dtype=torch.float64)
    network = nn.Linear(3, 5).double()
    evidence = Evidence(network, likelihood, Prior.from_network(network, precisions=0.8))
    y = torch.arange(12) % 5
    classes = isinstance(likelihood, Categorical)
    evidence.collect((x, y if classes else torch.eye(5).double()[y]))
    predictive = Predictive(evidence)
    _, covariance = predictive.latent(x)
    seen = torch.eye(5).double()
    if classes:
        seen = seen - 1 / 5  # the sum of all logits changes nothing
    each = (seen @ covariance @ seen).diagonal(dim1=1, dim2=2) / seen.diagonal() ** 2
    torch.testing.assert_close(predictive.variance(x), each.mean(1), rtol=1e-10, atol=1e-12)


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


def test_probit_of_two_classes_matches_the_integral_whatever_their_common_shift() -> None:
    """Two logits are one binary logit, f₁ − f₀; what both have in common must not count."""
    torch.manual_seed(3)
    x = torch.randn(30, 2, dtype=torch.float64)
    network = nn.Linear(2, 2).double()
    prior = Prior.from_network(network, precisions={"weight": 0.5, "bias": 1e-4})
    evidence = Evidence(network, Categorical(), prior)
    predictive = Predictive(evidence, ExactPosterior(evidence, x), scale=1.0)
    f, covariance = predictive.latent(x)
    assert float(covariance.diagonal(dim1=1, dim2=2).min()) > 1000  # mostly the common shift
    d = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    spread = torch.einsum("k,nkl,l->n", d, covariance, d).sqrt()[:, None]
    grid = torch.linspace(-8, 8, 4001, dtype=torch.float64)
    density = torch.exp(-0.5 * grid**2) / math.sqrt(2 * math.pi)
    integral = torch.trapezoid(torch.sigmoid((f @ d)[:, None] + spread * grid) * density, grid)
    for method in ("probit", "mc", None):
        found = predictive.probabilities(x, method)[:, 1]
        torch.testing.assert_close(found, integral, rtol=0, atol=0.02)
    with torch.no_grad():
        network.bias.add_(40.0)
    torch.testing.assert_close(
        predictive.probabilities(x, "probit")[:, 1], found, rtol=0, atol=0.02
    )


def test_predictions_depend_on_the_input_alone() -> None:
    evidence, x, _ = classifier()
    predictive = Predictive(evidence, scale=0.5)
    together, apart = predictive.probabilities(x), predictive.probabilities(x[7:9])
    torch.testing.assert_close(together[7:9], apart, rtol=1e-5, atol=1e-6)
    random = predictive.probabilities(x, generator=torch.Generator().manual_seed(0), samples=4000)
    torch.testing.assert_close(together, random, rtol=0, atol=0.03)


def test_without_a_scale_classes_are_predicted_by_the_weights_alone() -> None:
    evidence, x, y = classifier()
    predictive = Predictive(evidence)
    torch.testing.assert_close(predictive.probabilities(x), predictive.probabilities(x, "map"))
    assert predictive.quality(x, y) == predictive.quality(x, y, "map")
    nothing = Predictive(evidence, scale=0.0)
    torch.testing.assert_close(nothing.probabilities(x), predictive.probabilities(x, "map"))
    for bad in (-1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="scale"):
            Predictive(evidence, scale=bad)


def test_a_temperature_is_the_best_one_and_only_where_it_surely_helps() -> None:
    evidence, x, y = classifier()
    wrong = torch.where(torch.rand(40, generator=torch.Generator().manual_seed(0)) < 0.4, 0, y)
    for weights, labels in ((20.0, wrong), (0.1, wrong)):
        with torch.no_grad():
            for parameter in evidence.network.parameters():
                parameter.copy_(torch.randn(parameter.shape) * weights / parameter.shape[-1] ** 0.5)
        evidence.collect((x, y))
        found = Predictive(evidence).calibrated(x, labels)
        logits = evidence.network(x).detach().double()
        tried = torch.logspace(0, 3, 3001, dtype=torch.float64)
        losses = [float(nn.functional.cross_entropy(logits / t, labels)) for t in tried]
        best = float(tried[int(torch.tensor(losses).argmin())]) if weights > 1 else 1.0
        assert found.temperature == pytest.approx(best, rel=0.02)
        assert found.quality(x, labels).nll <= losses[0] + 0.002


def test_usual_inputs_are_predicted_as_by_the_weights_and_strange_ones_less_surely() -> None:
    evidence, x, _ = classifier()
    found = Predictive(evidence).calibrated(x, evidence.network(x).argmax(1))
    assert (found.scale, found.temperature) == (None, 1.0)
    both = torch.cat([x, 2 * x])
    p, plain = found.probabilities(both), found.probabilities(both, "map")
    _, covariance = found.latent(both)
    centre = torch.eye(3, dtype=torch.float64) - 1 / 3  # the sum of logits is not seen
    variance = (centre @ covariance @ centre).diagonal(dim1=1, dim2=2).mean(1) / (2 / 3) ** 2
    usual = float(variance[:40].quantile(0.95))
    softer = (1 + math.pi / 8 * (variance / usual - 1).clamp(min=0)).sqrt()[:, None]
    wanted = (evidence.network(both).detach().double() / softer).softmax(1)
    torch.testing.assert_close(p, wanted, rtol=1e-5, atol=1e-6)
    assert int((p[:40] - plain[:40]).abs().amax(1).gt(1e-9).sum()) == 2  # of 40, above 95 %
    stranger = variance > usual
    assert int(stranger[40:].sum()) > 2
    assert bool((p[stranger].amax(1) < plain[stranger].amax(1)).all())
    with pytest.raises(ValueError, match=r"call calibrated\(x, y\)"):
        Predictive(evidence).probabilities(x, "calibrated")


@pytest.mark.parametrize("kind", ["classes", "regression"])
def test_stored_predictions_come_back_through_json(kind: str) -> None:
    if kind == "classes":
        evidence, x, y = classifier()
        found = Predictive(evidence).calibrated(x, y)
    else:
        evidence, (x, y), _ = regression(0)
        found = Predictive(evidence).calibrated(x, y)
    tensors, values = stored(found)
    again = restored(evidence.network, likelihood_of(kind), tensors, parse_json(write_json(values)))
    far = torch.cat([x, 3 * x])
    if kind == "classes":
        torch.testing.assert_close(again.probabilities(far), found.probabilities(far))
    else:
        for one, other in zip(again.interval(far), found.interval(far), strict=True):
            torch.testing.assert_close(one, other)
    assert again.quality(x, y) == found.quality(x, y)
    if kind == "regression":  # a file of an older version: Gaussian intervals, as it had
        del tensors["tails"]
        old = restored(evidence.network, likelihood_of(kind), tensors, values)
        mean, variance = found.normal(far)
        _, high = old.interval(far, 0.9)
        expected = mean + stats.norm.ppf(0.95) * variance[:, :, 0].sqrt()
        torch.testing.assert_close(high, expected)
    exact = Predictive(evidence, ExactPosterior(evidence, x))
    with pytest.raises(TypeError, match="ExactPosterior"):
        stored(exact)


FORGED = {
    "another network": lambda tensors, values: values["parameters"].update(
        {"9.weight": values["parameters"].pop("0.weight")}
    ),
    "another shape": lambda tensors, values: values["parameters"]["0.weight"].update(shape=[2, 2]),
    "a precision below zero": lambda tensors, values: values["parameters"]["0.weight"].update(
        precision=-1.0
    ),
    "no data": lambda tensors, values: values["parameters"]["0.weight"].update(count=0.0),
    "text": lambda tensors, values: values.update(usual="much"),
    "an endless temperature": lambda tensors, values: values.update(temperature="inf"),
    "a scale below zero": lambda tensors, values: values.update(scale=-1.0),
    "no factor": lambda tensors, values: tensors.pop("0.weight/output"),
    "a factor of NaN": lambda tensors, values: tensors.update(
        {"0.weight/output": tensors["0.weight/output"] * math.nan}
    ),
    "a factor of another size": lambda tensors, values: tensors.update(
        {"0.weight/output": torch.ones(1, 5, 5)}
    ),
    "tails of NaN": lambda tensors, values: tensors.update(tails=torch.full((2, 1), math.nan)),
    "tails below zero": lambda tensors, values: tensors.update(tails=-torch.ones(2, 1)),
    "a scale without end": lambda tensors, values: tensors.update(
        tails=torch.full((2, 1), math.inf)
    ),
    "three tails": lambda tensors, values: tensors.update(tails=torch.ones(3, 1)),
    "no tails": lambda tensors, values: tensors.update(tails=torch.empty(2, 0)),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_predictions_are_refused_in_one_line(name: str) -> None:
    evidence, x, y = classifier()
    tensors, values = stored(Predictive(evidence).calibrated(x, y))
    values = parse_json(write_json(values))
    FORGED[name](tensors, values)
    with pytest.raises(ValueError, match=r".") as caught:
        restored(evidence.network, Categorical(), tensors, values)
    assert "\n" not in str(caught.value)


def regression(seed: int) -> tuple[Evidence, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A small network that has learned its noise and precisions, its data, and new data."""
    torch.manual_seed(seed)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        x = 4 * torch.rand(n, 1) - 2
        return x, torch.sin(2 * x) + 0.3 * torch.randn(n, 1)

    network = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    evidence = Evidence(network, Gaussian())
    data, new = draw(100), draw(2000)
    optimiser = torch.optim.Adam(network.parameters(), lr=0.02)
    for step in range(400):
        optimiser.zero_grad()
        evidence.loss(network(data[0]), data[1], 100).backward()
        optimiser.step()
        if step >= 100 and step % 50 == 0:
            evidence.update(data)
    evidence.update(data)
    return evidence, data, new


def test_intervals_cover_as_often_as_they_say() -> None:
    """Averaged over data sets: 100 examples leave 7 % of doubt about the noise of each."""
    covered: dict[tuple[str, float], list[float]] = {}
    for seed in range(3):
        evidence, data, (x, y) = regression(seed)
        for name, posterior in (("kronecker", None), ("exact", ExactPosterior(evidence, data[0]))):
            predictive = Predictive(evidence, posterior)
            for level in (0.5, 0.9):
                low, high = predictive.interval(x, level)
                inside = ((low <= y) & (y <= high)).double().mean()
                covered.setdefault((name, level), []).append(float(inside))
            calibrated = predictive.calibrated(x[:1000], y[:1000])
            worse = calibrated.quality(x, y).nll - predictive.quality(x, y).nll
            assert worse <= 0.01
            for level in (0.5, 0.9):
                low, high = calibrated.interval(x, level)
                inside = float(((low <= y) & (y <= high)).double().mean())
                assert abs(inside - level) < 0.05, (seed, name, level)  # of every data set
    for (_, level), shares in covered.items():
        assert abs(sum(shares) / len(shares) - level) < 0.05
    with pytest.raises(ValueError, match="level"):
        predictive.interval(x, 90)


def heavy_tailed(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two targets, linear in x; noise of t with 2.5 degrees of freedom, of sizes 1 and 5."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = x @ [[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]] + rng.standard_t(2.5, size=(n, 2)) * [1.0, 5.0]
    return torch.tensor(x), torch.tensor(y)


@pytest.mark.parametrize("n", [200, 3000])
def test_intervals_cover_as_often_as_they_say_under_heavy_tails(n: int) -> None:
    train, held, (x, y) = (heavy_tailed(k, s) for s, k in enumerate((200, n, 4000)))
    network = nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        network.weight.copy_(torch.linalg.lstsq(*train).solution.T)
    likelihood = Gaussian().double()
    with torch.no_grad():
        residual = train[1] - network(train[0])
        likelihood.log_noise.fill_(float(residual.std().log()))
    evidence = Evidence(network, likelihood)
    evidence.update(train)
    predictive = Predictive(evidence).calibrated(*held)
    for level in (0.5, 0.9):
        low, high = predictive.interval(x, level)
        covered = ((low <= y) & (y <= high)).double().mean(0)
        # Three standard deviations of the quantile of n data, and of the mean of 4,000.
        doubt = 3 * math.sqrt(level * (1 - level) * (1 / n + 1 / 4000))
        assert torch.all((covered - level).abs() < doubt), (level, covered)
        mean, covariance = predictive.normal(x)
        gaussian = stats.norm.ppf(0.5 + level / 2) * covariance.diagonal(dim1=1, dim2=2).sqrt()
        fooled = ((y - mean).abs() <= gaussian).double().mean(0)
        assert torch.all((fooled - level).abs() > 0.03), (level, fooled)
    if n == 3000:  # the quantile of the noise itself, from the tables of t
        wanted = stats.t.ppf(0.95, 2.5) * torch.tensor([1.0, 5.0], dtype=torch.float64)
        torch.testing.assert_close((high - low).mean(0) / 2, wanted, rtol=0.1, atol=0)


@pytest.mark.parametrize("degrees", [2.5, 5.0, math.inf])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_cover_new_data_whatever_the_tails(degrees: float, level: float) -> None:
    """The probability given 200 residuals of t noise, over 200 draws of them, by scipy's t."""
    rng = np.random.default_rng(0)
    noise = stats.norm() if degrees == math.inf else stats.t(degrees)
    draws = 3.0 * torch.tensor(np.abs(noise.rvs((200, 200), random_state=rng)))
    quantile = tail_quantile(fitted_tails(draws), level) / 3.0
    covered = 2 * noise.cdf(quantile.numpy()) - 1
    assert covered.mean() == pytest.approx(level, abs=0.02)
    # Surer than the quantile of the 200 residuals themselves.
    assert covered.std() < math.sqrt(level * (1 - level) / 200)


def test_tails_are_two_numbers_however_many_residuals() -> None:
    rng = np.random.default_rng(0)
    tails = fitted_tails(torch.tensor(np.abs(stats.t(3).rvs((20_000, 1), random_state=rng))))
    assert tails.shape == (2, 1)
    for level in (0.5, 0.9, 0.99):
        wanted = stats.t(3).ppf(0.5 + level / 2)
        assert float(tail_quantile(tails, level)) == pytest.approx(wanted, rel=0.05)


def test_residuals_of_a_perfect_network_and_few_ones() -> None:
    perfect = tail_quantile(fitted_tails(torch.zeros(50, 1)), 0.9)
    assert 0 <= float(perfect) < 1e-200
    few = tail_quantile(fitted_tails(torch.tensor([[1.0], [2.0]])), 0.9)  # too few for a t
    assert float(few) == pytest.approx(stats.norm.ppf(0.95) * math.sqrt(2.5))


def test_reliability_of_known_cases() -> None:
    p = torch.tensor([[0.9, 0.1], [0.95, 0.05], [0.41, 0.59], [0.42, 0.58]])
    found = reliability(p, torch.tensor([0, 1, 1, 1]), bins=5)
    assert found.count == (2, 2)
    assert found.confidence == pytest.approx((0.585, 0.925))
    assert found.accuracy == pytest.approx((1.0, 0.5))
    assert found.error == pytest.approx(0.5 * (0.415 + 0.425))


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
