"""Augerino (Benton, Finzi, Izmailov & Wilson 2020).

Predictions are averaged over a learned distribution of motions of the input, and a regulariser
pulls towards a wide one: loss − λ·width, λ = 0.01 as published. Here the distribution is the
mixture of `_mixture.py`, and its width Σ_m π_m log|G_m|/log|G_max| (published: the norm of the
widths of uniform distributions, and one motion per datum in training). Widths are read off in the
paper, without a limit.
"""

from __future__ import annotations

from torch import Tensor

from ._mixture import Averaged, widths
from ._networks import plain_net
from ._problem import Problem
from ._protocol import Found, Method
from ._training import descend, groups_of

LAMBDA, MIXTURE_RATE = 0.01, 0.03


def width(problem: Problem, pi: Tensor) -> Tensor:
    """Σ_m π_m log|G_m|/log|G_max|."""
    return (pi * widths(problem)).sum()


def objective(network: Averaged, x: Tensor, y: Tensor) -> Tensor:
    """loss − λ·width."""
    problem = network.problem
    return problem.loss(network(x), y) - LAMBDA * width(problem, network.mixture.pi())


def search(problem: Problem) -> Found:
    network = Averaged(problem, plain_net(problem))
    x, y = problem.pool
    groups = groups_of(network, [network.mixture.alpha], MIXTURE_RATE)
    descend(
        groups,
        lambda rows: objective(network, x[rows], y[rows]),
        len(x),
        problem.seed,
        steps=problem.steps,
    )
    network.eval()
    return Found(network.mixture.numbers(problem), network)


METHOD = Method(
    "augerino",
    "Benton 2020",
    search,
    "tuned",
    layer_wise=False,
    tuned="rate of the distribution",
)
