"""The common loop: batches of 64, Adam, one cycle of the learning rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

BATCH, RATE = 64, 0.01


class Batches:
    """Rows of n data in random order, again and again."""

    def __init__(self, n: int, seed: int, size: int = BATCH) -> None:
        self.n, self.size = n, min(size, n)
        self.generator = torch.Generator().manual_seed(seed)
        self.left = torch.empty(0, dtype=torch.long)

    def next(self) -> Tensor:
        if len(self.left) < self.size:
            self.left = torch.randperm(self.n, generator=self.generator)
        rows, self.left = self.left[: self.size], self.left[self.size :]
        return rows


def descend(
    parameters: Iterable[nn.Parameter] | list[dict[str, Any]],
    objective: Callable[[Tensor], Tensor],
    n: int,
    seed: int,
    *,
    steps: int,
    rate: float = RATE,
    each: Callable[[int], None] | None = None,
) -> None:
    """Minimise `objective(rows)` over parameters, or groups of them with rates of their own.

    `each` is called with the number of every step, after it.
    """
    groups: Any = list(parameters)
    optimiser = torch.optim.Adam(groups, lr=rate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=[g["lr"] for g in optimiser.param_groups], total_steps=steps + 1
    )
    batches = Batches(n, seed)
    for step in range(steps):
        optimiser.zero_grad()
        loss: Any = objective(batches.next())
        loss.backward()
        optimiser.step()
        cycle.step()
        if each is not None:
            each(step)


def groups_of(
    network: nn.Module, special: Iterable[nn.Parameter], rate: float
) -> list[dict[str, Any]]:
    """Parameter groups: those of the structure with a rate of their own, and the weights."""
    mine = list(special)
    chosen = {id(p) for p in mine}
    rest = [p for p in network.parameters() if id(p) not in chosen]
    return [{"params": rest, "lr": RATE}, {"params": mine, "lr": rate}]
