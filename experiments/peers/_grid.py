"""Grid by validation: one strict network for each candidate, the best on held-out data wins.

What people do today. The networks are `groupella.networks.invariant_net`; of a linear problem, the
least-squares map among those of the candidate. Criterion: the highest held-out log-likelihood.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from groupella.groups import trivial
from groupella.networks import invariant_net

from ._networks import Sites
from ._problem import FREE, Data, Predict, Problem
from ._protocol import Found, Method
from ._training import descend

WIDTH = 16


def strict_map(problem: Problem, name: str, data: Data) -> Tensor:
    """The matrix (P, P) of least squares among the maps that obey a candidate."""
    x, y = data[0].flatten(1).double(), data[1].double()
    sites = problem.sites
    rows = torch.eye(sites * sites) if name == FREE else problem.stages[0].rows[name]
    rows = rows.double().view(-1, sites, sites)
    gram = torch.einsum("aij,jk,bik->ab", rows, x.T @ x, rows)
    target = torch.einsum("aij,ij->a", rows, y.T @ x)
    u = torch.linalg.lstsq(gram + 1e-6 * torch.eye(len(gram)), target).solution
    return torch.einsum("a,aij->ij", u, rows).float()


def strict_network(problem: Problem, name: str, data: Data) -> Predict:
    """Predictions of a trained network that obeys a candidate, or nothing (`FREE`)."""
    x, y = data
    if problem.linear:
        w = strict_map(problem, name, data)
        return lambda x: x.flatten(1) @ w.T
    member = trivial() if name == FREE else problem.groups[name]
    convolutions = any(problem.groups[n].is_catalogue for n in problem.names)
    network = nn.Sequential(
        Sites(problem.lattice),
        invariant_net(
            member, problem.lattice, 1, problem.outputs, width=WIDTH, convolutions=convolutions
        ),
    )
    network.train()
    descend(
        network.parameters(),
        lambda rows: problem.loss(network(x[rows]), y[rows]),
        len(y),
        problem.seed,
        steps=problem.steps,
    )
    network.eval()
    return network


def search(problem: Problem) -> Found:
    x, y = problem.val
    networks = {n: strict_network(problem, n, problem.fit) for n in (FREE, *problem.names)}
    with torch.no_grad():
        losses = {n: float(problem.loss(f(x), y)) for n, f in networks.items()}
    best = min(losses, key=losses.__getitem__)
    held = () if best == FREE else problem.groups.subgroups(best)
    numbers = {n: float(n not in held) for n in problem.names}
    return Found(numbers, networks[best], details={"losses": losses})


METHOD = Method("grid", "one network each", search, validation=True, layer_wise=False)
