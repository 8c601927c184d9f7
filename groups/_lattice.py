"""The lattice: a torus Z_{N_1} × … × Z_{N_d} of sites, numbered in C order.

``()`` is the lattice of a plain vector: one site, nothing to move.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Lattice:
    """A torus of sites: ``Lattice((8, 8))`` for an image, ``Lattice((n,))`` for a sequence."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            shape = tuple(operator.index(n) for n in self.shape)
        except TypeError:
            raise ValueError(
                f"a lattice shape is a tuple of positive integers, got {self.shape!r}"
            ) from None
        if any(n < 1 for n in shape):
            raise ValueError(f"every side of a lattice has at least one site, got {shape}")
        object.__setattr__(self, "shape", shape)

    @classmethod
    def of(cls, lattice: Lattice | Iterable[int] | int) -> Lattice:
        """The lattice of that shape; an integer ``n`` means ``(n,)``."""
        if isinstance(lattice, Lattice):
            return lattice
        if isinstance(lattice, Iterable):
            return cls(tuple(lattice))
        return cls((lattice,))

    @property
    def dim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of sites; 1 for ``()``."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"Lattice({self.shape})"
