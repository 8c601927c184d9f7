"""Ours: `select`. Linear problems: the evidence of every candidate, as in the planted benchmark.
Where that leaves the strictest one open, predictions still obey what is certain.

Deep problems: residual-pathway layers, precisions by the evidence and trials of doubtful paths
(`groupella.training.best_start` and `settle`), with the settings of the planted benchmark.

Predictions have the temperature that `select` gives its network, from data that it held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.decide import NONE, UNDECIDED, Rule
from groupella.evidence.likelihoods import Gaussian
from groupella.experiments.planted._deep import SEARCH, STUDENT
from groupella.experiments.planted._linear import decide
from groupella.groups import GroupSet, trivial
from groupella.nn.layer import ResidualPathway
from groupella.training import FindSettings, best_start, find_symmetry, settle

from ._grid import strict_map
from ._networks import START
from ._problem import FREE, SHRINK, SLOPE, Problem
from ._protocol import Found, Method


class Student(nn.Module):
    """The layers of a deep problem, each a sum of paths; takes x (n, P)."""

    def __init__(self, problem: Problem, start: int) -> None:
        super().__init__()
        groups = GroupSet(trivial(), *problem.groups)
        self.space = groups.space(problem.lattice, 1, "trivial")
        size = max(problem.lattice)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 + problem.seed + 100 * start)
            self.layers = nn.ModuleList(
                ResidualPathway(
                    self.space, self.space, groups, free="FC", bias=False, kernel_size=size
                )
                for _ in problem.layers
            )
        with torch.no_grad():
            for weight in self.parameters():
                weight.mul_(START)

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(-1, *self.space.shape)
        last = len(self.layers) - 1
        for i, layer in enumerate(self.layers):
            x = SHRINK * (x + layer(x))
            x = x if i == last else F.leaky_relu(x, SLOPE)
        return x.flatten(1)


def search_layers(problem: Problem) -> Found:
    x, y = problem.pool
    data = (x.flatten(1), y)
    trained = best_start(
        lambda start: Student(problem, start),
        data,
        replace(STUDENT, seed=problem.seed),
        SEARCH,
        likelihood=Gaussian(),
        progress=False,
    )
    trained, _ = settle(trained, data, SEARCH, progress=False)
    verdicts = trained.selection(rule=Rule(nats=SEARCH.rule.nats)).verdicts.values()
    layers = [None if v == UNDECIDED else _numbers(problem, v) for v in verdicts]
    known = [layer for layer in layers if layer is not None]
    worst = {n: max((layer[n] for layer in known), default=1.0) for n in problem.names}
    return Found(worst, trained.network, len(known) < len(layers), layers=layers)


def imposed(problem: Problem, established: Sequence[str]) -> str:
    """Of the candidates that hold, decided or not, the one with the fewest maps."""
    rows = problem.stages[0].rows
    return min((n for n in established if n != NONE), key=lambda n: len(rows[n]), default=FREE)


def search(problem: Problem) -> Found:
    if problem.layers:
        return search_layers(problem)
    if problem.linear:
        inputs, targets = (a.flatten(1).double().numpy() for a in problem.pool)
        decided = decide(inputs, targets, problem.lattice[0])
        answer = decided.verdict or UNDECIDED
        w = strict_map(problem, imposed(problem, decided.established), problem.pool)
        return Found(_numbers(problem, answer), lambda x: x.flatten(1) @ w.T, answer == UNDECIDED)
    x, y = problem.pool
    found = find_symmetry(
        (x.view(len(x), 1, *problem.lattice), y),
        problem.groups,
        problem.outputs,
        FindSettings(seed=problem.seed),
        progress=False,
    )
    network = found.network.eval()

    def predict(x: torch.Tensor) -> torch.Tensor:
        f: torch.Tensor = network(x.view(len(x), 1, *problem.lattice))
        return f / found.temperature

    return Found(_numbers(problem, found.verdict), predict, found.verdict == UNDECIDED)


def _numbers(problem: Problem, answer: str) -> dict[str, float]:
    names = () if answer in (NONE, UNDECIDED) else answer.split(" and ")
    held = {m for name in names for m in problem.groups.subgroups(name)}
    return {n: float(n not in held) for n in problem.names}


METHOD = Method("ours", "select", search)
