"""LieGAN (Yang, Walters, Dehmamy & Yu 2023), over a finite group.

A generator draws group elements g ~ q (the mixture of `_mixture.py`) and a discriminator tells data
(x, y) from moved data (g x, g y); labels of classes do not move. In turn

    generator:       E_q[−log D(gx, gy)] + λ |E_q cos(gx, x)|,
    discriminator:  ½ E[−log D(x, y)] + ½ E_q[−log(1 − D(gx, gy))],

with betas 0.5 and 0.999 of the generator's Adam as published. The cosine keeps it from the identity
(λ = 1 as in the published commands; with 0.01, the default of their code, the identity won on the
tuning seeds). Averages over q are exact in π. It gives no predictor: that of the table is a strict
network with the symmetry found, trained afterwards.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.decide import NONE

from ._grid import strict_network
from ._mixture import Mixture
from ._problem import FREE, Problem
from ._protocol import Found, Method, verdict
from ._training import Batches

LAMBDA, BETAS = 1.0, (0.5, 0.999)
GENERATOR_RATE, DISCRIMINATOR_RATE = 0.01, 0.001
WIDTH = 128


def generator_loss(pi: Tensor, logits: Tensor, cosines: Tensor) -> Tensor:
    """Σ_m π_m mean −log D + λ |Σ_m π_m mean cos|, from (groups, n) of moved data."""
    return (pi * F.softplus(-logits).mean(1)).sum() + LAMBDA * (pi * cosines.mean(1)).sum().abs()


def discriminator_loss(pi: Tensor, real: Tensor, fake: Tensor) -> Tensor:
    """½ mean −log D(real) + ½ Σ_m π_m mean −log(1 − D(fake_m))."""
    return 0.5 * F.softplus(-real).mean() + 0.5 * (pi * F.softplus(fake).mean(1)).sum()


def search(problem: Problem) -> Found:
    mixture = Mixture(problem)
    x, y = problem.pool
    target = y if problem.linear else F.one_hot(y, problem.outputs).to(x)
    discriminator = nn.Sequential(
        nn.Linear(problem.sites + target.shape[1], WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, WIDTH),
        nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, 1),
    )
    first = torch.optim.Adam(mixture.parameters(), lr=GENERATOR_RATE, betas=BETAS)
    second = torch.optim.Adam(discriminator.parameters(), lr=DISCRIMINATOR_RATE)
    batches, generator = (
        Batches(len(x), problem.seed),
        torch.Generator().manual_seed(problem.seed),
    )
    for _ in range(problem.steps):
        rows = batches.next()
        real, fakes, cosines = torch.cat([x[rows].flatten(1), target[rows]], 1), [], []
        for name in mixture.names:
            moved, index = problem.moved(x[rows], name, generator)
            t = target[rows].gather(1, index) if problem.linear else target[rows]
            fakes.append(torch.cat([moved.flatten(1), t], 1))
            cosines.append(F.cosine_similarity(moved.flatten(1), x[rows].flatten(1)))
        fake = torch.stack(fakes)
        first.zero_grad()
        pi = mixture.pi()
        loss = generator_loss(pi, discriminator(fake)[..., 0], torch.stack(cosines))
        loss.backward()  # type: ignore[no-untyped-call]
        first.step()
        second.zero_grad()
        logits = discriminator(fake)[..., 0]
        loss = discriminator_loss(pi.detach(), discriminator(real)[:, 0], logits)
        loss.backward()  # type: ignore[no-untyped-call]
        second.step()
    numbers = mixture.numbers(problem)
    named = verdict(numbers, METHOD.threshold(problem.task), problem.candidates)
    imposed = FREE if named == NONE else named.split(" and ")[0]
    return Found(numbers, strict_network(problem, imposed, problem.pool))


METHOD = Method("liegan", "Yang 2023", search, "tuned", layer_wise=False, tuned="rates, width")
