"""The exact evidence against closed forms and against dense Jacobians of torch.func."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from groupella.evidence import Evidence, Prior, exact_evidence
from groupella.groups import GroupSet, flips, p4, z2
from groupella.layer import ResidualPathway
from groupella.likelihoods import Categorical, Gaussian


def regression() -> tuple[nn.Module, Gaussian, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(30, 4, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [0.0], [0.5]], dtype=torch.float64)
    y = y + 0.3 * torch.randn(30, 1, dtype=torch.float64)
    likelihood = Gaussian().double()
    with torch.no_grad():
        likelihood.log_noise.fill_(math.log(0.3))
    return nn.Linear(4, 1, bias=False).double(), likelihood, x, y


@pytest.mark.parametrize("delta", [0.01, 1.0, 300.0])
def test_equals_the_marginal_likelihood_of_linear_regression(delta: float) -> None:
    model, likelihood, x, y = regression()
    hessian = x.T @ x / 0.09 + delta * torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.linalg.solve(hessian, x.T @ y / 0.09).T)
    evidence = Evidence(model, likelihood, Prior.from_network(model, precisions=delta))
    found = exact_evidence(evidence, (x, y), steps=0)
    covariance = 0.09 * torch.eye(30, dtype=torch.float64) + x @ x.T / delta
    quadratic = (y[:, 0] * torch.linalg.solve(covariance, y[:, 0])).sum()
    exact = -0.5 * float(quadratic + torch.logdet(2 * math.pi * covariance))
    assert found.log_evidence == pytest.approx(exact, abs=1e-9)
    assert found.factored == ()


def network() -> tuple[nn.Module, Tensor, Tensor]:
    """A layer with four paths and a classifier, none of them trained."""
    torch.manual_seed(1)
    groups = GroupSet(z2(), p4(), flips())
    layer = ResidualPathway(
        groups.space((4, 4), 1, "trivial"), groups.space((4, 4), 1), groups, init="balanced"
    )
    whole = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(layer.space_out.size, 3))
    return whole.double(), torch.randn(12, 1, 4, 4, dtype=torch.float64), torch.arange(12) % 3


def dense_curvature(whole: nn.Module, x: Tensor, names: list[str]) -> Tensor:
    """Σ Jᵀ (diag p − p pᵀ) J with the Jacobians of torch.func."""
    parameters = {n: p.detach() for n, p in whole.named_parameters()}
    rest = {n: p for n, p in parameters.items() if n not in names}
    total: Tensor | float = 0.0
    for one in x:

        def outputs(chosen: dict[str, Tensor], one: Tensor = one) -> Tensor:
            f: Tensor = functional_call(whole, {**rest, **chosen}, (one[None],))[0]
            return f

        chosen = {n: parameters[n] for n in names}
        jacobians = jacrev(outputs)(chosen)
        j = torch.cat([jacobians[n].reshape(3, -1) for n in names], 1)
        p = outputs(chosen).softmax(0)
        total = total + j.T @ (torch.diag(p) - torch.outer(p, p)) @ j
    assert isinstance(total, Tensor)
    return total


def test_equals_the_dense_formula_for_a_layer_of_paths_and_a_classifier() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    with torch.no_grad():
        evidence.prior.log_precision.copy_(torch.linspace(-1, 2, len(evidence.prior)))
    found = exact_evidence(evidence, (x, y), steps=0)
    names = [n for n, _ in whole.named_parameters()]
    deltas = evidence.prior.precision_of_parameters()
    numel = {n: p.numel() for n, p in whole.named_parameters()}
    d = torch.cat([torch.full((numel[n],), deltas[n], dtype=torch.float64) for n in names])
    h = dense_curvature(whole, x, names)
    volume = -0.5 * float(torch.logdet(torch.eye(len(d)).double() + h / d[:, None]))
    assert found.log_volume == pytest.approx(volume, abs=1e-8)
    weights = torch.cat([p.detach().flatten() for p in whole.parameters()])
    assert found.penalty == pytest.approx(0.5 * float((d * weights.square()).sum()), abs=1e-9)
    likelihood = -float(nn.functional.cross_entropy(whole(x).detach(), y, reduction="sum"))
    assert found.log_likelihood == pytest.approx(likelihood, abs=1e-9)
    gammas = 1 - torch.linalg.inv(torch.eye(len(d)).double() + h / d[:, None]).diagonal()
    assert sum(found.effective_parameters.values()) == pytest.approx(float(gammas.sum()), abs=1e-7)


def test_the_precisions_are_those_of_highest_evidence() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    before = evidence.prior.precisions.clone()
    best = exact_evidence(evidence, (x, y), steps=60)
    torch.testing.assert_close(evidence.prior.precisions, before)
    for name in evidence.prior.names:
        for factor in (0.7, 1.4):
            for other, value in best.precisions.items():
                evidence.prior.set_precision(other, value * (factor if other == name else 1.0))
            moved = exact_evidence(evidence, (x, y), steps=0)
            assert moved.log_evidence < best.log_evidence + 1e-6


def test_large_groups_stay_with_their_kronecker_blocks() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    sizes = {g.name: g.size for g in evidence.prior}
    limit = sorted(sizes.values())[-2]
    with pytest.raises(RuntimeError, match=r"more than largest=.*collect"):
        exact_evidence(evidence, (x, y), largest=limit)
    evidence.collect((x, y))
    found = exact_evidence(evidence, (x, y), largest=limit, steps=0)
    (large,) = found.factored
    assert sizes[large] > limit
    factored = {t.name: t for t in evidence.report().terms}[large]
    names = [n for g in evidence.prior if g.name != large for n in g.parameters]
    deltas = evidence.prior.precision_of_parameters()
    numel = {n: p.numel() for n, p in whole.named_parameters()}
    d = torch.cat([torch.full((numel[n],), deltas[n], dtype=torch.float64) for n in names])
    h = dense_curvature(whole, x, names)
    volume = -0.5 * float(torch.logdet(torch.eye(len(d)).double() + h / d[:, None]))
    assert found.log_volume == pytest.approx(volume + factored.log_volume, abs=1e-8)
    assert found.effective_parameters[large] == pytest.approx(factored.effective_parameters)


def test_what_was_taken_out_has_no_curvature() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    names = [g.name for g in evidence.prior.of_path("0", "p4")]
    evidence.prior.take_out(whole, names)
    found = exact_evidence(evidence, (x, y))
    assert names
    assert not set(names) & set(found.precisions)
    assert math.isfinite(found.log_evidence)


def test_a_subset_stands_for_all_data() -> None:
    whole, x, y = network()
    doubled = (torch.cat([x, x]), torch.cat([y, y]))
    evidence = Evidence(whole, Categorical())
    alone = exact_evidence(evidence, doubled, steps=0)
    for seed in range(50):
        chosen = torch.randperm(24, generator=torch.Generator().manual_seed(seed))[:23]
        if len(set((chosen % 12).tolist())) == 12:
            break
    part = exact_evidence(evidence, doubled, subset=23, seed=seed, steps=0)
    assert part.log_likelihood == alone.log_likelihood
    assert part.log_volume == pytest.approx(alone.log_volume, rel=0.05)
    assert part.log_volume != alone.log_volume


def unused() -> nn.Module:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.other = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            f: Tensor = self.used(x)
            return f

    return Unused()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Linear(4, 6000), "exact curvature of .* weights together would take 7 GB"),
        (unused, "other.weight is not the weight of a linear map that the network uses"),
    ],
)
def test_what_it_cannot_do_is_said_first(make: Callable[[], nn.Module], message: str) -> None:
    evidence = Evidence(make(), Categorical())
    with pytest.raises(ValueError, match=message):
        exact_evidence(evidence, (torch.randn(3, 4), torch.tensor([0, 1, 1])), largest=10**6)
