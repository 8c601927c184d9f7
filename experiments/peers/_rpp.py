"""Residual Pathway Priors (Finzi, Benton & Wilson 2021).

Each layer is a sum of an equivariant and a free path with Gaussian priors of fixed variances, the
free one's small, and weights are at their maximum a posteriori:

    loss + Σ_i d_i ‖θ_i‖²,    d = 10⁻⁴ for the equivariant path, 10⁻² for the free one

(the published decays for tables of numbers; 10⁻⁴ for images, too). With several candidates the
paths are what each adds to stricter ones; their decays lie between, geometrically by the number of
candidates that they obey. The paper has no criterion: the number of a candidate is the share of a
layer's ‖W‖² outside its maps (of the sum of all paths, since the free path may hold symmetric maps,
too), in the worst layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._networks import PathLayer, StageNet, asymmetries
from ._problem import Part, Problem, Stage
from ._protocol import Found, Method
from ._training import descend

EQUIVARIANT, BASIC = 1e-4, 1e-2


def decays(parts: list[Part]) -> list[float]:
    """d_i of every path: the strictest has that of equivariant ones, the last that of free ones."""
    steps = [max(len(p.members) for p in parts) - len(p.members) for p in parts]
    most = max(steps)
    return [float(EQUIVARIANT * (BASIC / EQUIVARIANT) ** (s / most)) for s in steps]


def penalty(layer: PathLayer) -> Tensor:
    """Σ_i d_i ‖θ_i‖²."""
    terms = zip(decays(list(layer.parts)), layer.weights, strict=True)
    return sum((d * (w**2).sum() for d, w in terms), torch.zeros(()))


def make(stage: Stage) -> PathLayer:
    return PathLayer(stage, stage.parts())


def search(problem: Problem) -> Found:
    network = StageNet(problem, make)
    layers = path_layers(network)
    x, y = problem.pool

    def objective(rows: Tensor) -> Tensor:
        fit = problem.loss(network(x[rows]), y[rows])
        return fit + sum(map(penalty, layers), torch.zeros(()))

    descend(network.parameters(), objective, len(x), problem.seed, steps=problem.steps)
    return Found.of_layers(asymmetries(network), network)


def path_layers(network: StageNet) -> list[PathLayer]:
    """The layers of a network of paths."""
    found = [layer for layer in network.layers if isinstance(layer, PathLayer)]
    assert len(found) == len(network.layers)
    return found


METHOD = Method("rpp", "Finzi 2021", search, "tuned", tuned="decays between the published two")
