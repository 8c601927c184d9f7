"""The step on the weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from groupella.training._weights import BETAS, EPSILON, FLUSH_EVERY, Adam, WeightStep


def test_weights_follow_a_rise_of_their_precision_at_once() -> None:
    def size_after_a_rise(prior_step: Any) -> float:
        weight = nn.Parameter(torch.ones(1000))
        step = WeightStep({"w": weight}, 1, prior_step)
        generator = torch.Generator().manual_seed(0)
        for number in range(120):
            weight.grad = weight.detach() + torch.randn(1000, generator=generator)
            step.step(0.003, {"w": 1.0 if number < 100 else 1e4})
        return float(weight.detach().square().mean().sqrt())

    # The mean gradient of about ten steps, 0.3, over the precision.
    assert size_after_a_rise("proximal") < 1e-4
    assert size_after_a_rise("gradient") > 1e-3


def test_a_large_weight_steps_in_parts_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    def stepped(part: int) -> dict[str, nn.Parameter]:
        monkeypatch.setattr("groupella.training._weights.PART", part)
        generator = torch.Generator().manual_seed(0)
        sizes = {"large": (30, 40), "turned": (30, 40), "small": (5,)}
        weights = {n: nn.Parameter(torch.randn(s, generator=generator)) for n, s in sizes.items()}
        weights["turned"] = nn.Parameter(weights["turned"].detach().T)
        step = WeightStep(weights, 100, "proximal")
        for _ in range(3):
            for weight in weights.values():
                weight.grad = torch.randn(weight.shape, generator=generator)
            step.step(0.01, {"large": 1e3, "turned": 2e3, "small": 3e3})
        return weights

    whole, parts = stepped(10**9), stepped(64)
    for name, weight in whole.items():
        assert torch.equal(weight, parts[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_stays_subnormal_and_nothing_else_changes(dtype: torch.dtype) -> None:
    n_data, delta, lr = 100, 2.0, 0.01
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(40, generator=generator, dtype=torch.float64).to(dtype))
    exact = weight.detach().double().clone()
    m, v = torch.zeros_like(exact), torch.zeros_like(exact)
    quiet = torch.arange(40) < 10  # units that fall silent after 50 steps
    step = WeightStep({"w": weight}, n_data, "proximal")
    count = 80 * FLUSH_EVERY if dtype == torch.float64 else 20 * FLUSH_EVERY
    for number in range(1, count + 1):
        gradient = torch.randn(40, generator=generator, dtype=torch.float64).to(dtype)
        if number > 50:
            gradient[quiet] = 0.0
        weight.grad = gradient.clone()
        step.step(lr, {"w": delta})
        m = BETAS[0] * m + (1 - BETAS[0]) * gradient.double()
        v = BETAS[1] * v + (1 - BETAS[1]) * gradient.double() ** 2
        metric = (v / (1 - BETAS[1] ** number)).sqrt() + EPSILON
        exact = (exact - lr * m / (1 - BETAS[0] ** number) / metric) / (
            1 + lr * delta / n_data / metric
        )
        if number == 10 * FLUSH_EVERY:
            torch.testing.assert_close(weight.detach().double(), exact, rtol=1e-4, atol=1e-5)
    first: Tensor = step.optimiser.state[weight]["exp_avg"]
    assert not bool(first[quiet].any())
    assert bool(first[~quiet].all())
    for values in (weight.detach(), *step.optimiser.state[weight].values()):
        subnormal = (values != 0) & (values.abs() < torch.finfo(dtype).tiny)
        assert not bool(subnormal.any())


def test_adam_has_the_bits_of_torch_and_goes_on_from_its_state() -> None:
    generator = torch.Generator().manual_seed(0)
    kinds = [((30, 4), torch.float32), ((5,), torch.float64), ((), torch.float32)]
    start = [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in kinds]
    mine, theirs = ([nn.Parameter(w.clone()) for w in start] for _ in range(2))
    ours = Adam(mine)
    truth = torch.optim.Adam(theirs, betas=BETAS, eps=EPSILON, fused=True)
    for number in range(8):
        if number == 4:  # each continues from the state of the other
            states = ours.state_dict()["state"], truth.state_dict()
            truth.load_state_dict({**states[1], "state": states[0]})
            ours = Adam(mine)
            ours.load_state_dict(states[1])
        for one, other in zip(mine, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator).to(one.dtype)
            other.grad = one.grad.clone()
        mine[2].grad = theirs[2].grad = None if number < 2 else mine[2].grad
        truth.param_groups[0]["lr"] = 0.01 / (number + 1)
        truth.step()
        ours.step(0.01 / (number + 1))
        for one, other in zip(mine, theirs, strict=True):
            assert torch.equal(one, other)
