"""Compare the evidence by Kronecker factors, by all weights together and from the kernel side.

Two layers with all paths and a classifier are trained on digits of 4×4 pixels, with precisions
learned from the Kronecker factors. At the same weights and precisions the three then differ in the
Occam factor ½ log |1 + D⁻¹ H| only.

    python -m groupella.experiments.planted.evidence_error
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.data import Moved, load
from groupella.evidence import Evidence, exact_evidence, kernel_evidence
from groupella.evidence.likelihoods import Categorical
from groupella.groups import p4m
from groupella.nn.layer import ResidualPathway

from ._result import CANDIDATES

STEPS = 200
UPDATES = range(50, STEPS, 25)
BLOCK = 25

Data = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Comparison:
    """Occam factors in nats and CPU seconds, by method."""

    weights: int
    occam: dict[str, float]
    seconds: dict[str, float]


def trained(free: str, increments: bool, data: Data, steps: int = STEPS) -> Evidence:
    """A small network with all paths, fitted to the data, and its evidence."""
    torch.manual_seed(0)
    image, hidden = (CANDIDATES.space((4, 4), c, "trivial") for c in (1, 2))
    options: dict[str, Any] = {"free": free, "increments": increments, "offsets": False}
    network = nn.Sequential(
        ResidualPathway(image, hidden, CANDIDATES, **options),
        nn.Tanh(),
        ResidualPathway(hidden, hidden, CANDIDATES, **options),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(hidden.size, 10),
    ).double()
    evidence = Evidence(network, Categorical())
    optimiser = torch.optim.Adam(network.parameters(), 0.02)
    x, y = data
    for step in range(steps):
        optimiser.zero_grad()
        torch.autograd.backward(evidence.loss(network(x), y, len(x)))
        optimiser.step()
        if step in UPDATES:
            evidence.update(data)
    evidence.collect(data)
    return evidence


def compare(evidence: Evidence, data: Data, block: int = BLOCK) -> Comparison:
    """The Occam factor by each method at the present weights and precisions."""

    def factored() -> float:
        evidence.collect(data)
        return -sum(term.log_volume for term in evidence.report().terms)

    methods: dict[str, Callable[[], float]] = {
        "KFAC": factored,
        "exact": lambda: -exact_evidence(evidence, data, steps=0, left_out=0.0).log_volume,
        "kernel": lambda: -kernel_evidence(evidence, data).log_volume,
        "blocks": lambda: -kernel_evidence(evidence, data, block=block).log_volume,
    }
    occam, seconds = {}, {}
    for name, method in methods.items():
        started = time.process_time()
        occam[name] = method()
        seconds[name] = time.process_time() - started
    return Comparison(sum(p.numel() for p in evidence.network.parameters()), occam, seconds)


def digits(n: int) -> Data:
    """n digits of 4×4 pixels, moved by p4m."""
    found = load("digits", Moved(p4m()), seed=0)
    return F.avg_pool2d(found.train_x[:n].double(), 2), found.train_y[:n]


def main() -> None:
    """Print a table: free path, increments, data, weights, then nats and seconds by method."""
    print("free  increments    n  weights    KFAC   exact  kernel  blocks   CPU s")
    for free in ("FC", "F-FC"):
        for increments in (True, False):
            for n in (50, 150):
                data = digits(n)
                found = compare(trained(free, increments, data), data)
                nats = "".join(f"{v:8.1f}" for v in found.occam.values())
                seconds = ", ".join(f"{v:.1f}" for v in found.seconds.values())
                print(f"{free:5} {increments!s:10} {n:4} {found.weights:8}{nats}   {seconds}")


if __name__ == "__main__":
    main()
