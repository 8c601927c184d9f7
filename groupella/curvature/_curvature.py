"""`curvature`: named Kronecker blocks of a network on data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from ..likelihoods import Likelihood
from ._batches import Inputs
from ._collect import Approximation, BatchTape, Sharing, listening, undisturbed
from ._modes import exact, mc
from ._modes import subset as Subset
from ._plan import Plan
from ._sums import Sums
from .kronecker import KroneckerBlock

Mode = exact | mc
Data = tuple[Tensor, Tensor] | Iterable[Any]


@dataclass(frozen=True, eq=False)
class Curvature(Mapping[str, KroneckerBlock]):
    """Parameter name → its block. `n_data` data are represented."""

    blocks: Mapping[str, KroneckerBlock]
    n_data: int

    def __getitem__(self, name: str) -> KroneckerBlock:
        return self.blocks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.blocks)

    def __len__(self) -> int:
        return len(self.blocks)

    def __add__(self, other: Curvature) -> Curvature:
        """The curvature of both data sets together."""
        if self.blocks.keys() != other.blocks.keys():
            raise ValueError("Only curvatures of the same parameters add.")
        total = {name: block + other[name] for name, block in self.items()}
        return Curvature(total, self.n_data + other.n_data)

    def detach(self) -> Curvature:
        """The same blocks without a graph."""
        return Curvature({name: b.detach() for name, b in self.items()}, self.n_data)

    def __repr__(self) -> str:
        lines = [
            f"  {name}: {b.blocks} × ({b.output_factors.shape[1]} × {b.input_factors.shape[1]})"
            for name, b in self.items()
        ]
        return "\n".join([f"Curvature of {self.n_data} data:", *lines])


def curvature(
    network: nn.Module,
    likelihood: Likelihood,
    data: Data,
    mode: Mode | None = None,
    approximation: Approximation = "expand",
    subset: Subset | int | None = None,
    ignore: Sequence[str] = (),
    differentiable: bool | Sequence[str] = False,
    group: Any = None,
    sharing: Sharing | None = None,
) -> Curvature:
    """Kronecker-factored curvature (GGN) of Σ_n −log p(y_n | f(x_n)), one block per parameter.

    `data` is a pair (x, y) of tensors or an iterable of such batches; targets are not used. `mode`
    is `exact()` (default) or `mc(m)`. `ignore` names parameters, or patterns such as "norm.*", that
    get no block; any other trainable parameter that no shared linear map covers is an error.
    Parameters that do not require a gradient are constants and get no block.

    With `differentiable=True`, or the names of parameters, the factors carry a graph with respect
    to (those) parameters; named ones need no block. `group` is a process group of
    torch.distributed, or True for the default one: each process brings its own data. `sharing`
    overrides how factored layers share output factors ("block" or "sum").

    The network runs in evaluation mode; its gradients, flags, hooks and the random state stay as
    they were.
    """
    if approximation not in ("expand", "reduce"):
        raise ValueError(f'approximation must be "expand" or "reduce", got {approximation!r}.')
    plan = Plan.of(network, ignore, differentiable)
    inputs = Inputs(data, Subset(subset) if isinstance(subset, int) else subset)
    columns = Columns(likelihood, mode or exact())
    sums = Sums()
    with undisturbed(network, plan.keep):
        for x in inputs:
            tape = BatchTape(plan.names, x.shape[0], approximation, sharing, bool(plan.keep))
            collect(network, x, columns, tape)
            sums.add(tape.finish(), x.shape[0])
    if not sums.count:
        raise ValueError("There are no data.")
    plan.check(sums.factors)
    seen = inputs.seen if group in (None, False) else sums.all_reduce(inputs.seen, group)
    return Curvature(dict(sums.blocks(network, seen)), seen)


class Columns:
    """The columns of the likelihood's root, in the chosen mode."""

    def __init__(self, likelihood: Likelihood, mode: Mode) -> None:
        self._likelihood = likelihood
        self._mode = mode
        self._generator = None
        if isinstance(mode, mc):
            rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            self._generator = torch.Generator().manual_seed(mode.seed + 7919 * rank)

    def __call__(self, f: Tensor) -> Tensor:
        """(N, K, columns), already divided by √m."""
        if isinstance(self._mode, mc):
            return self._likelihood.sample(f, self._mode.m, self._generator) / sqrt(self._mode.m)
        return self._likelihood.hessian_root(f)


def collect(network: nn.Module, x: Tensor, columns: Columns, tape: BatchTape) -> None:
    """One forward pass, and one backward pass per column."""
    with torch.enable_grad(), listening(network, tape):
        f = network(x)
        if f.shape[0] != x.shape[0]:
            raise ValueError(
                f"The network gives {f.shape[0]} outputs for {x.shape[0]} inputs; curvature needs "
                "one row per sample."
            )
        f = f.flatten(1) if f.ndim > 2 else f
        with torch.set_grad_enabled(tape.differentiable):
            root = columns(f)
    for r in range(root.shape[2]):
        tape.backward(f, root[:, :, r], last=r == root.shape[2] - 1)
