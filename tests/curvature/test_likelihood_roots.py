"""Closed-form roots of the likelihoods' Hessians, against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood


def cases() -> list[tuple[Likelihood, Tensor, Tensor]]:
    f = 2 * torch.randn(4, 3, dtype=torch.float64)
    return [
        (Categorical(), f, torch.tensor([0, 2, 2, 1])),
        (Categorical(), f[:, :2], torch.tensor([0, 1, 1, 0])),
        (Bernoulli(), f, torch.tensor([[0, 1, 1]] * 4)),
        (Gaussian(0.3), f, torch.randn(4, 3, dtype=torch.float64)),
    ]


@pytest.mark.parametrize("which", range(4))
def test_root_squared_is_the_hessian(which: int) -> None:
    likelihood, f, y = cases()[which]
    root = likelihood.hessian_root(f)
    for n in range(4):
        slope = torch.func.jacrev(lambda row, n=n: -likelihood.log_likelihood(row, y[n : n + 1]))
        expected = torch.func.jacrev(slope)(f[n : n + 1])[0, :, 0]
        torch.testing.assert_close(root[n] @ root[n].mT, expected, rtol=1e-6, atol=1e-9)


def test_softmax_root_has_one_column_less_than_classes() -> None:
    assert Categorical().hessian_root(torch.randn(5, 7)).shape == (5, 7, 6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_confident_logits_give_finite_roots_and_gradients(dtype: torch.dtype) -> None:
    f = torch.tensor(
        [[50.0, -50, 0], [-50, 50, 50], [0, 0, 0], [1e4, -1e4, 0], [50, 50, 50]], dtype=dtype
    ).requires_grad_()
    p = f.detach().softmax(1)
    expected = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    root = Categorical().hessian_root(f)
    torch.testing.assert_close((root @ root.mT).detach(), expected)
    (gradient,) = torch.autograd.grad(root.square().sum(), f)
    assert gradient.isfinite().all()
    both = Bernoulli().hessian_root(f)
    assert both.isfinite().all()
    assert torch.autograd.grad(both.sum(), f)[0].isfinite().all()


def test_root_is_differentiable_in_the_logits() -> None:
    f = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def hessian(f: Tensor) -> Tensor:
        root = Categorical().hessian_root(f)
        return root @ root.mT

    assert torch.autograd.gradcheck(hessian, f)


@pytest.mark.parametrize("which", range(4))
def test_samples_have_the_right_mean(which: int) -> None:
    likelihood, f, _ = cases()[which]
    root = likelihood.hessian_root(f)
    draws = likelihood.sample(f, 20_000, torch.Generator().manual_seed(0))
    mean = draws @ draws.mT / 20_000
    scale = (root @ root.mT).abs().max()
    assert ((mean - root @ root.mT).abs() / scale).max() < 0.04


def test_gaussian_noise_is_learned_by_maximum_likelihood() -> None:
    y = 0.2 * torch.randn(500, 2, dtype=torch.float64)
    rms = y.square().mean().sqrt().item()
    likelihood = Gaussian(rms).double()
    value = likelihood.log_likelihood(torch.zeros_like(y), y)
    constant = 1000 * (0.5 * math.log(2 * math.pi) + math.log(rms) + 0.5)
    assert value.item() == pytest.approx(-constant, rel=1e-6)
    (slope,) = torch.autograd.grad(value, likelihood.log_noise)
    assert abs(slope.item()) < 1e-3
    assert not Gaussian(1.0, learned=False).log_noise.requires_grad


def test_wrong_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match="classes ≥ 2"):
        Categorical().hessian_root(torch.randn(3, 1))
    with pytest.raises(ValueError, match="Bernoulli expects"):
        Bernoulli().hessian_root(torch.randn(3))
    with pytest.raises(ValueError, match="must be positive"):
        Gaussian(-math.pi)
