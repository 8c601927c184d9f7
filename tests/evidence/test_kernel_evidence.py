"""The kernel-side evidence equals the one from all weights together, and bounds it in blocks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence import (
    Evidence,
    KernelEvidence,
    NonFiniteError,
    Prior,
    exact_evidence,
    kernel_evidence,
)
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian
from groupella.groups import GroupSet, flips, p4, trivial, z2
from groupella.nn.layer import ResidualPathway

Data = tuple[Tensor, Tensor]


class Twice(nn.Module):
    """One linear map used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        f: Tensor = self.outer(torch.tanh(self.inner(torch.tanh(self.inner(x)))))
        return f


def pathways(free: str, increments: bool, fibre: str = "regular") -> nn.Module:
    """Two layers of overlapping paths and a classifier."""
    groups = GroupSet(trivial(), z2(), p4(), flips())
    image = groups.space((4, 4), 1, "trivial")
    hidden = groups.space((4, 4), 1, fibre)
    options = {"free": free, "increments": increments, "init": "balanced"}
    return nn.Sequential(
        ResidualPathway(image, hidden, groups, **options),
        nn.Tanh(),
        ResidualPathway(hidden, image, groups, **options),
        nn.Flatten(),
        nn.Linear(image.size, 3),
    )


def problem(kind: str, n: int = 14) -> tuple[Evidence, Data]:
    torch.manual_seed(0)
    y: Tensor = torch.arange(n) % 3
    x = torch.randn(n, 1, 4, 4, dtype=torch.float64)
    likelihood: nn.Module = Categorical()
    if kind == "twice":
        network: nn.Module = Twice()
        x = torch.randn(n, 5, dtype=torch.float64)
    elif kind == "Bernoulli":
        network, likelihood = pathways("F-FC", True, "trivial"), Bernoulli()
        y = torch.randint(0, 2, (n, 3)).double()
    else:
        free, _, how = kind.partition(" ")
        network = pathways(free, how == "increments", "trivial" if free == "FC" else "regular")
    evidence = Evidence(network.double(), likelihood)
    with torch.no_grad():
        evidence.prior.log_precision.copy_(torch.linspace(-1, 2, len(evidence.prior)))
    return evidence, (x, y)


KINDS = ("FC overlapping", "FC increments", "F-FC overlapping", "F-FC increments")


@pytest.mark.parametrize("kind", [*KINDS, "twice", "Bernoulli"])
def test_equals_the_evidence_of_all_weights_together(kind: str) -> None:
    evidence, data = problem(kind)
    exact = exact_evidence(evidence, data, steps=0, left_out=0.0, largest=5000)
    found = kernel_evidence(evidence, data)
    assert exact.factored == ()
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-8)
    assert found.log_volume == pytest.approx(exact.log_volume, rel=1e-8)
    assert found.effective_parameters == pytest.approx(exact.effective_parameters, rel=1e-6)
    assert not found.is_bound


@pytest.mark.parametrize("block", [None, 4])
def test_gradient_is_that_of_differences(block: int | None) -> None:
    evidence, data = problem("F-FC overlapping", 6)
    found = kernel_evidence(evidence, data, block=block)
    for i, name in enumerate(evidence.prior.names):
        values = []
        for step in (1e-4, -2e-4):
            with torch.no_grad():
                evidence.prior.log_precision[i] += step
            values.append(kernel_evidence(evidence, data, block=block).log_evidence)
        with torch.no_grad():
            evidence.prior.log_precision[i] += 1e-4
        difference = (values[0] - values[1]) / 2e-4
        assert found.gradient[name] == pytest.approx(difference, rel=1e-4, abs=1e-5)


def test_precisions_are_those_of_the_exact_evidence() -> None:
    evidence, data = problem("F-FC increments")
    exact = exact_evidence(evidence, data, steps=60, left_out=0.0, largest=5000)
    found = kernel_evidence(evidence, data, steps=60)
    assert found.converged
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    assert found.log_evidence > kernel_evidence(evidence, data).log_evidence


@pytest.mark.parametrize("kind", ["F-FC overlapping", "twice"])
def test_blocks_give_lower_bounds_that_fall_as_they_are_split(kind: str) -> None:
    evidence, data = problem(kind, 16)
    values = [kernel_evidence(evidence, data, block=b) for b in (16, 8, 4, 1)]
    assert [v.is_bound for v in values] == [False, True, True, True]
    falling = [v.log_evidence for v in values]
    assert falling == sorted(falling, reverse=True)
    assert falling[0] == pytest.approx(kernel_evidence(evidence, data).log_evidence, rel=1e-12)
    assert falling[1] < falling[0] - 0.1


def test_blocks_that_share_nothing_lose_nothing() -> None:
    """Data with orthogonal inputs are independent, so splitting costs nothing."""
    model = nn.Linear(6, 2, bias=False).double()
    evidence = Evidence(model, Categorical())
    data = (torch.eye(6).double(), torch.arange(6) % 2)
    whole, single = (kernel_evidence(evidence, data, block=b) for b in (None, 1))
    assert single.log_evidence == pytest.approx(whole.log_evidence, rel=1e-12)


def test_order_of_the_data_does_not_matter() -> None:
    evidence, (x, y) = problem("F-FC overlapping")
    first = kernel_evidence(evidence, (x, y))
    second = kernel_evidence(evidence, (x.flip(0), y.flip(0)))
    assert second.log_evidence == pytest.approx(first.log_evidence, rel=1e-10)


def test_a_subset_stands_for_all_data() -> None:
    evidence, data = problem("twice", 20)
    exact = exact_evidence(evidence, data, subset=9, steps=0, left_out=0.0)
    found = kernel_evidence(evidence, data, subset=9)
    assert found.log_volume == pytest.approx(exact.log_volume, rel=1e-8)
    half = kernel_evidence(evidence, data, subset=10, block=5)
    assert half.is_bound
    assert half.log_volume == pytest.approx(
        kernel_evidence(evidence, data, block=5).log_volume, rel=0.2
    )


def regression(noise: float = 0.3) -> tuple[Evidence, Data]:
    """A linear model whose weights are anywhere."""
    torch.manual_seed(0)
    x = torch.randn(30, 4, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [0.0], [0.5]], dtype=torch.float64)
    y = y + noise * torch.randn(30, 1, dtype=torch.float64)
    likelihood = Gaussian(noise).double()
    model = nn.Linear(4, 1, bias=False).double()
    return Evidence(model, likelihood, Prior.from_network(model, precisions=0.7)), (x, y)


def closed_form(data: Data, delta: float, noise: float = 0.3) -> float:
    """log N(y | 0, σ² + x xᵀ/δ)."""
    x, y = data[0], data[1][:, 0]
    covariance = noise**2 * torch.eye(len(x), dtype=torch.float64) + x @ x.T / delta
    return -0.5 * float(
        y @ torch.linalg.solve(covariance, y) + torch.logdet(2 * math.pi * covariance)
    )


def test_linear_regression_has_its_closed_form_at_the_map() -> None:
    evidence, (x, y) = regression()
    hessian = x.T @ x / 0.09 + 0.7 * torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        next(evidence.network.parameters()).copy_(torch.linalg.solve(hessian, x.T @ y / 0.09).T)
    found = kernel_evidence(evidence, (x, y))
    assert found.log_evidence == pytest.approx(closed_form((x, y), 0.7), rel=1e-8)


def test_linearised_evidence_of_linear_regression_does_not_depend_on_the_weights() -> None:
    evidence, data = regression()
    wrong = closed_form(data, 0.7) - kernel_evidence(evidence, data).log_evidence
    assert wrong > 10
    found = kernel_evidence(evidence, data, linearised=True)
    assert found.log_evidence == pytest.approx(closed_form(data, 0.7), rel=1e-8)
    best = kernel_evidence(evidence, data, linearised=True, steps=50)
    (delta,) = best.precisions.values()
    assert best.log_evidence == pytest.approx(closed_form(data, delta), rel=1e-8)
    for other in (0.8 * delta, 1.25 * delta):
        assert closed_form(data, other) < best.log_evidence + 1e-2


def test_linearised_evidence_of_a_classifier_is_that_at_its_map() -> None:
    torch.manual_seed(1)
    model = nn.Linear(3, 4).double()
    x, y = torch.randn(40, 3, dtype=torch.float64), torch.randint(4, (40,))
    evidence = Evidence(model, Categorical(), Prior.from_network(model, precisions=0.5))
    away = kernel_evidence(evidence, (x, y), linearised=True)
    assert kernel_evidence(evidence, (x, y)).log_evidence < away.log_evidence - 1
    optimiser = torch.optim.LBFGS(
        model.parameters(), max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = 40 * evidence.loss(model(x), y, 40)
        loss.backward()
        return loss

    optimiser.step(closure)
    here = kernel_evidence(evidence, (x, y))
    assert away.log_evidence == pytest.approx(here.log_evidence, abs=1e-5)
    assert away.penalty == pytest.approx(here.penalty, rel=1e-3)


def test_constants_and_paths_taken_out_have_no_kernel() -> None:
    evidence, data = problem("F-FC overlapping")
    names = [g.name for g in evidence.prior.of_path("0", "p4")]
    evidence.prior.take_out(evidence.network, names)
    found = kernel_evidence(evidence, data)
    exact = exact_evidence(evidence, data, steps=0, left_out=0.0, largest=5000)
    assert not set(names) & set(found.precisions)
    assert found.log_evidence == pytest.approx(exact.log_evidence, rel=1e-8)


def test_the_network_and_the_prior_stay_as_they_are() -> None:
    evidence, data = problem("twice")
    evidence.network.train()
    before = evidence.prior.precisions.clone()
    found = kernel_evidence(evidence, data, steps=5)
    assert isinstance(found, KernelEvidence)
    assert evidence.network.training
    assert torch.equal(evidence.prior.precisions, before)
    assert all(p.grad is None for p in evidence.network.parameters())


def test_what_it_cannot_do_is_said_first() -> None:
    evidence, (x, y) = problem("twice")
    with pytest.raises(ValueError, match="block must be at least 1"):
        kernel_evidence(evidence, (x, y), block=0)
    with pytest.raises(ValueError, match="needs all data in one block"):
        kernel_evidence(evidence, (x, y), block=3, linearised=True)
    many = (x.repeat(1000, 1), y.repeat(1000))
    with pytest.raises(ValueError, match=r"would take \d+ GiB for 4 groups; choose a smaller"):
        kernel_evidence(evidence, many)
    evidence.network.register_parameter("unused", nn.Parameter(torch.zeros(2)))
    with pytest.raises(ValueError, match=r"do not depend on the parameter\(s\) unused"):
        kernel_evidence(Evidence(evidence.network, Categorical()), (x, y))


def test_outputs_that_overflow_are_named() -> None:
    evidence, (x, y) = problem("twice")
    with torch.no_grad():
        next(evidence.network.parameters()).fill_(math.inf)
    with pytest.raises(NonFiniteError):
        kernel_evidence(evidence, (x, y))
