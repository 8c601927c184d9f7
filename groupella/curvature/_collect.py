"""Collection of Kronecker factors from one batch.

Every use of a shared linear map in the forward pass is heard (`record`, or the hook on a stock
layer). Its input gram is computed at once, and its output is marked as a point of the graph
where gradients are wanted. Then one backward pass per column of the likelihood's root brings the
output gradients, whose grams are summed. Parameters are frozen meanwhile, so that autograd never
computes a weight gradient; the graph begins at the first recorded output, not at the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..shared_maps import BlockMap, SharedLinearMap, taping
from ._stock import is_stock, stock_maps

Approximation = Literal["expand", "reduce"]
Sharing = Literal["block", "sum"]


@dataclass
class Factors:
    """Sums for one parameter, before any scaling; `uses` counts data × positions."""

    shared_map: SharedLinearMap
    input_gram: Tensor
    output_gram: Tensor
    uses: float
    d_out: int

    def add(self, other: Factors) -> None:
        self.input_gram = self.input_gram + other.input_gram
        self.output_gram = self.output_gram + other.output_gram
        self.uses += other.uses


class _Source(torch.autograd.Function):
    """Lets the graph begin at a tensor that so far depends on nothing that requires a gradient."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


class BatchTape:
    """Hears the uses of shared linear maps in one forward pass."""

    def __init__(
        self,
        names: Mapping[int, str],
        batch: int,
        approximation: Approximation,
        sharing: Sharing | None,
        differentiable: bool,
    ) -> None:
        self.factors: dict[str, Factors] = {}
        self.edges: list[GradientEdge] = []
        self._maps: list[list[tuple[str, SharedLinearMap]]] = []
        self._names = names
        self._batch = batch
        self._reduce = approximation == "reduce"
        self._sharing = sharing
        self.differentiable = differentiable
        self._start = torch.zeros((), requires_grad=True)

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None:
        parameter = getattr(module, shared_map.weight)
        name = self._names.get(id(parameter))
        if name is None:
            return
        if y.shape[0] != self._batch:
            raise ValueError(
                f"{name}: the output has {y.shape[0]} samples along its first axis, the batch has "
                f"{self._batch}. Keep the batch axis first and fold nothing into it."
            )
        if self._sharing is not None and isinstance(shared_map, BlockMap):
            shared_map = replace(shared_map, sharing=self._sharing)
        with torch.set_grad_enabled(self.differentiable):
            gram = self._input_gram(shared_map, x)
        positions = 1 if self._reduce else shared_map.positions
        known = self.factors.get(name)
        if known is None:
            nothing = gram.new_zeros(())
            d_out = shared_map.as_blocks(parameter.detach()).shape[1]
            self.factors[name] = Factors(shared_map, gram, nothing, self._batch * positions, d_out)
        else:
            known.input_gram = known.input_gram + gram
            known.uses += self._batch * positions
        self._watch(name, shared_map, y)

    def backward(self, f: Tensor, column: Tensor, last: bool) -> None:
        """Add the output grams of one column (N, K) of the likelihood's root."""
        graph = self.differentiable
        gradients = torch.autograd.grad(
            f,
            self.edges,
            column,
            retain_graph=graph or not last,
            create_graph=graph,
            allow_unused=True,
        )
        with torch.set_grad_enabled(graph):
            for gradient, maps in zip(gradients, self._maps, strict=True):
                if gradient is None:
                    continue
                for name, shared_map in maps:
                    gram = self._output_gram(shared_map, gradient)
                    self.factors[name].output_gram = self.factors[name].output_gram + gram

    def finish(self) -> dict[str, Factors]:
        """All factors; those whose outputs never reached the network's are zero."""
        for factors in self.factors.values():
            if factors.output_gram.ndim == 0:
                zeros = factors.input_gram.new_zeros
                factors.output_gram = zeros(1, factors.d_out, factors.d_out)
        return self.factors

    def _watch(self, name: str, shared_map: SharedLinearMap, y: Tensor) -> None:
        if not y.requires_grad:
            if y._is_view():
                y.requires_grad_()
            else:
                _Source.apply(y, self._start)  # type: ignore[no-untyped-call]
        edge = get_gradient_edge(y)
        for known, maps in zip(self.edges, self._maps, strict=True):
            if known.node is edge.node and known.output_nr == edge.output_nr:
                maps.append((name, shared_map))
                return
        self.edges.append(edge)
        self._maps.append([(name, shared_map)])

    def _input_gram(self, shared_map: SharedLinearMap, x: Tensor) -> Tensor:
        if not self._reduce:
            return shared_map.input_gram(x)
        mean = shared_map.inputs(x).mean(2)
        return torch.einsum("nbi,nbj->bij", mean, mean)

    def _output_gram(self, shared_map: SharedLinearMap, g: Tensor) -> Tensor:
        if not self._reduce:
            return shared_map.output_gram(g)
        total = shared_map.outputs(g).sum(2)
        return torch.einsum("nbi,nbj->bij", total, total)


@contextmanager
def listening(network: nn.Module, tape: BatchTape) -> Iterator[None]:
    """Let `tape` hear all maps of the network, its stock layers included."""

    def hook(module: nn.Module, args: tuple[Tensor, ...], y: Tensor) -> None:
        for shared_map in stock_maps(module, args[0]):
            tape(module, shared_map, args[0], y)

    handles = [m.register_forward_hook(hook) for m in network.modules() if is_stock(m)]
    try:
        with taping(tape):
            yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def undisturbed(network: nn.Module, keep: frozenset[str]) -> Iterator[None]:
    """Evaluation mode, and all parameters frozen but those in `keep`; put back on leaving."""
    training = [(m, m.training) for m in network.modules()]
    required = [(p, p.requires_grad) for _, p in network.named_parameters()]
    state = torch.get_rng_state()
    try:
        network.eval()
        for name, parameter in network.named_parameters():
            if name not in keep:
                parameter.requires_grad_(False)
        yield
    finally:
        for module, flag in training:
            module.training = flag
        for parameter, flag in required:
            parameter.requires_grad_(flag)
        torch.set_rng_state(state)
