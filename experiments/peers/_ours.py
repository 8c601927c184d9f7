"""Ours: `select`. Linear problems: the evidence of every candidate, as in the planted benchmark.

Predictions have the temperature that `select` gives its network, from data that it held out.
"""

from __future__ import annotations

import torch

from groupella.decide import NONE, UNDECIDED
from groupella.experiments.planted._linear import decide
from groupella.training import FindSettings, find_symmetry

from ._grid import strict_map
from ._problem import FREE, Problem
from ._protocol import Found, Method


def search(problem: Problem) -> Found:
    if problem.linear:
        inputs, targets = (a.flatten(1).double().numpy() for a in problem.pool)
        answer = decide(inputs, targets, problem.lattice[0]).verdict or UNDECIDED
        imposed = FREE if answer in (NONE, UNDECIDED) else answer
        w = strict_map(problem, imposed, problem.pool)
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
