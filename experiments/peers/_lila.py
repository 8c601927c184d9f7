"""LILA (Immer, van der Ouderaa, Rätsch, Fortuin & van der Wilk 2022).

Augerino's averages, but the distribution of motions is learned by the Laplace evidence of the
training data, without a regulariser: with f̄ = Σ_m π_m f_m and its Jacobian J̄ = Σ_m π_m J_m,

    log p(D) ≈ log p(y | f̄) − δ/2 ‖θ‖² − ½ log|1 + Λ^½ J̄ J̄ᵀ Λ^½/δ|,

which is differentiated in π and in the prior precision δ (and the noise of a linear problem). The
determinant is that of batches, each standing for as many as there are: a lower bound of the
evidence (Immer et al. 2023). After a burn-in, hyper-parameters are learned every second step with
Adam; with every tenth, distributions were far from their end on the tuning seed.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from ._mixture import Averaged
from ._networks import plain_net
from ._problem import FREE, Problem
from ._protocol import Found, Method
from ._training import Batches, descend

RATE, EVERY, BLOCK = 0.1, 2, 12
START = 0.3  # share of the steps before hyper-parameters are learned


def log_evidence(
    fit: Tensor, squared_norm: Tensor, roots: Tensor, delta: Tensor, share: float
) -> Tensor:
    """log p(y | f̄) − δ/2 ‖θ‖² + (Gaussian constants cancel) − ½ log|1 + R Rᵀ/δ| / share.

    `roots` R (rows, P) is Λ^½ J̄ of the share of the data.
    """
    kernel = torch.eye(len(roots)) + roots @ roots.T / delta
    return fit - 0.5 * delta * squared_norm - 0.5 * torch.logdet(kernel) / share


def hessian_root(f: Tensor) -> Tensor:
    """L (n, K, K) with L Lᵀ = diag(p) − p pᵀ, from logits."""
    p = f.softmax(1)
    return torch.diag_embed(p.sqrt()) - torch.einsum("ni,nj->nij", p, p.sqrt())


def jacobians(problem: Problem, network: Averaged, x: Tensor) -> Tensor:
    """J_m of every group (groups, n, K, weights), each datum moved by one random element."""
    weights = {k: v.detach() for k, v in network.network.named_parameters()}

    def outputs(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        f: Tensor = functional_call(network.network, weights, (x[None],))
        return f[0]

    found = []
    for name in network.mixture.names:
        moved = x if name == FREE else problem.moved(x, name, network.generator)[0]
        each = vmap(jacrev(outputs), in_dims=(None, 0))(weights, moved)
        found.append(torch.cat([j.flatten(2) for j in each.values()], 2))
    return torch.stack(found)


def linear_jacobians(problem: Problem, network: Averaged, x: Tensor) -> Tensor:
    """J_m of the map Σ_m π_m P_m(W) x: P_m is an orthogonal projector of matrices."""
    sites, stage = problem.sites, problem.stages[0]
    eye = torch.eye(sites * sites).view(-1, sites, sites)
    maps = [eye, *(stage.projected(eye, m) for m in problem.names)]
    return torch.stack([torch.einsum("wij,nj->niw", m, x.flatten(1)) for m in maps])


class Objective(nn.Module):
    """The evidence, with log δ and log σ²."""

    def __init__(self, problem: Problem, network: Averaged) -> None:
        super().__init__()
        self.problem, self.network = problem, network
        self.log_delta = nn.Parameter(torch.zeros(()))
        self.log_noise = nn.Parameter(torch.tensor(-1.0), requires_grad=problem.linear)

    def forward(self, rows: Tensor) -> Tensor:
        """log p(D)/n, estimated from some of the data."""
        problem, network = self.problem, self.network
        x, y = problem.pool[0][rows], problem.pool[1][rows]
        pi, delta = network.mixture.pi(), self.log_delta.exp()
        norm = sum(((p.detach() ** 2).sum() for p in network.network.parameters()), torch.zeros(()))
        share = len(rows) / len(problem.pool[0])
        with torch.no_grad():
            make = linear_jacobians if problem.linear else jacobians
            each, f = make(problem, network, x), network.each(x)
        j, f = torch.einsum("m,mnkw->nkw", pi, each), torch.einsum("m,mnk->nk", pi, f)
        if problem.linear:
            noise = self.log_noise.exp()
            error = ((f - y) ** 2).sum() / noise
            fit = -0.5 * (error + y.numel() * (self.log_noise + math.log(2 * math.pi)))
            roots = (j / noise.sqrt()).flatten(0, 1)
        else:
            fit = -nn.functional.cross_entropy(f, y, reduction="sum")
            roots = torch.einsum("nkl,nkw->nlw", hessian_root(f.detach()), j).flatten(0, 1)
        return log_evidence(fit / share, norm, roots, delta, share) / len(problem.pool[0])


def search(problem: Problem) -> Found:
    network = Averaged(problem, plain_net(problem))
    evidence = Objective(problem, network)
    x, y = problem.pool
    own = [network.mixture.alpha, evidence.log_delta]
    own += [evidence.log_noise] if problem.linear else []
    outer = torch.optim.Adam(own, lr=RATE)
    batches = Batches(len(x), problem.seed + 1, BLOCK if not problem.linear else 2 * BLOCK)

    def objective(rows: Tensor) -> Tensor:
        fit = problem.loss(network(x[rows]), y[rows])
        scale = 2 * float(evidence.log_noise.exp().detach()) / y[0].numel() if problem.linear else 1
        norm = sum(((p**2).sum() for p in network.network.parameters()), torch.zeros(()))
        return fit + scale * 0.5 * evidence.log_delta.exp().detach() * norm / len(x)

    def each(step: int) -> None:
        if step % EVERY == 0 and step >= START * problem.steps:
            outer.zero_grad()
            loss: Tensor = -evidence(batches.next())
            loss.backward()  # type: ignore[no-untyped-call]
            network.network.zero_grad()
            outer.step()

    descend(
        network.network.parameters(),
        objective,
        len(x),
        problem.seed,
        steps=problem.steps,
        each=each,
    )
    network.eval()
    return Found(network.mixture.numbers(problem), network)


METHOD = Method(
    "lila", "Immer 2022", search, "tuned", layer_wise=False, tuned="rate of hyper-parameters"
)
