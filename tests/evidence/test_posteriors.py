"""Posteriors against dense matrices written out with torch.func."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import groupella.evidence._posterior as module
from groupella.evidence import Evidence, ExactPosterior, KroneckerPosterior, Predictive, Prior
from groupella.evidence.likelihoods import Categorical, Gaussian


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 3),
    ).double()


def jacobian(model: nn.Module, x: Tensor, names: list[str]) -> Tensor:
    """(N, K, weights), in the order of `names`."""
    chosen = {n: p.detach() for n, p in model.named_parameters() if n in names}
    found = jacrev(lambda some: functional_call(model, some, (x,)))(chosen)
    return torch.cat([found[n].flatten(2) for n in names], 2)


def dense(
    model: nn.Module, x: Tensor, new: Tensor, precisions: dict[str, float]
) -> tuple[Tensor, Tensor]:
    """J (Σ Jᵀ Λ J + D)⁻¹ Jᵀ at new inputs, all correlations included."""
    names = list(precisions)
    p = model(x).softmax(1).detach()
    curvature = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    j = jacobian(model, x, names)
    h = torch.einsum("nki,nkl,nlj->ij", j, curvature, j)
    sizes = dict(model.named_parameters())
    h += torch.diag(
        torch.cat([torch.full_like(sizes[n].detach().flatten(), precisions[n]) for n in names])
    )
    there = jacobian(model, new, names)
    return model(new).detach(), there @ torch.linalg.solve(h, there.mT)


@pytest.mark.parametrize("n", [4, 80])  # fewer and more rows than weights
def test_exact_posterior_has_all_correlations(n: int) -> None:
    model = network()
    x = torch.randn(n, 1, 4, 4, dtype=torch.float64)
    new = torch.randn(70, 1, 4, 4, dtype=torch.float64)  # more than one batch
    chosen = {"0": 0.5, "0/bias": 3.0, "3": 0.8, "3/bias": 20.0}
    evidence = Evidence(model, Categorical(), Prior.from_network(model, precisions=chosen))
    precisions = {"0.weight": 0.5, "0.bias": 3.0, "3.weight": 0.8, "3.bias": 20.0}
    found, expected = ExactPosterior(evidence, x).covariance(new), dense(model, x, new, precisions)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_ignored_layers_leave_the_posterior_of_the_last_one() -> None:
    model = network()
    x = torch.randn(30, 1, 4, 4, dtype=torch.float64)
    evidence = Evidence(model, Categorical(), ignore=["0.*"])
    expected = dense(model, x, x[:5], {"3.weight": 1.0, "3.bias": 1.0})
    torch.testing.assert_close(ExactPosterior(evidence, x).covariance(x[:5]), expected)
    evidence.collect((x, torch.arange(30) % 3))
    _, whole = KroneckerPosterior(evidence).covariance(x[:5])
    block = sum(
        _alone(model, evidence.blocks[name].to_dense(), x[:5], name)
        for name in ("3.weight", "3.bias")
    )
    torch.testing.assert_close(whole, block)


def _alone(model: nn.Module, h: Tensor, x: Tensor, name: str) -> Tensor:
    j = jacobian(model, x, [name])
    return j @ torch.linalg.solve(h + torch.eye(len(h), dtype=h.dtype), j.mT)


def test_regression_with_a_correlated_bias_is_exact() -> None:
    """Kronecker blocks take weight and bias as independent; the exact posterior does not."""
    torch.manual_seed(0)
    x = 3.0 + torch.randn(25, 2, dtype=torch.float64)
    model, likelihood = nn.Linear(2, 1).double(), Gaussian(0.4).double()
    evidence = Evidence(model, likelihood, Prior.from_network(model, precisions=0.7))
    design = torch.cat([x, torch.ones(25, 1, dtype=torch.float64)], 1)
    inverse = torch.linalg.inv(design.T @ design / 0.4**2 + 0.7 * torch.eye(3).double())
    spread = (design @ inverse * design).sum(1)
    _, found = Predictive(evidence, ExactPosterior(evidence, x)).normal(x)
    torch.testing.assert_close(found.flatten(), spread + 0.4**2, rtol=1e-6, atol=1e-8)
    evidence.collect((x, x[:, :1]))
    _, factored = Predictive(evidence).latent(x)
    assert float((factored.flatten() - spread).abs().max()) > 1e-3


def test_too_large_a_jacobian_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = network()
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"30 data with 3 outputs in 119 weights.*Kronecker"):
        ExactPosterior(Evidence(model, Categorical()), torch.randn(30, 1, 4, 4).double())


def test_overflow_is_said() -> None:
    model = nn.Sequential(nn.Linear(2, 2)).double()
    evidence = Evidence(model, Categorical())
    with pytest.raises(module.NonFiniteError, match="overflow"):
        ExactPosterior(evidence, torch.full((3, 2), math.inf, dtype=torch.float64))


@pytest.mark.parametrize("positions", [1, 4])
def test_a_wide_last_layer_has_the_covariance_of_its_dense_blocks(positions: int) -> None:
    """From few data only the range of the input factor is kept; with several positions all of it.

    H + δ is written out, and the features are those of the network itself.
    """
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Linear(40, 2)).double()
    shape = (5, 3) if positions == 1 else (5, positions, 3)
    x, new = (torch.randn(n, *shape[1:], dtype=torch.float64) for n in (5, 70))
    evidence = Evidence(model, Gaussian().double(), ignore=["0.*"])
    evidence.collect((x, torch.randn(5, 2 * positions, dtype=torch.float64)))
    assert evidence.blocks["2.weight"].has_single_rows == (positions == 1)
    f, found = KroneckerPosterior(evidence).covariance(new)
    precisions = evidence.prior.precision_of_parameters()
    expected = torch.zeros_like(found)
    for name in ("2.weight", "2.bias"):
        dense = evidence.blocks[name].to_dense()
        dense += precisions[name] * torch.eye(len(dense), dtype=torch.float64)
        flat = lambda some, z: functional_call(model, some, (z,)).flatten()  # noqa: E731
        chosen = {name: dict(model.named_parameters())[name].detach()}
        j = torch.stack([jacrev(flat)(chosen, z[None])[name].flatten(1) for z in new])
        expected += j @ torch.linalg.solve(dense, j.mT)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(f, model(new).detach().flatten(1))
