"""The probabilistic degree of equivariance (Veefkind & Cesa 2024).

Partial G-CNNs' layers, whose distributions q_l are regularised:

    loss + λ · mean_l KL(q_l ‖ q_{l−1}) + 5/3 λ · Σ_l (max q_l − q_l(e)).

The published weights are 3 and 5. Of groups with hundreds or thousands of elements, as here, KL is
several nats, which no loss of labels outweighs: with 3, all layers stayed at the largest group on
the tuning task sets-cyclic8. Here λ = 0.03.
q_{l−1} is held constant and that before the first layer is uniform: symmetry that is lost is not
regained. The last term aligns the most likely element with the identity; here it is always so.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._partial import PartialLayer, train
from ._problem import FREE, Problem
from ._protocol import Found, Method

KL, ALIGN = 0.03, 0.05


class Elements:
    """Elements of the largest group, sorted by the smallest candidate that contains them."""

    def __init__(self, problem: Problem) -> None:
        names = (FREE, *problem.names)
        inside = {
            n: set(problem.groups.subgroups(n)) | {FREE} if n != FREE else {FREE} for n in names
        }
        exact: dict[str, int] = {}
        for name in sorted(names, key=problem.order):
            smaller = [m for m in inside[name] if m != name]
            exact[name] = problem.order(name) - sum(exact[m] for m in smaller)
        self.counts = torch.tensor([float(exact[n]) for n in names])
        self.density = torch.tensor(
            [[(n in inside[m]) / problem.order(m) for m in names] for n in names]
        )

    def q(self, pi: Tensor) -> Tensor:
        """The probability of one element of every kind."""
        return self.density.to(pi) @ pi

    def kl(self, pi: Tensor, other: Tensor | None) -> Tensor:
        """KL(q ‖ q'), or to the uniform distribution."""
        q, counts = self.q(pi), self.counts.to(pi)
        reference = torch.full_like(q, 1 / float(counts.sum()))
        if other is not None:
            reference = self.q(other)
        kept = counts > 0
        return (counts * q * (q / reference).log())[kept].sum()


def regulariser(elements: Elements, layers: list[PartialLayer]) -> Tensor:
    """λ · mean_l KL(q_l ‖ q_{l−1}) + 5/3 λ · Σ_l (max q_l − q_l(e))."""
    total, before = torch.zeros(()), None
    for layer in layers:
        pi = layer.mixture.pi()
        q = elements.q(pi)
        total = total + KL * elements.kl(pi, before) / len(layers) + ALIGN * (q.max() - q[0])
        before = pi.detach()
    return total


def search(problem: Problem) -> Found:
    elements = Elements(problem)
    return train(problem, lambda layers: regulariser(elements, layers))


METHOD = Method("degree", "Veefkind 2024", search, "tuned", tuned="λ, rate, start, burn-in")
