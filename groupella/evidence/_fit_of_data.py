"""How well the network fits the data: Σ log p(y | f(x)), by a pass without gradients."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from groupella.curvature import batches, evaluation

from .likelihoods import Likelihood

Batches = Iterable[Any]
Data = tuple[Tensor, Tensor] | Batches


@dataclass(frozen=True)
class DataFit:
    """Σ log p(y | f) over `n_data` data with `outputs` numbers predicted in all.

    `value` was computed at log σ = `log_noise` (None without Gaussian noise); the fit at any other
    noise follows from it. `gradient` is that of −Σ log p(y | f) in the parameters, if requested.
    """

    value: Tensor
    n_data: int
    outputs: int
    log_noise: float | None = None
    gradient: Mapping[str, Tensor] | None = None

    def representing(self, n: int) -> DataFit:
        """The fit of n data of which these are a part; the gradient is that of all alike."""
        if n == self.n_data:
            return self
        share = n / self.n_data
        gradient = self.gradient
        if gradient is not None:
            gradient = {name: share * g for name, g in gradient.items()}
        outputs = round(share * self.outputs)
        return DataFit(share * self.value, n, outputs, self.log_noise, gradient)

    @property
    def squares(self) -> float:
        """Σ (y − f)² under Gaussian noise."""
        if self.log_noise is None:
            raise RuntimeError("squared residuals are known for a Gaussian likelihood only")
        constant = self.outputs * (2 * self.log_noise + math.log(2 * math.pi))
        return max(-(2 * float(self.value.detach()) + constant), 0.0) * math.exp(2 * self.log_noise)

    def log_likelihood(self, likelihood: Likelihood) -> float:
        """Return the fit at the likelihood's present noise."""
        if self.log_noise is None or likelihood.log_noise is None:
            return float(self.value.detach())
        now = float(likelihood.log_noise.detach())
        constant = self.outputs * (2 * now + math.log(2 * math.pi))
        return -0.5 * (self.squares * math.exp(-2 * now) + constant)

    def noise_scale(self, likelihood: Likelihood) -> float:
        """Return the factor by which the change of noise since this pass scales the curvature."""
        if self.log_noise is None or likelihood.log_noise is None:
            return 1.0
        return math.exp(2 * (self.log_noise - float(likelihood.log_noise.detach())))


def data_fit(
    network: nn.Module,
    likelihood: Likelihood,
    data: Data,
    *,
    gradient: bool = False,
    batch_size: int = 256,
    group: dist.ProcessGroup | None = None,
) -> DataFit:
    """Return Σ log p(y | f(x)) in float64, with the network in evaluation mode.

    Parameters
    ----------
    network, likelihood
        The model p(y | f(x)).
    data
        A pair (x, y) of tensors, or an iterable of such batches.
    gradient
        Whether to compute the gradient as well, batch by batch; `.grad` is not touched.
    batch_size
        Examples per batch of a pair of tensors.
    group
        Process group to sum over; each process passes its own data.

    Raises
    ------
    ValueError
        If there are no data.
    """
    total = torch.zeros((), dtype=torch.float64)
    count = outputs = 0
    trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
    sums = {n: torch.zeros_like(p) for n, p in trained.items()} if gradient else None
    with evaluation(network), torch.set_grad_enabled(gradient):
        for x, y in batches(data, batch_size):
            f = network(x)
            y = y.double() if y.is_floating_point() else y
            value = likelihood.log_likelihood(f.double(), y).to(total)
            if sums is not None:
                parts = torch.autograd.grad(-value, list(trained.values()), allow_unused=True)
                for part, known in zip(parts, sums.values(), strict=True):
                    if part is not None:
                        known += part
            total = total + value.detach()
            count += f.shape[0]
            outputs += f.numel()
    if count == 0:
        raise ValueError("there are no data: the iterable of batches was empty")
    if group is not None:
        # nccl moves CUDA tensors only; gloo works on either.
        device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"
        numbers = torch.tensor([total, count, outputs], dtype=torch.float64, device=device)
        for tensor in (numbers, *(sums or {}).values()):
            dist.all_reduce(tensor, group=group)
        total, (count, outputs) = numbers[0].cpu(), map(round, numbers[1:].tolist())
    noise = None if likelihood.log_noise is None else float(likelihood.log_noise.detach())
    return DataFit(total, count, outputs, noise, sums)
