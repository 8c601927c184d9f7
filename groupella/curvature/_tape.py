"""What one batch says: input grams on the way forward, output grams on the way back.

Every use of a shared linear map in the forward pass is heard (`record`, or a stock layer's). Its
input gram is computed at once, and its output becomes a point of the graph where a gradient is
wanted. One backward pass per column of the likelihood's root then brings the output gradients,
whose grams are summed. With all parameters frozen, the graph begins at the first recorded output,
not at the data, and autograd never computes a weight gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from groupella.nn.shared_maps import BlockMap, LinearMap, SharedLinearMap, Sharing

from .approximations import APPROXIMATIONS


@dataclass
class Factors:
    """Sums for one parameter, before any scaling.

    `uses` counts data × positions; the ranks count the outer products in each matrix. Where these
    are few, `input_rows` (blocks, rows, D_in) holds the vectors themselves.
    """

    shared_map: SharedLinearMap
    input_gram: Tensor
    output_gram: Tensor
    uses: float
    input_rank: int
    output_rank: int = 0
    input_rows: Tensor | None = None

    def add(self, other: Factors) -> None:
        """Add those of another batch."""
        self.input_gram = _plus(self.input_gram, other.input_gram)
        self.output_gram = _plus(self.output_gram, other.output_gram)
        self.uses += other.uses
        self.input_rank += other.input_rank
        self.output_rank += other.output_rank
        self.input_rows = _joined(self.input_rows, other.input_rows)


@dataclass
class _Watched:
    """An output, by the edge of the graph that its gradient flows through, and its maps."""

    edge: GradientEdge
    maps: list[tuple[str, SharedLinearMap]]


class BatchTape:
    """Listens to one forward pass; `backward` then adds one column of the root."""

    def __init__(
        self,
        names: Mapping[int, str],
        batch: int,
        approximation: str = "expand",
        sharing: Sharing | None = None,
        differentiable: bool = False,
    ) -> None:
        self.factors: dict[str, Factors] = {}
        self.differentiable = differentiable
        self._watched: list[_Watched] = []
        self._names = names
        self._batch = batch
        self._approximation = APPROXIMATIONS[approximation]
        self._sharing = sharing
        self._start = torch.zeros((), requires_grad=True)
        self._mixed: set[str] = set()

    def __call__(
        self, module: nn.Module, shared_map: SharedLinearMap, x: Tensor, y: Tensor
    ) -> None:
        name = self.name_of(module, shared_map, y)
        if name is None or name in self._mixed:
            return
        parameter = getattr(module, shared_map.weight)
        if isinstance(shared_map, BlockMap):
            sharing = self._approximation.sharing or self._sharing or shared_map.sharing
            shared_map = replace(shared_map, sharing=sharing)
        with torch.set_grad_enabled(self.differentiable):
            gram = self._approximation.input_gram(shared_map, x)
        split = shared_map.as_blocks(parameter.detach()).shape
        before = self.factors.get(name)
        if before is not None and before.shared_map.as_blocks(parameter.detach()).shape != split:
            # Tied weights, such as an embedding that is also the last layer: no common factors.
            self._mixed.add(name)
            del self.factors[name]
            return
        d_out = split[1]
        terms = self._batch * self._approximation.terms(shared_map)
        nothing = gram.new_zeros(1, d_out, d_out)
        new = Factors(shared_map, gram, nothing, terms, terms)
        if isinstance(shared_map, BlockMap | LinearMap):
            rows = shared_map.input_rows(x if self.differentiable else x.detach())
            if rows is not None:
                new.input_rank = self._batch
                new.input_rows = _if_few(rows)
        if name in self.factors:
            self.factors[name].add(new)
        else:
            self.factors[name] = new
        self._watch(name, shared_map, y)

    def name_of(self, module: nn.Module, shared_map: SharedLinearMap, y: Tensor) -> str | None:
        """The parameter of a map in the network; None if it gets no block."""
        name = self._names.get(id(getattr(module, shared_map.weight)))
        if name is not None and y.shape[0] != self._batch:
            raise ValueError(
                f"{name}: the output has {y.shape[0]} samples along its first axis, the batch has "
                f"{self._batch}. Keep the batch axis first and fold nothing into it."
            )
        return name

    def backward(self, f: Tensor, column: Tensor, last: bool) -> None:
        """Add the output grams of one column (N, K) of the likelihood's root."""
        if not self._watched:
            return
        if self.differentiable:
            root, weights = f, column
        else:  # The same gradients; torch would import sympy for those that are given.
            root, weights = (f * column.detach()).sum(), None
        gradients = torch.autograd.grad(
            root,
            [watched.edge for watched in self._watched],
            weights,
            retain_graph=self.differentiable or not last,
            create_graph=self.differentiable,
            allow_unused=True,
        )
        if self.differentiable:
            for watched, gradient in zip(self._watched, gradients, strict=True):
                if gradient is not None:
                    self.add_outputs(watched.maps, gradient)

    def take_outputs(self) -> dict[str, Tensor]:
        """The output grams so far, which then begin at zero again."""
        taken = {name: factors.output_gram for name, factors in self.factors.items()}
        for factors in self.factors.values():
            factors.output_gram = torch.zeros_like(factors.output_gram)
        return taken

    def _watch(self, name: str, shared_map: SharedLinearMap, y: Tensor) -> None:
        if not y.requires_grad:
            _start_graph(y, self._start)
        edge = get_gradient_edge(y)
        for known in self._watched:
            if known.edge.node is edge.node and known.edge.output_nr == edge.output_nr:
                known.maps.append((name, shared_map))
                return
        watched = _Watched(edge, [(name, shared_map)])
        self._watched.append(watched)
        if not self.differentiable:
            # The gram is taken as soon as the gradient exists, while it is still in the cache.
            # The tape holds the graph, so the graph's hook must not hold the tape.
            tape, maps = weakref.proxy(self), watched.maps
            y.register_hook(lambda g: tape.add_outputs(maps, g))  # type: ignore[no-untyped-call]

    def add_outputs(self, maps: list[tuple[str, SharedLinearMap]], g: Tensor) -> None:
        """Add the output grams of maps whose common output has the gradient g."""
        for name, shared_map in maps:
            if name in self._mixed:
                continue
            total = self.factors[name]
            if isinstance(shared_map, BlockMap) and not self.differentiable:
                total.output_gram = shared_map.add_output_gram(total.output_gram, g)
            else:
                gram = self._approximation.output_gram(shared_map, g)
                total.output_gram = _plus(total.output_gram, gram)
            total.output_rank += self._batch * self._approximation.terms(shared_map)


def _if_few(rows: Tensor) -> Tensor | None:
    """A copy of rows (blocks, R, D), if there are so few that they say more than their gram."""
    return rows.clone() if 2 * rows.shape[1] <= rows.shape[2] else None


def _joined(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if a is None or b is None or 2 * (a.shape[1] + b.shape[1]) > a.shape[2]:
        return None
    return torch.cat([a, b], 1)


def _plus(total: Tensor, new: Tensor) -> Tensor:
    """total + new, in place where no graph needs the old value."""
    if total.requires_grad or new.requires_grad or total.shape != new.shape:
        return total + new
    return total.add_(new)


class _Source(torch.autograd.Function):
    """The identity, in place, as the beginning of a graph."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, _: Tensor) -> Tensor:
        ctx.mark_dirty(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        return None, None


def _start_graph(y: Tensor, start: Tensor) -> None:
    """Make y require a gradient, although it depends on nothing that does.

    As an inner node of the graph rather than a leaf, y may be changed in place afterwards. A view
    can only become a leaf; torch then raises if it is changed in place.
    """
    if y._is_view():
        y.requires_grad_()
    else:
        _Source.apply(y, start)  # type: ignore[no-untyped-call]
