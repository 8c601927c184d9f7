"""Digits whose labels depend, or not, on position, rotation and reflection.

Every digit is put in a quadrant of a 16×16 torus and moved by a random element of p4m. Its label
says which digit it is, and which coset of the planted member moved it, so that labels obey that
member and nothing larger. The head of the student is invariant to p4m; what the labels tell apart,
some layer must tell apart, but nothing says which one. So the verdict is on the network: the
members that all of its layers obey.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from groupella.data import labelled
from groupella.decide import Selection
from groupella.groups import p4m, z2
from groupella.training import Settings, fit

from ._candidates import CANDIDATES
from ._decide import NATS, decided, paths_of
from ._deep import accuracy
from ._invariant import InvariantTrunk
from ._outcome import NONE, Outcome

SIDE = 16
CHANNELS = 4
DIGITS = ("2", "4", "7")
STUDENT = Settings(
    epochs=30,
    lr=0.01,
    batch_size=64,
    burn_in=3,
    curvature_subset=400,
    curvature_samples=2,
    prune_from=None,
)


@dataclass(frozen=True)
class LabelCase:
    """Labels that obey exactly `planted`."""

    planted: str
    n: int = 1500
    seed: int = 0

    part: ClassVar[str] = "data"

    @property
    def key(self) -> str:
        return f"data-{self.planted}-n{self.n}-s{self.seed}"

    @property
    def is_short(self) -> bool:
        return False

    @property
    def recipe(self) -> dict[str, Any]:
        return {
            "student": STUDENT.as_dict(),
            "rule": {"nats": NATS},
            "channels": CHANNELS,
            "digits": DIGITS,
        }

    def run(self, workspace: Path) -> Outcome:
        started = time.process_time()
        train, held_out = draw(self)
        classes = 1 + int(torch.cat([train[1], held_out[1]]).max())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1000 + self.seed)
            student = InvariantTrunk(CHANNELS, classes, SIDE)
        settings = replace(STUDENT, seed=self.seed)
        place = workspace / "student"
        trained = fit(student, train, settings=settings, directory=place, progress=False)
        found = decided(trained)
        return Outcome(
            part="data",
            key=self.key,
            planted=(NONE if CANDIDATES[self.planted].is_trivial else self.planted,),
            obeys=(common(found),),
            counted=(True,),
            n=self.n,
            noise=0.0,
            seed=self.seed,
            seconds=time.process_time() - started,
            details={
                "accuracy": accuracy(student, held_out),
                "layers": found.verdicts,
                "paths": paths_of(found),
            },
        )


def draw(case: LabelCase) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Training and held-out data. Labels without any symmetry tell quadrants apart only, since 32
    cosets of every digit would leave few examples of each."""
    symmetry = CANDIDATES[case.planted]
    group = z2() if symmetry.is_trivial else p4m()
    parts: list[tuple[Tensor, ...]] = []
    count = turn = 0
    while count < case.n:
        data = labelled(group, symmetry, keep=DIGITS, seed=1000 * case.seed + turn)
        parts.append((data.train_x, data.train_y, data.test_x, data.test_y))
        count += len(data.train_y)
        turn += 1
    x, y, test_x, test_y = (torch.cat(column) for column in zip(*parts, strict=True))
    return (x[: case.n], y[: case.n]), (test_x, test_y)


def common(found: Selection) -> tuple[str, ...]:
    """The strictest members that all layers obey."""
    obeyed = [
        {m for name in layer.obeys for m in CANDIDATES.subgroups(name)} for layer in found.layers
    ]
    together = [
        m
        for m in CANDIDATES.names
        if not CANDIDATES[m].is_trivial and all(m in members for members in obeyed)
    ]
    return CANDIDATES.maximal(together) if together else ()
