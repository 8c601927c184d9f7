"""Non-stationary and sparse relaxations (van der Ouderaa et al. 2022, 2023).

How far a filter may depend on where it is used is controlled by a lengthscale 1/ω: with Gaussian
bases, filters at unit distance differ by 1 − exp(−ω²), and ω → 0 is strict equivariance. Here each
path beyond the strictest candidate's has its own ω_i, for every layer:

    W = W_strict + Σ_i (1 − exp(−ω_i²)) W_i,      loss + λ Σ_i ω_i²,

with the regulariser that pulls towards symmetry. Lengthscales are read off in the papers, without a
limit. Here the number of a candidate is the share of a layer's ‖W‖² outside its maps (of the sum of
all paths), in the worst layer: amplitudes alone told nothing on the tuning seeds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._networks import PathLayer, StageNet, asymmetries
from ._problem import Problem, Stage
from ._protocol import Found, Method
from ._rpp import path_layers
from ._training import descend, groups_of

LAMBDA, OMEGA_RATE, START = 0.1, 0.02, 0.5


class RelaxedLayer(PathLayer):
    """Paths with amplitudes 1 − exp(−ω²); that of the strictest candidates is 1."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, stage.parts())
        most = max(len(p.members) for p in self.parts)
        self.register_buffer("strict", torch.tensor([len(p.members) == most for p in self.parts]))
        self.omega = nn.Parameter(torch.full((len(self.parts),), START))
        self.factors = self.amplitudes

    def amplitudes(self) -> Tensor:
        return torch.where(self.strict, 1.0, 1 - (-(self.omega**2)).exp())

    def penalty(self) -> Tensor:
        """λ Σ_i ω_i² of the paths that are not strict."""
        return LAMBDA * (self.omega**2 * ~self.strict).sum()

    strict: Tensor


def search(problem: Problem) -> Found:
    network = StageNet(problem, RelaxedLayer)
    layers = [layer for layer in path_layers(network) if isinstance(layer, RelaxedLayer)]
    x, y = problem.pool

    def objective(rows: Tensor) -> Tensor:
        fit = problem.loss(network(x[rows]), y[rows])
        return fit + sum((layer.penalty() for layer in layers), torch.zeros(()))

    omegas = [layer.omega for layer in layers]
    descend(
        groups_of(network, omegas, OMEGA_RATE), objective, len(x), problem.seed, steps=problem.steps
    )
    return Found.of_layers(asymmetries(network), network)


METHOD = Method(
    "relaxed", "van der Ouderaa 2022, 2023", search, "tuned", tuned="λ, rate of lengthscales"
)
