"""What every method gets: data, candidates, and the linear maps that obey each of them.

Inputs are scalar fields x (n, 1, P) on the P sites of a torus or a set. Of the data that may be
used, a quarter is held out (`val`): methods that need validation data train on the rest, the others
on all of them (`pool`). `test` decides nothing.

A linear problem asks which candidate the map from x to y (n, P) commutes with, one of classes which
candidate leaves the labels (n,) alone. Networks have the `stages` 1 → C → C' → classes: two maps
between fields and one from fields to numbers. A member's maps are exact (`groupella.bases`).

A deep problem has targets y (n, P), too, and a truth for each of its `layers`: the teacher is

    h ← φ((h + W_l h)/√2), φ a leaky ReLU; in the last layer y = (h + W_l h)/√2.

What skips a layer says which site is which: without it, a permutation between two layers could hide
the symmetry of both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from groupella.bases import Basis, equivariant_basis, increments
from groupella.decide import NONE, Candidates
from groupella.groups import FeatureSpace, GroupSet, Lattice

Data = tuple[Tensor, Tensor]
Predict = Callable[[Tensor], Tensor]
FREE = "free"
HELD_OUT = 0.25
STEPS, LINEAR_STEPS = 200, 600
SLOPE, SHRINK = 0.3, 2**-0.5  # the leaky ReLU of deep problems; a layer with what skips it
MOST_MOTIONS = 256  # elements of one candidate that are drawn from


@dataclass(frozen=True)
class Part:
    """Maps of one path: orthonormal rows (dim, P'·P), and the candidates that they all obey.

    Without rows, any matrix.
    """

    name: str
    rows: Tensor | None
    members: tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """Linear maps from c_in fields on `points` sites to c_out fields on `points_out`."""

    c_in: int
    c_out: int
    points: int
    points_out: int
    bases: Mapping[str, Basis]

    @property
    def unit(self) -> float:
        """Size of a row: of a filter that is used everywhere, or of a mean over sites."""
        return math.sqrt(self.points_out) if self.points_out > 1 else self.points**-0.5

    def whole(self) -> list[Part]:
        """All maps of each candidate, then any map: the paths overlap.

        Of candidates with the same maps there is one path.
        """
        found: list[Part] = []
        for name in sorted(self.bases, key=lambda m: self.bases[m].dim):
            rows = self.rows[name]
            inside = tuple(m for m in self.bases if self.obeys(rows, m))
            if not any(set(p.members) == set(inside) for p in found):
                found.append(Part(name, rows, inside))
        return [*found, Part(FREE, None, ())]

    def obeys(self, rows: Tensor, member: str) -> bool:
        """Whether all these maps (…, P'·P) obey a candidate."""
        return bool(((self.projected(rows, member) - rows) ** 2).sum() < 1e-6)

    def parts(self) -> list[Part]:
        """What each candidate adds to stricter ones, orthogonal; then any map."""
        found = []
        for name, basis in increments(self.bases).bases.items():
            rows = _rows(basis)
            found.append(Part(name, rows, tuple(m for m in self.bases if self.obeys(rows, m))))
        return [*found, Part(FREE, None, ())]

    def projected(self, matrices: Tensor, member: str) -> Tensor:
        """The nearest maps (…, P', P) that obey a candidate."""
        rows = self.rows[member]
        flat = matrices.reshape(-1, rows.shape[1])
        return (flat @ rows.T @ rows).reshape(matrices.shape)

    @cached_property
    def rows(self) -> dict[str, Tensor]:
        """Orthonormal maps of every candidate, (dim, P'·P)."""
        return {m: _rows(b) for m, b in self.bases.items()}

    def asymmetries(self, matrices: Tensor) -> dict[str, float]:
        """For every candidate the share of ‖W‖² that does not obey it."""
        whole = float((matrices**2).sum()) or 1.0
        with torch.no_grad():
            return {
                m: float(((matrices - self.projected(matrices, m)) ** 2).sum()) / whole
                for m in self.bases
            }


@dataclass(frozen=True, eq=False)
class Problem:
    """One task with its data; see the module."""

    task: str
    truth: str
    groups: GroupSet
    lattice: tuple[int, ...]
    pool: Data
    test: Data
    linear: bool
    seed: int
    layers: tuple[str, ...] = ()

    @property
    def steps(self) -> int:
        """Steps of every training."""
        return LINEAR_STEPS if self.regression else STEPS

    @property
    def regression(self) -> bool:
        """Whether targets are numbers: of linear and of deep problems."""
        return self.linear or bool(self.layers)

    @property
    def split(self) -> int:
        return round((1 - HELD_OUT) * len(self.pool[0]))

    @property
    def fit(self) -> Data:
        return self.pool[0][: self.split], self.pool[1][: self.split]

    @property
    def val(self) -> Data:
        return self.pool[0][self.split :], self.pool[1][self.split :]

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates.of(self.groups)

    @property
    def names(self) -> tuple[str, ...]:
        return self.candidates.names

    @property
    def true_members(self) -> list[str]:
        """The candidates that the data obey."""
        return self.below(self.truth)

    def below(self, truth: str) -> list[str]:
        """The candidates that are obeyed by whatever obeys this one, or "none"."""
        return [] if truth == NONE else list(self.groups.subgroups(truth))

    @property
    def sites(self) -> int:
        return int(self.pool[0].shape[2])

    @property
    def outputs(self) -> int:
        return self.sites if self.regression else int(self.pool[1].max()) + 1

    @cached_property
    def space(self) -> FeatureSpace:
        return self.groups.space(self.lattice, 1, "trivial")

    @cached_property
    def stages(self) -> list[Stage]:
        numbers = FeatureSpace(Lattice(()), 1, self.space.ambient, "trivial")  # type: ignore[arg-type]
        fields = self._bases(self.space)
        sites = self.sites
        if self.linear:
            return [Stage(1, 1, sites, sites, fields)]
        if self.layers:
            return [Stage(1, 1, sites, sites, fields) for _ in self.layers]
        first, second = (16, 16) if sites <= 32 else (8, 16) if sites <= 64 else (4, 8)
        return [
            Stage(1, first, sites, sites, fields),
            Stage(first, second, sites, sites, fields),
            Stage(second, self.outputs, sites, 1, self._bases(numbers)),
        ]

    def _bases(self, space_out: FeatureSpace) -> dict[str, Basis]:
        return {m: equivariant_basis(self.space, space_out, self.groups[m]) for m in self.names}

    @cached_property
    def motions(self) -> dict[str, Tensor]:
        """What elements of each candidate do to the sites, (elements, P): (g x)(p) = x(m[p])."""
        numbers = np.arange(self.sites, dtype=np.float64).reshape(1, 1, *self.lattice)
        found = {FREE: torch.arange(self.sites)[None]}
        for name in self.names:
            member = self.groups[name]
            if member.has_at_most(MOST_MOTIONS, self.lattice):
                elements = list(self.space.elements(member))
            else:
                elements = self.space.sample(member, MOST_MOTIONS, self.seed)
            moved = [np.asarray(self.space.act(g, numbers)).reshape(-1) for g in elements]
            found[name] = torch.from_numpy(np.stack(moved)).long()
        return found

    def order(self, name: str) -> int:
        """The number of elements of a candidate; 1 for no symmetry."""
        return 1 if name == FREE else self.groups[name].order(self.lattice)

    def moved(self, x: Tensor, name: str, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """x with each datum moved by its own random element, and what was done (n, P)."""
        motions = self.motions[name]
        index = motions[torch.randint(len(motions), (len(x),), generator=generator)]
        return x.gather(2, index[:, None].expand_as(x)), index

    def loss(self, f: Tensor, y: Tensor) -> Tensor:
        """Mean cross-entropy, or mean squared error."""
        return F.mse_loss(f, y) if self.regression else F.cross_entropy(f, y)

    @torch.no_grad()
    def score(self, predict: Predict) -> tuple[float, float]:
        """Accuracy (regression: R²) and negative log-likelihood (a number) on the test data.

        The noise of a regression is the one most favourable to the method: on data that it
        was trained on, noise would look smaller.
        """
        x, y = self.test
        f = predict(x)
        if not self.regression:
            return float((f.argmax(1) == y).double().mean()), float(F.cross_entropy(f, y))
        error = max(float(((f - y) ** 2).mean()), 1e-9)
        return 1 - error / float(y.var()), 0.5 * math.log(2 * math.pi * math.e * error)


def _rows(basis: Basis) -> Tensor:
    return torch.tensor(basis.tensor.reshape(basis.dim, -1), dtype=torch.float32)
