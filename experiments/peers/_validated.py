"""Path weights by validation loss: DARTS (Liu 2019), equivariance-aware NAS (Maile 2022), Yeh 2022.

A layer mixes maps of every candidate and free ones, W = Σ_m softmax(α)_m W_m. Steps alternate:
weights by the training loss, α by the validation loss (the first-order gradient of DARTS, with its
Adam of betas 0.5 and 0.999 and decay 10⁻³). Criterion: the path of largest weight is what a layer
obeys; the network obeys what all layers do. (Yeh et al. learn the sharing of single weights by the
same bilevel objective; here the sharing is among that of the candidates.)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._networks import PathLayer, StageNet
from ._problem import Part, Problem, Stage
from ._protocol import Found, Method
from ._rpp import path_layers
from ._training import Batches, descend

ALPHA_RATE, ALPHA_DECAY = 0.03, 1e-3


class MixedLayer(PathLayer):
    """W = Σ_m softmax(α)_m W_m over whole spaces of maps."""

    def __init__(self, stage: Stage) -> None:
        parts = stage.whole()
        super().__init__(stage, parts, [len(parts) ** 0.5] * len(parts))
        self.alpha = nn.Parameter(torch.zeros(len(parts)))
        self.factors = lambda: self.alpha.softmax(0)


def chosen(layers: list[PathLayer]) -> list[Part]:
    """The path of largest weight, for every layer."""
    found = []
    for layer in layers:
        assert isinstance(layer, MixedLayer)
        found.append(layer.parts[int(layer.alpha.argmax())])
    return found


def outer_gradients(
    problem: Problem, network: StageNet, alphas: list[nn.Parameter], x: Tensor, y: Tensor
) -> tuple[Tensor, ...]:
    """∂L_val/∂α at the present weights: DARTS' gradient of first order."""
    return torch.autograd.grad(problem.loss(network(x), y), alphas)


def search(problem: Problem) -> Found:
    network = StageNet(problem, MixedLayer)
    layers = path_layers(network)
    alphas = [p for n, p in network.named_parameters() if n.endswith("alpha")]
    weights = [p for n, p in network.named_parameters() if not n.endswith("alpha")]
    (x, y), (val_x, val_y) = problem.fit, problem.val
    outer = torch.optim.Adam(alphas, lr=ALPHA_RATE, betas=(0.5, 0.999), weight_decay=ALPHA_DECAY)
    batches = Batches(len(val_x), problem.seed + 1)

    def objective(rows: Tensor) -> Tensor:
        return problem.loss(network(x[rows]), y[rows])

    def each(_: int) -> None:
        rows = batches.next()
        gradients = outer_gradients(problem, network, alphas, val_x[rows], val_y[rows])
        for alpha, gradient in zip(alphas, gradients, strict=True):
            alpha.grad = gradient
        outer.step()

    descend(weights, objective, len(x), problem.seed, steps=problem.steps, each=each)
    paths = chosen(layers)
    numbers = [{n: float(n not in path.members) for n in problem.names} for path in paths]
    return Found.of_layers(numbers, network, details={"paths": [path.name for path in paths]})


METHOD = Method(
    "validated",
    "Liu 2019, Maile 2022, Yeh 2022",
    search,
    validation=True,
    tuned="rate of the path weights",
)
