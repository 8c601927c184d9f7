"""Collection of factors: a network runs under a tape and is left unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupella.nn.fast_path import without_fast_path
from groupella.nn.shared_maps import SharedLinearMap, Sharing, taping

from ._attention import attention_forward
from ._loose import check_used, loose_factors, sample_gradients
from ._modes import Columns
from ._piecewise import PiecewiseLinear
from ._plan import Plan
from ._stock import computes, is_stock, stock_forward, stock_maps
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
    checked: bool = False

    def factors(self, x: Tensor) -> dict[str, Factors]:
        """The factors of one batch, from one forward and one backward pass per column."""
        f, root, tape = self.forward(x)
        for r in range(root.shape[2]):
            tape.backward(f, root[:, :, r], last=r == root.shape[2] - 1)
        loose = self.loose(tape, x)
        if not loose:
            return tape.factors
        return {**tape.factors, **loose_factors(self.network, loose, x, root)}

    def loose(self, tape: BatchTape, x: Tensor) -> list[str]:
        """Parameters that must have a block and that no linear map on the tape covers."""
        names = self.plan.missing(tape.factors)
        if names and self.plan.keep:
            raise ValueError(
                f"No shared linear map covers the parameter(s) {', '.join(names)}, so their "
                "curvature has no derivative: give their module a method shared_maps() and "
                f"record() its maps in forward(), or leave them out with ignore={names!r}."
            )
        if names and not self.checked:
            check_used(self.network, names, x)
            self.checked = True
        return names

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
            f = one_tensor(self.network(x.detach()))
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

    def forward_of(module: nn.Module) -> Callable[..., Any]:
        if isinstance(module, nn.MultiheadAttention):
            return attention_forward(module, tape)

        def forward(input: Tensor) -> Tensor:
            y = stock_forward(module, input, relayout)
            x = input if input.is_floating_point() else y
            seen = input if tape.differentiable else input.detach()
            for shared_map in stock_maps(module, seen):
                tape(module, shared_map, x, y)
            return y

        return forward

    stock = [m for m in network.modules() if is_stock(m) or computes(m, (nn.MultiheadAttention,))]
    try:
        for module in stock:
            vars(module)["forward"] = forward_of(module)
        with taping(tape), without_fast_path():
            yield
    finally:
        for module in stock:
            vars(module).pop("forward", None)


def check_coverage(network: nn.Module, x: Tensor, ignore: Sequence[str] = ()) -> None:
    """Raise unless curvature can be computed for every trainable parameter that is not ignored.

    One forward pass of two samples; no factors are formed.

    Parameters
    ----------
    network, ignore
        As in `curvature`.
    x
        Some inputs.

    Raises
    ------
    ValueError
        As `curvature` would, after training.
    """
    plan = Plan.of(network, ignore, False)
    x = x[:2]
    tape = _Coverage(plan.names, len(x))
    with undisturbed(network, frozenset()):
        with torch.no_grad(), listening(network, tape, relayout=False):
            f = one_tensor(network(x))
        loose = plan.missing(tape.covered)
        if loose:
            check_used(network, loose, x)
            root = f.flatten(1).new_ones(len(x), f[0].numel(), 1)
            for _ in sample_gradients(network, loose, x, root):
                pass


class _Coverage(BatchTape):
    """Only notes which parameters are covered."""

    def __init__(self, names: Mapping[int, str], batch: int) -> None:
        super().__init__(names, batch)
        self.covered: set[str] = set()

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None:
        name = self.name_of(module, shared_map, y)
        if name is not None:
            self.covered.add(name)


def one_tensor(outputs: Any) -> Tensor:
    """The outputs of a network, or a `TypeError` that says what to do if they are no tensor."""
    if isinstance(outputs, Tensor):
        return outputs
    raise TypeError(
        f"the network returns {type(outputs).__name__}; expected a tensor (n, outputs). Wrap it in "
        "a module that picks one"
    )


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
