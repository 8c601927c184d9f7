"""Partial G-CNNs (Romero & Lohit 2022): a learned distribution over group elements in every layer.

A layer averages its maps over q: W = E_q[g C g⁻¹] = Σ_m π_m P_m(C), where P_m projects on the maps
that obey m. A q spread over all of a group gives strict equivariance to it. q is learned by the
training loss alone, from a start at the largest group (here 0.9 of the mass, and after a burn-in:
until C is of use, anything beyond the largest group is noise, and q would stay there). The paper
samples elements with Gumbel-softmax; for a mixture of uniform distributions the average is exact.
The number of a candidate is 1 less the mass of the groups that contain it, in the worst layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ._mixture import Mixture
from ._networks import Layer, StageNet
from ._problem import Problem, Stage
from ._protocol import Found, Method
from ._training import descend, groups_of

MIXTURE_RATE, STRICT = 0.03, 0.9
START = 0.3  # share of the steps before distributions are learned


class PartialLayer(Layer):
    """W = Σ_m π_m P_m(C)."""

    def __init__(self, problem: Problem, stage: Stage) -> None:
        super().__init__(stage)
        self.mixture = Mixture(problem, STRICT)
        shape = (stage.c_out, stage.c_in, stage.points_out, stage.points)
        size = math.sqrt(2 / (stage.c_in * stage.points))
        self.weight = nn.Parameter(torch.randn(shape) * size)

    def matrices(self) -> Tensor:
        pi, c = self.mixture.pi(), self.weight
        maps = [c, *(self.stage.projected(c, m) for m in self.mixture.names[1:])]
        return sum((p * w for p, w in zip(pi, maps, strict=True)), torch.zeros(()))


def train(
    problem: Problem, regulariser: Callable[[list[PartialLayer]], Tensor] | None = None
) -> Found:
    """Minimise the training loss, and a regulariser of the distributions if there is one."""
    network = StageNet(problem, lambda stage: PartialLayer(problem, stage))
    layers = [layer for layer in network.layers if isinstance(layer, PartialLayer)]
    x, y = problem.pool

    def objective(rows: Tensor) -> Tensor:
        fit = problem.loss(network(x[rows]), y[rows])
        return fit if regulariser is None else fit + regulariser(layers)

    alphas = [layer.mixture.alpha for layer in layers]

    def each(step: int) -> None:
        for alpha in alphas:
            alpha.requires_grad_(step + 1 >= START * problem.steps)

    each(-1)
    groups = groups_of(network, alphas, MIXTURE_RATE)
    descend(groups, objective, len(x), problem.seed, steps=problem.steps, each=each)
    numbers = []
    for layer in layers:
        stage, own = layer.stage, layer.mixture.numbers(problem)
        # In a layer, maps that obey m may obey another candidate, too, that m does not contain.
        obeying = {n: [m for m in own if stage.obeys(stage.rows[m], n)] for n in own}
        numbers.append({n: min(own[m] for m in some) for n, some in obeying.items()})
    return Found.of_layers(numbers, network)


def search(problem: Problem) -> Found:
    return train(problem)


METHOD = Method("partial", "Romero 2022", search, "tuned", tuned="rate, start, burn-in")
