"""BayesNAS (Zhou, Yang, Wang & Pan 2019): sparse Bayesian learning of switches on paths.

Path i of a layer is multiplied with a switch s_i, which has the hierarchical prior
s_i ~ N(0, γ_i). Weights and switches minimise

    loss + λ Σ_i ω_i |s_i|,    λ = 0.01,

and, from the diagonal Hessian H of the loss in the switches, now and then

    C_i = 1/(1/γ_i + H_i/λ),    ω_i = √|1/γ_i − C_i/γ_i²|,    γ_i = |s_i|/ω_i.

λ stands for the noise of the likelihood, as in the published code. H is that of Gauss and Newton.
No path contains another: that of any map has what all candidates lack. Paths with a small γ are
cut; the paper gives no limit. The number of a candidate is the largest γ of a path outside its maps
relative to the largest of the layer, in the worst layer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from ._networks import PathLayer, StageNet, outside
from ._problem import Problem, Stage
from ._protocol import Found, Method
from ._rpp import path_layers
from ._training import descend, groups_of

LAMBDA, SWITCH_RATE = 0.01, 0.02
UPDATES, CURVATURE_DATA = 6, 100


class SwitchedLayer(PathLayer):
    """Paths of a fixed norm with a switch each, which alone says how large a path is.

    In the paper the operations are normalised, too, by their batch.
    """

    size_parameters = ("switches",)

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, stage.parts(), apart=True)
        self.switches = nn.Parameter(torch.ones(len(self.parts)))
        self.factors = self.scaled_switches

    def scaled_switches(self) -> Tensor:
        """s_i √size/‖W_i‖: rows are orthonormal, up to the unit of the stage."""
        norms = torch.stack(
            [
                self.free(w).norm() if part.rows is None else self.stage.unit * w.norm()
                for part, w in zip(self.parts, self.weights, strict=True)
            ]
        )
        size = 2 * self.stage.c_out * self.stage.points_out / len(self.parts)
        return self.switches * math.sqrt(size) / norms.clamp(min=1e-6)


def update(s: Tensor, gamma: Tensor, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """ω and the new γ, from switches, the old γ and the Hessian."""
    c = 1 / (1 / gamma + hessian / LAMBDA)
    omega = (1 / gamma - c / gamma**2).abs().sqrt().clamp(min=1e-6)
    return omega, (s.abs() / omega).clamp(min=1e-6)


def switch_hessian(problem: Problem, network: StageNet, name: str, x: Tensor) -> Tensor:
    """The diagonal of mean_n J_nᵀ Λ_n J_n in the switches `name` of a layer."""
    values = dict(network.named_parameters())
    start = values[name].detach()

    def outputs(s: Tensor) -> Tensor:
        f: Tensor = functional_call(network, {name: s}, (x,))
        return f

    found = []
    for i in range(len(start)):
        f, d, *_ = jvp(outputs, (start,), (torch.eye(len(start))[i],))
        if problem.regression:  # the mean squared error has the Hessian 2/P
            found.append(2 * (d**2).mean())
        else:
            p = f.softmax(1)
            found.append(((p * d**2).sum(1) - (p * d).sum(1) ** 2).mean())
    return torch.stack(found).detach()


def search(problem: Problem) -> Found:
    network = StageNet(problem, SwitchedLayer)
    layers = path_layers(network)
    x, y = problem.pool
    switches = {f"layers.{i}.switches": _switches(layer) for i, layer in enumerate(layers)}
    gammas = {name: torch.ones_like(s) for name, s in switches.items()}
    omegas = {name: torch.ones_like(s) for name, s in switches.items()}

    def objective(rows: Tensor) -> Tensor:
        sparse = sum(((omegas[n] * s.abs()).sum() for n, s in switches.items()), torch.zeros(()))
        return problem.loss(network(x[rows]), y[rows]) + LAMBDA * sparse

    def each(step: int) -> None:
        if (step + 1) % (problem.steps // UPDATES) == 0:
            network.eval()  # the statistics of batches are constants
            for name, s in switches.items():
                hessian = switch_hessian(problem, network, name, x[:CURVATURE_DATA])
                omegas[name], gammas[name] = update(s.detach(), gammas[name], hessian)
            network.train()

    descend(
        groups_of(network, switches.values(), SWITCH_RATE),
        objective,
        len(x),
        problem.seed,
        steps=problem.steps,
        each=each,
    )
    numbers = []
    for layer, gamma in zip(layers, gammas.values(), strict=True):
        relative = (gamma / gamma.max()).tolist()
        numbers.append({n: max(0.0, *outside(layer.parts, relative, n)) for n in problem.names})
    return Found.of_layers(numbers, network)


def _switches(layer: PathLayer) -> nn.Parameter:
    assert isinstance(layer, SwitchedLayer)
    return layer.switches


METHOD = Method(
    "bayesnas", "Zhou 2019", search, "tuned", tuned="rate of the switches, number of updates"
)
