"""Collection of factors: a network runs under a tape and is left unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from groupella.nn.shared_maps import Sharing, taping

from ._modes import Columns
from ._piecewise import PiecewiseLinear
from ._plan import Plan
from ._stock import is_stock, stock_forward, stock_maps
from ._tape import BatchTape, Factors


@dataclass
class Collector:
    """Settings for all batches, and whether stock layers may change the memory layout."""

    network: nn.Module
    columns: Columns
    plan: Plan
    approximation: str = "expand"
    sharing: Sharing | None = None
    relayout: bool = True

    def factors(self, x: Tensor) -> dict[str, Factors]:
        """The factors of one batch, from one forward and one backward pass per column."""
        f, root, tape = self.forward(x)
        for r in range(root.shape[2]):
            tape.backward(f, root[:, :, r], last=r == root.shape[2] - 1)
        return tape.factors

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, BatchTape]:
        """Network outputs (N, K), the columns (N, K, R) and the tape with all input grams."""
        if self.relayout:
            try:
                return self._forward(x)
            except RuntimeError:
                # A network may ask for `.view`s that channels-last tensors do not have.
                self.relayout = False
        return self._forward(x)

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor, BatchTape]:
        differentiable = bool(self.plan.keep)
        tape = BatchTape(
            self.plan.names, x.shape[0], self.approximation, self.sharing, differentiable
        )
        masks = PiecewiseLinear() if differentiable else nullcontext()
        with torch.enable_grad(), listening(self.network, tape, self.relayout), masks:
            f = self.network(x.detach())
        if f.shape[0] != x.shape[0]:
            raise ValueError(
                f"The network gives {f.shape[0]} outputs for {x.shape[0]} inputs; curvature needs "
                "one row per sample."
            )
        f = f.flatten(1) if f.ndim > 2 else f
        with torch.set_grad_enabled(differentiable):
            return f, self.columns(f), tape


@contextmanager
def listening(network: nn.Module, tape: BatchTape, relayout: bool) -> Iterator[None]:
    """Report all maps of the network to `tape`, those of its stock layers included.

    With `relayout` stock convolutions may put channels last in memory.
    """

    def forward_of(module: nn.Module) -> Callable[[Tensor], Tensor]:
        def forward(input: Tensor) -> Tensor:
            y = stock_forward(module, input, relayout)
            for shared_map in stock_maps(module, input):
                tape(module, shared_map, input, y)
            return y

        return forward

    stock = [m for m in network.modules() if is_stock(m)]
    try:
        for module in stock:
            vars(module)["forward"] = forward_of(module)
        with taping(tape):
            yield
    finally:
        for module in stock:
            vars(module).pop("forward", None)


@contextmanager
def evaluation(network: nn.Module) -> Iterator[None]:
    """Put the network into evaluation mode; each module returns to its own mode on leaving."""
    modes = [(m, m.training) for m in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def undisturbed(network: nn.Module, keep: frozenset[str]) -> Iterator[None]:
    """Evaluation mode with all parameters frozen except those in `keep`; restored on leaving."""
    required = [(p, p.requires_grad) for p in network.parameters()]
    state = torch.get_rng_state()
    try:
        for name, parameter in network.named_parameters():
            if name not in keep:
                parameter.requires_grad_(False)
        with evaluation(network):
            yield
    finally:
        for parameter, flag in required:
            parameter.requires_grad_(flag)
        torch.set_rng_state(state)
