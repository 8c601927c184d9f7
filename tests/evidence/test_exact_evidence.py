"""The exact evidence against closed forms and against dense Jacobians of torch.func."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

from groupella.evidence import Evidence, NonFiniteError, Prior, exact_evidence
from groupella.evidence.likelihoods import Categorical, Gaussian
from groupella.groups import GroupSet, flips, p4, z2
from groupella.nn.layer import ResidualPathway


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


def dense_volume(evidence: Evidence, x: Tensor, names: list[str]) -> float:
    """−½ log |1 + D⁻¹ H| of the named parameters."""
    deltas = evidence.prior.precision_of_parameters()
    numel = {n: p.numel() for n, p in evidence.network.named_parameters()}
    d = torch.cat([torch.full((numel[n],), deltas[n], dtype=torch.float64) for n in names])
    h = dense_curvature(evidence.network, x, names)
    return -0.5 * float(torch.logdet(torch.eye(len(d)).double() + h / d[:, None]))


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
    volume = dense_volume(evidence, x, names)
    assert found.log_volume == pytest.approx(volume + factored.log_volume, abs=1e-8)
    assert found.effective_parameters[large] == pytest.approx(factored.effective_parameters)


def test_all_groups_may_be_large() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    evidence.collect((x, y))
    found = exact_evidence(evidence, (x, y), largest=0, steps=0)
    report = evidence.report()
    assert found.log_evidence == pytest.approx(report.log_marginal_likelihood, abs=1e-9)
    assert set(found.factored) == set(evidence.prior.names)


def test_what_was_taken_out_has_no_curvature() -> None:
    whole, x, y = network()
    evidence = Evidence(whole, Categorical())
    names = [g.name for g in evidence.prior.of_path("0", "p4")]
    evidence.prior.take_out(whole, names)
    found = exact_evidence(evidence, (x, y), steps=0)
    assert names
    assert not set(names) & set(found.precisions)
    left = [n for n, p in whole.named_parameters() if p.requires_grad]
    assert found.log_volume == pytest.approx(dense_volume(evidence, x, left), abs=1e-8)


def test_parameters_without_gradient_are_constants() -> None:
    whole, x, y = network()
    prior = Prior.from_network(whole)
    weight = dict(whole.named_parameters())["3.weight"].requires_grad_(False)
    evidence = Evidence(whole, Categorical(), prior)
    found = exact_evidence(evidence, (x, y), steps=0)
    trained = [n for n, p in whole.named_parameters() if p.requires_grad]
    assert found.log_volume == pytest.approx(dense_volume(evidence, x, trained), abs=1e-8)
    squares = float(weight.square().sum()) * prior.precision("3")
    assert found.penalty == pytest.approx(float(prior.penalty(whole).detach()) - 0.5 * squares)


@pytest.mark.parametrize("delta", [1e-4, 1.0, 1e6])
def test_the_best_precisions_do_not_depend_on_where_they_start(delta: float) -> None:
    model, likelihood, x, y = regression()
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(x, y).solution.T)
    evidence = Evidence(model, likelihood, Prior.from_network(model, precisions=delta))
    found = exact_evidence(evidence, (x, y), steps=40)
    assert found.converged
    values = torch.linalg.eigvalsh(x.T @ x / 0.09)
    (best,) = found.precisions.values()
    gamma = float((values / (values + best)).sum())
    assert best == pytest.approx(gamma / float(model.weight.detach().square().sum()), rel=0.1)
    assert not exact_evidence(evidence, (x, y), steps=0).converged or delta == 1.0


def test_weights_that_are_nearly_zero_cost_nothing() -> None:
    model, likelihood, x, y = regression()
    with torch.no_grad():
        model.weight.fill_(1e-12)
    evidence = Evidence(model, likelihood, Prior.from_network(model, precisions=1e12))
    found = exact_evidence(evidence, (1e-6 * x, y))
    assert found.log_evidence == pytest.approx(found.log_likelihood, abs=1e-6)


def test_single_precision_is_enough_for_a_network_with_large_curvature() -> None:
    torch.manual_seed(0)
    single = nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 5), nn.Dropout(0.5))
    x, y = torch.randn(60, 6), torch.randn(60, 5)
    values = []
    for dtype in (torch.float32, torch.float64):
        whole, likelihood = single.to(dtype), Gaussian().to(dtype)
        with torch.no_grad():
            likelihood.log_noise.fill_(math.log(0.01))
        evidence = Evidence(whole, likelihood, Prior.from_network(whole, precisions=0.01))
        whole.train()
        values.append(exact_evidence(evidence, (x.to(dtype), y.to(dtype)), steps=0).log_volume)
        assert whole.training
    assert values[0] == pytest.approx(values[1], rel=1e-4)


def test_a_subset_stands_for_all_data() -> None:
    whole, x, y = network()
    doubled = (torch.cat([x, x]), torch.cat([y, y]))
    evidence = Evidence(whole, Categorical())
    alone = exact_evidence(evidence, doubled, steps=0)
    part = exact_evidence(evidence, doubled, subset=23, steps=0)
    assert part.log_likelihood == alone.log_likelihood
    assert part.log_volume == pytest.approx(alone.log_volume, rel=0.05)
    assert part.log_volume != alone.log_volume
    with pytest.raises(ValueError, match="subset must be at least 1"):
        exact_evidence(evidence, doubled, subset=0)


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
        (lambda: nn.Linear(4, 6000), "exact curvature of .* weights together would take 29 GB"),
        (unused, r"do not depend on the parameter\(s\) other.bias, other.weight"),
    ],
)
def test_what_it_cannot_do_is_said_first(make: Callable[[], nn.Module], message: str) -> None:
    evidence = Evidence(make(), Categorical())
    with pytest.raises(ValueError, match=message):
        exact_evidence(evidence, (torch.randn(3, 4), torch.tensor([0, 1, 1])), largest=10**6)


def sure_of_some() -> tuple[Evidence, Tensor, Tensor]:
    """Twenty classes; of some data the network is nearly certain, of one entirely."""
    torch.manual_seed(2)
    model = nn.Linear(3, 20).double()
    x = torch.randn(30, 3, dtype=torch.float64) * torch.linspace(0, 12, 30).double()[:, None]
    x[-1] *= 1e4
    return Evidence(model, Categorical()), x, torch.arange(30) % 20


def many_classes_volume(evidence: Evidence, x: Tensor) -> float:
    """−½ log |1 + H|, from the Kronecker form x xᵀ ⊗ Λ that each datum has in a linear model."""
    p = evidence.network(x).detach().softmax(1)
    inputs = torch.cat([x, torch.ones(len(x), 1).double()], 1)
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    h = torch.einsum("nab,ni,nj->aibj", curvature, inputs, inputs).reshape(80, 80)
    return -0.5 * float(torch.logdet(torch.eye(80).double() + h))


def test_all_directions_of_the_outputs_count_where_none_is_left_out() -> None:
    evidence, x, y = sure_of_some()
    found = exact_evidence(evidence, (x, y), steps=0, left_out=0.0)
    assert found.log_volume == pytest.approx(many_classes_volume(evidence, x), abs=1e-8)


def test_what_is_left_out_by_default_is_small_and_never_adds() -> None:
    evidence, x, y = sure_of_some()
    exact = many_classes_volume(evidence, x)
    volumes = [
        exact_evidence(evidence, (x, y), steps=0, left_out=share).log_volume - exact
        for share in (0.0, 1e-5, 1e-2, 0.5)
    ]
    assert volumes == sorted(volumes)
    assert 0 < volumes[1] < 0.05 < volumes[2]


def test_many_data_that_are_nearly_certain_count_together() -> None:
    """Each of them is next to nothing beside the one that the network knows nothing of."""
    torch.manual_seed(3)
    model = nn.Linear(4, 3, bias=False).double()
    x = 12 * torch.nn.functional.one_hot(torch.randint(3, (5000,)), 4).double()
    x[0] = 0.0
    with torch.no_grad():
        model.weight.copy_(torch.eye(3, 4))
    evidence = Evidence(model, Categorical(), Prior.from_network(model, precisions=1e-3))
    y = x.argmax(1)
    every, most = (
        exact_evidence(evidence, (x, y), steps=0, left_out=share).log_volume
        for share in (0.0, 1e-5)
    )
    assert every < -1
    assert most == pytest.approx(every, abs=1e-3)


@pytest.mark.parametrize("share", [-1e-9, 1.0, math.nan])
def test_a_share_is_at_least_zero_and_below_one(share: float) -> None:
    evidence, x, y = sure_of_some()
    with pytest.raises(ValueError, match="left_out must be at least 0 and below 1"):
        exact_evidence(evidence, (x, y), left_out=share)


def test_outputs_that_overflow_are_named() -> None:
    evidence, x, y = sure_of_some()
    x[3] = math.inf
    with pytest.raises(NonFiniteError, match="outputs of the network"):
        exact_evidence(evidence, (x, y))
