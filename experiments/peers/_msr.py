"""Meta-learning symmetries by reparameterisation (MSR; Zhou, Knowles & Finn 2020).

The weights of a layer are vec W(c', c) = U v(c', c): a sharing pattern U, the same for all
channels, and filters v. Filters take a gradient step on training data (the inner loop), and U, the
filters' start and the inner rate go down the loss of the adapted network on validation data (the
outer loop):

    v' = v − a ∇_v L_fit(U, v),      U, v, a ← Adam on L_val(U, v').

One inner step, a = 0.1 at first, as published; the paper has many tasks that share U, here is one.
Last, filters are fitted to all data with U fixed. The number of a candidate is the share of a
layer's ‖W‖² outside its maps, in the worst layer; the paper compares U by eye.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ._networks import Layer, StageNet, asymmetries
from ._problem import Problem, Stage
from ._protocol import Found, Method
from ._training import Batches, descend

INNER_RATE = 0.1


class SharedLayer(Layer):
    """vec W(c', c) = U v(c', c), with as many columns of U as there are sites."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        entries, columns = stage.points * stage.points_out, stage.points
        self.sharing = nn.Parameter(torch.randn(entries, columns) * columns**-0.5)
        size = (2 / (stage.c_in * stage.points)) ** 0.5
        self.filters = nn.Parameter(torch.randn(stage.c_out, stage.c_in, columns) * size)

    def matrices(self) -> Tensor:
        stage = self.stage
        shape = (stage.c_out, stage.c_in, stage.points_out, stage.points)
        return (self.filters @ self.sharing.T).view(shape)


def adapted(
    network: nn.Module, loss: Tensor, filters: dict[str, Tensor], rates: dict[str, Tensor]
) -> dict[str, Tensor]:
    """v' = v − a ∇_v L, with the graph that the outer gradient needs."""
    gradients = torch.autograd.grad(loss, list(filters.values()), create_graph=True)
    return {
        name: v - rates[name] * g for (name, v), g in zip(filters.items(), gradients, strict=True)
    }


def search(problem: Problem) -> Found:
    network = StageNet(problem, SharedLayer)
    (x, y), (val_x, val_y) = problem.fit, problem.val
    filters = {n: p for n, p in network.named_parameters() if n.endswith("filters")}
    rates = {name: nn.Parameter(torch.tensor(INNER_RATE)) for name in filters}
    held = Batches(len(val_x), problem.seed + 1)

    def objective(rows: Tensor) -> Tensor:
        inner = problem.loss(network(x[rows]), y[rows])
        moved: dict[str, Tensor] = adapted(network, inner, dict(filters), dict(rates))
        chosen = held.next()
        f: Tensor = functional_call(network, moved, (val_x[chosen],))
        return problem.loss(f, val_y[chosen])

    everything = [*(p for p in network.parameters() if p.requires_grad), *rates.values()]
    descend(everything, objective, len(x), problem.seed, steps=problem.steps)
    pool_x, pool_y = problem.pool
    rest = [
        p for n, p in network.named_parameters() if not n.endswith("sharing") and p.requires_grad
    ]
    descend(
        rest,
        lambda rows: problem.loss(network(pool_x[rows]), pool_y[rows]),
        len(pool_x),
        problem.seed,
        steps=problem.steps // 3,
    )
    return Found.of_layers(asymmetries(network), network)


METHOD = Method("msr", "Zhou 2020", search, "tuned", validation=True, tuned="outer rate, one task")
