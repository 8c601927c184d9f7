"""Learning rates are those of torch's schedulers, without a scheduler's state."""

from __future__ import annotations

import pytest
import torch
from torch.optim import lr_scheduler

from groupella.training._optimisers import learning_rate


def of_torch(kind: str, rate: float, total: int) -> list[float]:
    optimiser = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate)
    scheduler: lr_scheduler.LRScheduler
    if kind == "one_cycle":
        scheduler = lr_scheduler.OneCycleLR(optimiser, rate, total_steps=total)
    else:
        scheduler = lr_scheduler.CosineAnnealingLR(optimiser, total)
    rates = []
    for step in range(total):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        if step < total - 1:
            scheduler.step()
    return rates


@pytest.mark.parametrize("kind", ["one_cycle", "cosine"])
@pytest.mark.parametrize("total", [1, 2, 3, 4, 5, 7, 10, 20, 101, 1000])
def test_rates_are_those_of_torch(kind: str, total: int) -> None:
    found = [learning_rate(kind, 0.03, step, total) for step in range(total)]  # type: ignore[arg-type]
    assert found == pytest.approx(of_torch(kind, 0.03, total), rel=1e-9)


def test_a_constant_rate_stays_and_after_the_end_a_cycle_stays_low() -> None:
    assert learning_rate("constant", 0.03, 7, 10) == 0.03
    assert learning_rate("one_cycle", 1.0, 15, 10) == pytest.approx(4e-6)
    assert learning_rate("cosine", 1.0, 15, 10) == 0.0
