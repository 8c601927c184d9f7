"""Linear teachers: y = W*x + noise with W* in the equivariant maps of a planted member.

The student is one residual-pathway layer with a path for every member: in basis form, spanning
the member's subspace or its orthogonal increment, and a plain matrix V for the trivial member. Its
MAP weights have a closed form. With G = XᵀX, s the noise variance, δ₀ the precision of V and B the
basis maps of all other paths, V given the rest is a ridge regression, and what remains is

    (Bᵀ(1 ⊗ M)B + diag δ) u = Bᵀ vec(YᵀX/s · R),   R = δ₀ (G/s + δ₀)⁻¹,   M = G/s · R,

solved by conjugate gradients, since B is sparse. Curvature does not depend on the weights, so it is
collected once; MAP solution and evidence step then alternate until the precisions settle.

A path is alive when the evidence falls by `NATS` or more without it, and by half a nat or more for
each of its effective parameters. Of the paths that are not needed, nearly half fit some of the
noise and end with a γ that is anything but negligible (k directions with χ² > k give
γ/k = 1 − k/χ²), so γ alone cannot tell. Paths in doubt are taken out one by one, the least needed
first, and everything else (the noise, too) is fitted again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import nn

from groupella.bases import Basis, equivariant_basis, increments
from groupella.decide import Rule, Selection, selection
from groupella.evidence import DataFit, Evidence, Prior
from groupella.evidence.likelihoods import Gaussian
from groupella.groups import FeatureSpace
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import DenseBasis, FullyConnected

from ._candidates import CANDIDATES
from ._outcome import NONE, Outcome

FloatArray = npt.NDArray[np.float64]
Fibre = Literal["trivial", "regular"]

NATS = 5.0
CLEAR = 1.0
DOUBT = 50.0
REMOVED = 1e12
ROUNDS = 100
SETTLED = 1e-2
_CG_STEPS = 500
_CG_TOLERANCE = 1e-10


@dataclass(frozen=True)
class LinearCase:
    """One teacher and its data. `noise` is its size relative to the signal's."""

    planted: str
    n: int
    seed: int
    side: int = 8
    fibre: Fibre = "trivial"
    noise: float = 0.1
    orthogonal: bool = True

    part: ClassVar[str] = "linear"

    @property
    def is_short(self) -> bool:
        return True

    @property
    def recipe(self) -> dict[str, Any]:
        return {
            "nats": NATS,
            "doubt": DOUBT,
            "rounds": ROUNDS,
            "orthogonal": self.orthogonal,
        }

    def run(self, _: Path) -> Outcome:
        """Draw the teacher, fit the student, decide."""
        started = time.process_time()
        found, removed = decide(self, draw(self))
        layer = found.layers[0]
        planted = NONE if CANDIDATES[self.planted].is_trivial else self.planted
        return Outcome(
            part=f"linear {self.fibre} {self.side}",
            key=self.key,
            planted=(planted,),
            obeys=(layer.obeys,),
            counted=(self.planted not in coincident(self.side, self.fibre),),
            n=self.n,
            noise=self.noise,
            seed=self.seed,
            seconds=time.process_time() - started,
            details={
                "removed": removed,
                "removal": {p.path: p.removal for p in layer.paths},
                "relative": {p.path: p.relative for p in layer.paths},
            },
        )

    @property
    def key(self) -> str:
        name = f"linear-{self.fibre}{self.side}-{self.planted}-n{self.n}-s{self.seed}"
        return name if self.noise == 0.1 else f"{name}-noise{self.noise:g}"


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


@lru_cache(maxsize=4)
def path_bases(side: int, fibre: Fibre, orthogonal: bool) -> Mapping[str, Basis]:
    """What the student's paths span."""
    bases = member_bases(side, fibre)
    return increments(bases).bases if orthogonal else bases


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


def student(side: int, fibre: Fibre, orthogonal: bool) -> ResidualPathway:
    """A layer with a path for every member, weights zero, in float64."""
    space = space_of(side, fibre)
    trivial = next(m.name for m in CANDIDATES if m.is_trivial)
    paths: dict[str, nn.Module] = {
        name: DenseBasis(space, space, CANDIDATES[name], basis=basis)
        for name, basis in path_bases(side, fibre, orthogonal).items()
    }
    paths[trivial] = FullyConnected(space, space)
    layer = ResidualPathway(space, space, CANDIDATES, paths, bias=False).double()
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    return layer


class LinearStudent:
    """A student, its evidence, and the closed form of its MAP weights."""

    def __init__(self, case: LinearCase, data: Data, removed: Sequence[str] = ()) -> None:
        orthogonal = case.orthogonal
        self.network = student(case.side, case.fibre, orthogonal)
        self.likelihood = Gaussian(noise=float(np.std(data.y)))
        held = [f"/{name}" for name in removed]
        prior = Prior.from_network(
            self.network, precisions=dict.fromkeys(held, REMOVED), fixed=held
        )
        self.evidence = Evidence(self.network, self.likelihood, prior)
        bases = path_bases(case.side, case.fibre, orthogonal)
        self.names = tuple(bases)
        self.sizes = [bases[name].dim for name in self.names]
        self.rows = sp.csr_array(sp.vstack([bases[name].matrix for name in self.names]))
        self.free = next(n for n in self.network.paths if n not in bases)
        self.data = data
        self.gram = data.x.T @ data.x
        self.cross = data.y.T @ data.x
        self.power = float((data.y**2).sum())
        self.solution = np.zeros(sum(self.sizes))
        space = self.network.space_in
        x = torch.from_numpy(data.x).view(-1, *space.shape)
        y = torch.from_numpy(data.y).view(-1, *space.shape)
        self.evidence.collect((x, y))
        self.blocks = self.evidence.blocks
        self.first_noise = float(self.likelihood.log_noise.detach())

    def fit(self, rounds: int = ROUNDS, steps: int = 3) -> int:
        """Alternate MAP solution and fixed point; returns the number of rounds that it took."""
        before = -math.inf
        for number in range(rounds):
            self._solve()
            self.evidence.step("fixed_point", steps)
            now = self.log_evidence
            if abs(now - before) < SETTLED:
                return number + 1
            before = now
        return rounds

    @property
    def log_evidence(self) -> float:
        return float(self.evidence.log_marginal_likelihood().detach())

    def selection(self) -> Selection:
        return selection(
            self.network,
            self.evidence,
            rule=Rule(nats=NATS),
        )

    @torch.no_grad()
    def _solve(self) -> None:
        """Set the weights to their MAP values and tell the evidence how well they fit."""
        variance = math.exp(2 * float(self.likelihood.log_noise))
        delta = {n: self.evidence.prior.precision(f"/{n}") for n in self.network.paths}
        size = len(self.gram)
        curvature = self.gram / variance
        ridge = np.linalg.inv(curvature + delta[self.free] * np.eye(size))
        rest = delta[self.free] * ridge
        middle = curvature @ rest
        wanted = self.rows @ (self.cross / variance @ rest).reshape(-1)
        penalties = np.repeat([delta[n] for n in self.names], self.sizes)
        self.solution = _conjugate_gradients(
            self.rows, middle, penalties, wanted, start=self.solution
        )
        structured = (self.rows.T @ self.solution).reshape(size, size)
        free = (self.cross - structured @ self.gram) / variance @ ridge
        parts = np.split(self.solution, np.cumsum(self.sizes)[:-1])
        weights = dict(self.network.named_parameters())
        for name, part in [*zip(self.names, parts, strict=True), (self.free, free)]:
            weight = weights[f"paths.{name}.weight"]
            weight.copy_(torch.from_numpy(part).view_as(weight))
        self._observe(structured + free)

    def _observe(self, matrix: FloatArray) -> None:
        """The data fit from G and YᵀX; the curvature is the one of the first pass, rescaled."""
        squares = self.power - 2 * float((matrix * self.cross).sum())
        squares += float(((matrix @ self.gram) * matrix).sum())
        outputs = self.data.y.size
        constant = outputs * (2 * self.first_noise + math.log(2 * math.pi))
        value = -0.5 * (max(squares, 0.0) * math.exp(-2 * self.first_noise) + constant)
        fit = DataFit(
            torch.tensor(value, dtype=torch.float64), len(self.data.y), outputs, self.first_noise
        )
        self.evidence.observe(self.blocks, fit)


def decide(case: LinearCase, data: Data) -> tuple[Selection, list[str]]:
    """The selection of the student from which all paths are gone that the evidence can spare."""
    fitted = LinearStudent(case, data)
    fitted.fit()
    found = fitted.selection()
    removed: list[str] = []
    tested: set[str] = set()
    while True:
        costs = {p.path: -p.removal for p in found.layers[0].paths if p.path not in removed}
        doubtful = [n for n, c in costs.items() if CLEAR < c < DOUBT and n not in tested]
        if not doubtful:
            return found, removed
        least = min(doubtful, key=costs.__getitem__)
        tested.add(least)
        trial = LinearStudent(case, data, [*removed, least])
        trial.fit()
        if fitted.log_evidence - trial.log_evidence < NATS:
            fitted, found = trial, trial.selection()
            removed.append(least)


def _conjugate_gradients(
    rows: sp.csr_array,
    middle: FloatArray,
    penalties: FloatArray,
    wanted: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """(B(1 ⊗ M)Bᵀ + diag δ)⁻¹ r with the mean eigenvalue of M in the preconditioner."""
    size = len(middle)
    columns = sp.csr_array(rows.T)

    def product(u: FloatArray) -> FloatArray:
        matrix = (columns @ u).reshape(size, size)
        result: FloatArray = rows @ (matrix @ middle).reshape(-1) + penalties * u
        return result

    solution, _ = cg(
        LinearOperator((len(wanted), len(wanted)), matvec=product, dtype=wanted.dtype),
        wanted,
        x0=start,
        rtol=_CG_TOLERANCE,
        maxiter=_CG_STEPS,
        M=sp.diags_array(1 / (penalties + np.trace(middle) / size)),
    )
    found: FloatArray = solution
    return found
