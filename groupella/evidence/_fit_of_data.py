"""How well the network fits the data: Σ log p(y | f(x)), by a pass without gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupella.evidence.likelihoods import Gaussian, Likelihood

Batches = Iterable[Any]


@dataclass(frozen=True)
class DataFit:
    """Σ log p(y | f) over `n_data` data with `outputs` numbers predicted in all.

    `value` was computed at log σ = `log_noise` (Gaussian likelihood; else None), from which the fit
    at any other noise follows. `gradient` is that of −Σ log p(y | f) in the parameters, if taken.
    """

    value: Tensor
    n_data: int
    outputs: int
    log_noise: float | None = None
    gradient: Mapping[str, Tensor] | None = None

    @property
    def squares(self) -> float:
        """Σ (y − f)², of a Gaussian likelihood."""
        if self.log_noise is None:
            raise RuntimeError("squared residuals are known for a Gaussian likelihood only")
        constant = self.outputs * (2 * self.log_noise + math.log(2 * math.pi))
        return max(-(2 * float(self.value.detach()) + constant), 0.0) * math.exp(2 * self.log_noise)

    def log_likelihood(self, likelihood: Likelihood) -> float:
        """The fit at the likelihood's present noise."""
        if self.log_noise is None or not isinstance(likelihood, Gaussian):
            return float(self.value.detach())
        now = float(likelihood.log_noise.detach())
        constant = self.outputs * (2 * now + math.log(2 * math.pi))
        return -0.5 * (self.squares * math.exp(-2 * now) + constant)

    def noise_scale(self, likelihood: Likelihood) -> float:
        """By how much the change of noise since this pass multiplies the curvature."""
        if self.log_noise is None or not isinstance(likelihood, Gaussian):
            return 1.0
        return math.exp(2 * (self.log_noise - float(likelihood.log_noise.detach())))


def data_fit(
    network: nn.Module,
    likelihood: Likelihood,
    data: tuple[Tensor, Tensor] | Batches,
    *,
    differentiable: bool = False,
    gradient: bool = False,
    batch_size: int = 256,
) -> DataFit:
    """Σ log p(y | f(x)) in float64, with the network in evaluation mode.

    `differentiable=True` keeps the graph of the sum; `gradient=True` takes its gradient batch by
    batch instead, without touching `.grad`.
    """
    total = torch.zeros((), dtype=torch.float64)
    count = outputs = 0
    trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
    sums = {n: torch.zeros_like(p) for n, p in trained.items()} if gradient else None
    with evaluation(network), torch.set_grad_enabled(differentiable or gradient):
        for x, y in batches(data, batch_size):
            f = network(x)
            value = likelihood.log_likelihood(f.double(), _target(y)).to(total)
            if sums is not None:
                parts = torch.autograd.grad(-value, list(trained.values()), allow_unused=True)
                for part, known in zip(parts, sums.values(), strict=True):
                    if part is not None:
                        known += part
                value = value.detach()
            total = total + value
            count += f.shape[0]
            outputs += f.numel()
    if count == 0:
        raise ValueError("there are no data: the iterable of batches was empty")
    noise = float(likelihood.log_noise.detach()) if isinstance(likelihood, Gaussian) else None
    return DataFit(total, count, outputs, noise, sums)


def batches(
    data: tuple[Tensor, Tensor] | Batches, batch_size: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a pair of tensors, or those that the iterable gives."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], Tensor):
        x, y = data
        yield from zip(x.split(batch_size), y.split(batch_size), strict=True)
    else:
        for x, y in data:
            yield x, y


@contextmanager
def evaluation(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block, each module's own mode after it."""
    modes = [(m, m.training) for m in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _target(y: Tensor) -> Tensor:
    return y.double() if y.is_floating_point() else y
