"""Linear teachers: y = W*x + noise with W* in the equivariant maps of a planted member.

For every member the evidence of "W lies in its subspace" is computed exactly, with everything
fitted again for that hypothesis (`_hypotheses.py`), and `groupella.decide.assertion` decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from groupella.bases import Basis, equivariant_basis, increments
from groupella.decide import NONE, UNDECIDED
from groupella.decide.assertion import LEAST, LEVEL, Assertion, assertion
from groupella.groups import FeatureSpace

from ._hypotheses import POWER, FloatArray, Hypothesis, Moments
from ._result import CANDIDATES, CaseResult

Fibre = Literal["trivial", "regular"]


@dataclass(frozen=True)
class LinearCase:
    """One teacher and its data. `noise` is its size relative to the signal's."""

    planted: str
    n: int
    seed: int
    side: int = 8
    fibre: Fibre = "trivial"
    noise: float = 0.1

    part: ClassVar[str] = "linear"
    is_short: ClassVar[bool] = True

    @property
    def recipe(self) -> dict[str, Any]:
        return {"level": LEVEL, "least": LEAST, "power": POWER}

    @property
    def key(self) -> str:
        name = f"linear-{self.fibre}{self.side}-{self.planted}-n{self.n}-s{self.seed}"
        return name if self.noise == 0.1 else f"{name}-noise{self.noise:g}"

    def run(self, _: Path) -> CaseResult:
        """Draw the teacher, compare the hypotheses, decide."""
        started = time.process_time()
        data = draw(self)
        found = decide(data.x, data.y, self.side, self.fibre)
        return CaseResult(
            part=f"linear {self.fibre} {self.side}",
            key=self.key,
            planted=(_name(self.planted),),
            verdicts=(found.verdict or UNDECIDED,),
            counted=(self.planted not in coincident(self.side, self.fibre),),
            n=self.n,
            noise=self.noise,
            seed=self.seed,
            seconds=time.process_time() - started,
            details={"probabilities": found.probabilities, "reason": found.reason},
        )


@dataclass(frozen=True)
class Data:
    """Inputs and targets (n, V), and the teacher's matrix (V, V)."""

    x: FloatArray
    y: FloatArray
    teacher: FloatArray


def space_of(side: int, fibre: Fibre) -> FeatureSpace:
    return CANDIDATES.space((side, side), 1, fibre)


@lru_cache(maxsize=4)
def member_bases(side: int, fibre: Fibre) -> Mapping[str, Basis]:
    """The equivariant maps of every member but the trivial one."""
    space = space_of(side, fibre)
    return {m.name: equivariant_basis(space, space, m) for m in CANDIDATES if not m.is_trivial}


def coincident(side: int, fibre: Fibre) -> dict[str, str]:
    """Members whose maps are those of a stricter one, so that no data can tell them apart."""
    bases = member_bases(side, fibre)
    return {
        name: other
        for name in bases
        for other in bases
        if other != name
        and CANDIDATES.contains(other, name)
        and bases[other].dim == bases[name].dim
    }


def draw(case: LinearCase) -> Data:
    """A teacher with unit signal for white inputs, and noisy data from it."""
    rng = np.random.default_rng([case.seed, case.n, CANDIDATES.names.index(case.planted)])
    size = space_of(case.side, case.fibre).size
    if CANDIDATES[case.planted].is_trivial:
        teacher = rng.standard_normal((size, size))
    else:
        basis = member_bases(case.side, case.fibre)[case.planted]
        teacher = basis.expand(rng.standard_normal(basis.dim))
    teacher /= math.sqrt(float((teacher**2).sum()) / size)
    x = rng.standard_normal((case.n, size))
    y = x @ teacher.T + case.noise * rng.standard_normal((case.n, size))
    return Data(x, y, teacher)


def log_evidences(x: FloatArray, y: FloatArray, side: int, fibre: Fibre) -> dict[str, float]:
    """The log evidence of every hypothesis that differs from all stricter ones."""
    parts = _increments(side, fibre)
    moments = Moments.of(x, y, (side, side))
    found = {}
    for member in CANDIDATES:
        if member.name not in coincident(side, fibre):
            names = parts.bases if member.is_trivial else parts.inside(member.name)
            rows = [parts.bases[name].matrix for name in names]
            hypothesis = Hypothesis(moments, rows, free=member.is_trivial)
            found[_name(member.name)] = hypothesis.log_evidence()
    return found


def decide(x: FloatArray, y: FloatArray, side: int = 8, fibre: Fibre = "trivial") -> Assertion:
    """The strictest member that the map from x to y (n, V) obeys, or "undecided"."""
    implies = {_name(m): [_name(s) for s in CANDIDATES.subgroups(m)] for m in CANDIDATES.names}
    return assertion(log_evidences(x, y, side, fibre), implies)


@lru_cache(maxsize=4)
def _increments(side: int, fibre: Fibre) -> Any:
    return increments(member_bases(side, fibre))


def _name(member: str) -> str:
    return NONE if CANDIDATES[member].is_trivial else member
