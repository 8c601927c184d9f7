"""Representations built from those that a symmetry is given by: V*V, V.T, V + SCALAR, 3 * V.

A symmetry defined by generators acts on named fibres, V among them. With ρ_V(g) = g and, on the Lie
algebra, dρ_V(X) = X,

    V.T     ρ(g) = g⁻ᵀ                dρ(X) = −Xᵀ
    V*W     ρ(g) = ρ_V(g) ⊗ ρ_W(g)    dρ(X) = dρ_V(X) ⊗ 1 + 1 ⊗ dρ_W(X)
    V + W   ρ(g) = ρ_V(g) ⊕ ρ_W(g)    dρ(X) = dρ_V(X) ⊕ dρ_W(X)

A part of a tensor power, such as an irrep, is ρ(g) = Qᵀ (ρ_parent(g) ⊗ g) Q with orthonormal
columns Q that span an invariant subspace: a function of the matrix g alone, exact everywhere.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Layout = tuple[tuple[str, int], ...]
Blocks = Mapping[str, FloatArray]


@dataclass(frozen=True)
class Atom:
    """One of the fibres that a symmetry was given with, or its dual."""

    name: str
    dual: bool = False

    def size(self, layout: Layout) -> int:
        sizes = dict(layout)
        if self.name not in sizes:
            known = ", ".join(repr(name) for name in sizes) or "none"
            raise ValueError(f"no fibre {self.name!r} here: the fibres of the symmetry are {known}")
        return sizes[self.name]

    def matrix(self, blocks: Blocks) -> FloatArray:
        """ρ(g)."""
        block = blocks[self.name]
        return np.linalg.inv(block).T if self.dual else block

    def derivative(self, blocks: Blocks) -> FloatArray:
        """dρ(X)."""
        return -blocks[self.name].T if self.dual else blocks[self.name]

    def __str__(self) -> str:
        return (self.name or "fibre") + (".T" if self.dual else "")


@dataclass(frozen=True, eq=False)
class Parts:
    """A sum of parts of tensor powers of one fibre, in some basis: basis (⊕ parts) basisᵀ.

    Representation 0 is the scalars; number k is the part ``steps[k-1][1]`` of number
    ``steps[k-1][0]`` ⊗ the fibre. ``chosen`` lists those of the sum.
    """

    fibre: str
    label: str
    steps: tuple[tuple[int, FloatArray], ...]
    chosen: tuple[int, ...]
    basis: FloatArray
    dual: bool = False

    def size(self, layout: Layout) -> int:
        Atom(self.fibre).size(layout)
        return len(self.basis)

    def matrix(self, blocks: Blocks) -> FloatArray:
        """ρ(g)."""
        g = blocks[self.fibre]
        known = [np.ones((1, 1))]
        for parent, columns in self.steps:
            known.append(columns.T @ np.kron(known[parent], g) @ columns)
        return self._summed(known)

    def derivative(self, blocks: Blocks) -> FloatArray:
        """dρ(X)."""
        x = blocks[self.fibre]
        known = [np.zeros((1, 1))]
        for parent, columns in self.steps:
            known.append(columns.T @ kronecker_sum([known[parent], x]) @ columns)
        return self._summed(known)

    def _summed(self, known: Sequence[FloatArray]) -> FloatArray:
        inner = scipy.linalg.block_diag(*(known[k] for k in self.chosen))
        return np.asarray(self.basis @ inner @ self.basis.T)

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True)
class Tensors:
    """A sum of tensor products of the fibres of a symmetry: ``V * V + 2 * V + SCALAR``.

    ``terms`` holds the factors of every summand. Make one from `V` and `SCALAR`, or from the name
    of a fibre with `Tensors.of`.

    Examples
    --------
    >>> str(V * V.T + 2 * V + SCALAR)
    'V*V.T + V + V + 1'
    """

    terms: tuple[tuple[Atom | Parts, ...], ...]

    @classmethod
    def of(cls, name: str) -> Tensors:
        """The fibre of that name."""
        return cls(((Atom(name),),))

    def __mul__(self, other: Tensors) -> Tensors:
        if not isinstance(other, Tensors):
            return NotImplemented
        return Tensors(tuple((*a, *b) for a in self.terms for b in other.terms))

    def __rmul__(self, count: int) -> Tensors:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"a representation is taken a positive number of times, got {count!r}")
        return Tensors(self.terms * count)

    def __pow__(self, power: int) -> Tensors:
        if isinstance(power, bool) or not isinstance(power, int) or power < 0:
            raise ValueError(f"a tensor power is a whole number from 0, got {power!r}")
        return functools.reduce(Tensors.__mul__, [self] * power, SCALAR)

    def __add__(self, other: Tensors) -> Tensors:
        return Tensors(self.terms + other.terms) if isinstance(other, Tensors) else NotImplemented

    @property
    def T(self) -> Tensors:
        """The dual representation, ρ(g)⁻ᵀ: the same one where ρ is orthogonal."""
        return Tensors(tuple(tuple(_dual(atom) for atom in term) for term in self.terms))

    def sizes(self, layout: Layout) -> list[int]:
        """The size of every summand."""
        return [math.prod(atom.size(layout) for atom in term) for term in self.terms]

    def factors(self, blocks: Blocks) -> list[list[FloatArray]]:
        """ρ(g) by summands and factors."""
        return [[atom.matrix(blocks) for atom in term] for term in self.terms]

    def derivatives(self, blocks: Blocks) -> list[list[FloatArray]]:
        """dρ(X) by summands and factors."""
        return [[atom.derivative(blocks) for atom in term] for term in self.terms]

    def matrix(self, blocks: Blocks) -> FloatArray:
        """ρ(g)."""
        one = np.ones((1, 1))
        parts = [functools.reduce(np.kron, term, one) for term in self.factors(blocks)]
        return np.asarray(scipy.linalg.block_diag(*parts))

    def derivative(self, blocks: Blocks) -> FloatArray:
        """dρ(X)."""
        parts = [kronecker_sum(term) for term in self.derivatives(blocks)]
        return np.asarray(scipy.linalg.block_diag(*parts))

    def __str__(self) -> str:
        return " + ".join("*".join(map(str, term)) or "1" for term in self.terms)


def _dual(atom: Atom | Parts) -> Atom | Parts:
    return Atom(atom.name, not atom.dual) if isinstance(atom, Atom) else atom


def kronecker_sum(matrices: Sequence[FloatArray]) -> FloatArray:
    """Σ_k 1 ⊗ … ⊗ A_k ⊗ … ⊗ 1; zero (1 × 1) of none."""
    total = np.zeros((1, 1))
    for matrix in matrices:
        total = np.kron(total, np.eye(len(matrix))) + np.kron(np.eye(len(total)), matrix)
    return total


def blocks_of(matrix: FloatArray, layout: Layout) -> dict[str, FloatArray]:
    """The blocks of a matrix on all fibres of a layout, by name."""
    blocks, start = {}, 0
    for name, size in layout:
        blocks[name] = matrix[start : start + size, start : start + size]
        start += size
    return blocks


V = Tensors.of("V")
SCALAR = Tensors(((),))
