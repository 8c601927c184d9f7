"""Lie algebra convolutions (L-conv; Dehmamy, Walters, Liu, Wang & Yu 2021), on cyclic shifts.

    y = W⁰ x + Σ_i Wⁱ L_i x,

where the matrices W mix channels and the learned generators L_i act on the sites, the same for all
channels. Trained by the loss alone; a map of all sites follows. The generators are compared with
the shifts: the number of a candidate is the share of a layer's ‖W‖² outside its maps, in the worst
layer with generators. (The paper compares by eye, and by correlation with the true generator.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._networks import Layer, PathLayer, StageNet, asymmetries
from ._problem import Part, Problem, Stage
from ._protocol import Found, Method
from ._training import descend

GENERATORS = 4


class GeneratorLayer(Layer):
    """W(c', c) = W⁰(c', c) 1 + Σ_i Wⁱ(c', c) L_i."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        terms, sites = GENERATORS + 1, stage.points
        self.generators = nn.Parameter(torch.randn(GENERATORS, sites, sites) * sites**-0.5)
        size = (2 / (stage.c_in * terms)) ** 0.5
        self.mixing = nn.Parameter(torch.randn(stage.c_out, stage.c_in, terms) * size)

    def matrices(self) -> Tensor:
        sites = self.stage.points
        maps = torch.cat([torch.eye(sites)[None].to(self.generators), self.generators])
        return torch.einsum("oci,ipq->ocpq", self.mixing, maps)


def make(stage: Stage) -> Layer:
    """Generators between fields, any map to numbers."""
    if stage.points_out == 1:
        return PathLayer(stage, [Part("free", None, ())])
    return GeneratorLayer(stage)


def search(problem: Problem) -> Found:
    network = StageNet(problem, make)
    x, y = problem.pool
    descend(
        network.parameters(),
        lambda rows: problem.loss(network(x[rows]), y[rows]),
        len(x),
        problem.seed,
        steps=problem.steps,
    )
    return Found.of_layers(asymmetries(network, None if problem.linear else -1), network)


METHOD = Method(
    "lconv",
    "Dehmamy 2021",
    search,
    "tuned",
    tuned="number of generators",
    families=("sets", "sequences"),
)
