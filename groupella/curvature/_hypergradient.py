"""Gradients of an objective of the curvature with respect to hyperparameters inside the network.

Lengthscales and the like shape the network's maps, and so its factors: the gradient of the evidence
in them flows through all factors, second derivatives of the network included.

With `passes=1` the graph of all backward passes is kept. With `passes=2` the factors F are computed
first without a graph and the objective is differentiated with respect to them; a second pass over
the data then takes the gradient of Σ ⟨∂objective/∂F, F⟩ column by column, so that only one column's
graph is ever in memory. Both are exact; Monte-Carlo columns make either cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from groupella.nn.shared_maps import Sharing

from ._batches import Inputs
from ._collect import Collector, undisturbed
from ._curvature import Curvature, Data, collect
from ._modes import Columns, HasCurvature, Mode, Subset
from ._plan import Plan

Objective = Callable[[Curvature], Tensor]
Cotangents = Mapping[str, tuple[Tensor, Tensor]]


def hypergradient(
    objective: Objective,
    network: nn.Module,
    likelihood: HasCurvature,
    data: Data,
    wrt: Sequence[str],
    *,
    passes: int = 1,
    mode: Mode | None = None,
    approximation: str = "expand",
    subset: Subset | int | None = None,
    ignore: Sequence[str] = (),
    group: Any = None,
    sharing: Sharing | None = None,
    batch_size: int = 256,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The value of an objective of the curvature, and its gradient in parameters of the network.

    Parameters
    ----------
    objective
        Maps a `Curvature` to a scalar; it may also use the parameters directly.
    network, likelihood, data, mode, approximation, subset, ignore, group, sharing, batch_size
        As in `curvature`.
    wrt
        The names of the parameters to differentiate with respect to.
    passes
        1 keeps one graph of all backward passes; 2 reads the data twice and keeps one column's
        graph in memory.

    Returns
    -------
    value, gradients
        The objective's value, and the gradient for each name in `wrt`.

    References
    ----------
    Immer et al., "Scalable Marginal Likelihood Estimation for Model Selection in Deep Learning",
    ICML 2021.
    """
    if passes not in (1, 2):
        raise ValueError(f"passes must be 1 (one graph) or 2 (low memory), got {passes}.")
    if passes == 2 and isinstance(data, Iterator):
        raise TypeError("passes=2 reads the data twice: pass a list or a loader, no iterator.")
    plan = Plan.of(network, ignore, wrt)
    hyperparameters = [dict(network.named_parameters())[name] for name in wrt]

    def collector(plan: Plan) -> Collector:
        """Every pass starts its own random columns."""
        return Collector(network, Columns(likelihood, mode), plan, approximation, sharing)

    inputs = Inputs(data, subset, batch_size)
    first = plan if passes == 1 else replace(plan, keep=frozenset())
    blocks = collect(collector(first), inputs, group)
    if passes == 1:
        value = objective(blocks)
        gradients = _gradients(value, hyperparameters)
        return value.detach(), dict(zip(wrt, gradients, strict=True))

    leaves, factors = _as_leaves(blocks)
    value = objective(leaves)
    found = _gradients(value, [*hyperparameters, *factors])
    direct, pulled = found[: len(wrt)], found[len(wrt) :]
    cotangents = dict(zip(blocks, zip(pulled[::2], pulled[1::2], strict=True), strict=True))
    indirect = _second_pass(collector(plan), inputs, cotangents, hyperparameters)
    if group not in (None, False):
        for gradient in indirect:
            dist.all_reduce(gradient, group=None if group is True else group)
    total = [a + b for a, b in zip(direct, indirect, strict=True)]
    return value.detach(), dict(zip(wrt, total, strict=True))


def _second_pass(
    collector: Collector, inputs: Inputs, cotangents: Cotangents, wrt: list[nn.Parameter]
) -> list[Tensor]:
    """Σ ⟨∂objective/∂F, ∂F/∂wrt⟩, one column at a time.

    The columns depend on the network's outputs: that part of the gradient is collected at a copy of
    the root and propagated through the network once, together with that of the input grams.
    """
    total = [torch.zeros_like(p) for p in wrt]
    with undisturbed(collector.network, collector.plan.keep):
        for x in inputs:
            f, root, tape = collector.forward(x)
            collector.loose(tape, x)
            copy = root.detach().requires_grad_()
            of_root = torch.zeros_like(copy)
            for r in range(root.shape[2]):
                tape.backward(f, copy[:, :, r], last=False)
                outputs = tape.take_outputs()
                part = _inner([(cotangents[n][1], g) for n, g in outputs.items()])
                *gradients, slope = _gradients(part, [*wrt, copy], retain=True)
                of_root += slope
                _accumulate(total, gradients)
            pairs = [(cotangents[n][0], t.input_gram) for n, t in tape.factors.items()]
            _accumulate(total, _gradients(_inner([*pairs, (of_root, root)]), wrt))
    return total


def _accumulate(total: list[Tensor], gradients: list[Tensor]) -> None:
    for sum_, gradient in zip(total, gradients, strict=True):
        sum_ += gradient


def _inner(pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
    return torch.stack([(a * b).sum() for a, b in pairs]).sum()


def _gradients(value: Tensor, wrt: Sequence[Tensor], retain: bool = False) -> list[Tensor]:
    """∂value/∂wrt, zero where there is no dependence."""
    if not value.requires_grad:
        return [torch.zeros_like(p) for p in wrt]
    return list(torch.autograd.grad(value, wrt, retain_graph=retain, materialize_grads=True))


def _as_leaves(blocks: Curvature) -> tuple[Curvature, list[Tensor]]:
    leaves = {
        name: replace(
            block,
            input_factors=block.input_factors.detach().requires_grad_(),
            output_factors=block.output_factors.detach().requires_grad_(),
            input_rows=None,
        )
        for name, block in blocks.items()
    }
    factors = [t for b in leaves.values() for t in (b.input_factors, b.output_factors)]
    return Curvature(leaves, blocks.n_data), factors
