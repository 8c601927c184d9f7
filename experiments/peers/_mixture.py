"""A learned distribution over group elements: a mixture of uniform ones.

    q(g) = π_free 1[g = e] + Σ_m π_m 1[g ∈ G_m]/|G_m|,      π = softmax(α).

Its vertices are the candidates themselves, averages over q are linear in π, and nothing has to be
sampled to differentiate. A candidate is obeyed as far as q spreads over all of it: its number is 1
less the mass Σ π_n of the groups n that contain it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ._problem import FREE, Problem


class Mixture(nn.Module):
    """π over no symmetry and all candidates. `strict` is the mass that the largest starts with."""

    def __init__(self, problem: Problem, strict: float | None = None) -> None:
        super().__init__()
        self.names = (FREE, *problem.names)
        alpha = torch.zeros(len(self.names))
        if strict is not None:
            largest = max(range(len(self.names)), key=lambda i: problem.order(self.names[i]))
            odds = strict / (1 - strict) * (len(self.names) - 1)
            alpha[largest] = torch.tensor(odds).log()
        self.alpha = nn.Parameter(alpha)

    def pi(self) -> Tensor:
        return self.alpha.softmax(0)

    def numbers(self, problem: Problem) -> dict[str, float]:
        """1 − Σ π_n over the groups n that contain a candidate."""
        mass = dict(zip(self.names, self.pi().tolist(), strict=True))
        return {
            name: max(1 - sum(mass[n] for n in problem.groups.supergroups(name)), 0.0)
            for name in problem.names
        }


def widths(problem: Problem) -> Tensor:
    """log|G_m| relative to that of the largest candidate, in the order of a mixture: 0 to 1."""
    sizes = torch.tensor([float(problem.order(n)) for n in (FREE, *problem.names)]).log()
    return sizes / sizes.max()


class Averaged(nn.Module):
    """f̄(x) = E_q f(g x); of a linear problem E_q g⁻¹ f(g x), exactly."""

    def __init__(self, problem: Problem, network: nn.Module, copies: int = 1) -> None:
        super().__init__()
        self.problem, self.network, self.copies = problem, network, copies
        self.mixture = Mixture(problem)
        self.generator = torch.Generator().manual_seed(problem.seed)

    def each(self, x: Tensor) -> Tensor:
        """Mean outputs over some elements of every group, (groups, n, outputs)."""
        problem = self.problem
        if problem.linear:
            w: Tensor = next(self.network.parameters())
            stage = problem.stages[0]
            maps = [w, *(stage.projected(w, m) for m in problem.names)]
            return torch.stack([x.flatten(1) @ m.T for m in maps])
        copies = self.copies if self.training else 4 * self.copies
        found = []
        for name in self.mixture.names:
            count = 1 if name == FREE else copies
            moved = [problem.moved(x, name, self.generator)[0] for _ in range(count)]
            f = self.network(torch.cat(moved))
            found.append(f.view(count, len(x), -1).mean(0))
        return torch.stack(found)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("m,mnk->nk", self.mixture.pi(), self.each(x))
