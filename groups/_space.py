"""A feature space: channels × fibre × lattice, with the action of the ambient symmetry.

(g·x)(f, s) = Σ_f′ ρ(g)[f, f′] x(f′, g⁻¹s): the regular representation in a common frame. Memory
order is escnn's, ``(batch, channels·fibre, *lattice)`` with the fibre index fastest. The action is
one gather of sites (and of the fibre where ρ permutes it, up to signs), else a gather and a small
matrix on the fibre; nothing is ever interpolated.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._action import Action
from ._elements import Element, LatticeElement, SiteElement
from ._fibre import Fibre, make_fibre
from ._generators import valid_name
from ._lattice import Lattice
from ._lie import Infinitesimal
from ._matrices import identity, site_permutation
from ._order import is_inside, lift, lifted_algebra
from ._symmetry import Symmetry

Tensor = TypeVar("Tensor")
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


@dataclass(frozen=True)
class FeatureSpace:
    """``channels`` copies of ``fibre`` on ``lattice``; made by ``GroupSet.space``."""

    lattice: Lattice
    channels: int
    ambient: Symmetry
    fibre: Fibre

    def __post_init__(self) -> None:
        object.__setattr__(self, "lattice", self.ambient.check_lattice(self.lattice))
        if isinstance(self.channels, bool) or not isinstance(self.channels, (int, np.integer)):
            raise ValueError(f"channels is a positive integer, got {self.channels!r}")
        if self.channels < 1:
            raise ValueError(f"a space has at least one channel, got {self.channels}")
        object.__setattr__(self, "channels", int(self.channels))
        object.__setattr__(self, "fibre", make_fibre(self.ambient, self.fibre))

    @property
    def fibre_size(self) -> int:
        return self.fibre.size

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample: ``(channels·fibre, *lattice)``."""
        return (self.channels * self.fibre.size, *self.lattice.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def fibre_permutes(self) -> bool:
        """Whether every ambient element permutes the basis of the fibre, without signs."""
        return self.fibre.permutes

    def with_channels(self, channels: int) -> FeatureSpace:
        return FeatureSpace(self.lattice, channels, self.ambient, self.fibre)

    def with_lattice(self, lattice: Lattice | Sequence[int] | int) -> FeatureSpace:
        return FeatureSpace(Lattice.of(lattice), self.channels, self.ambient, self.fibre)

    def with_fibre(self, fibre: object) -> FeatureSpace:
        return FeatureSpace(
            self.lattice, self.channels, self.ambient, make_fibre(self.ambient, fibre)
        )

    def generators(self, symmetry: Symmetry) -> tuple[Element, ...]:
        """Generators of a member: a step along each axis, then those of its point group."""
        self._check_member(symmetry)
        return self._lift(symmetry, symmetry.generators(self._home))

    def infinitesimals(self, symmetry: Symmetry) -> tuple[Infinitesimal, ...]:
        """A basis of the Lie algebra of a member; empty for a finite group."""
        self._check_member(symmetry)
        return tuple(lifted_algebra(symmetry, self.ambient.layout))

    def discrete(self, symmetry: Symmetry) -> tuple[Element, ...]:
        """The generators of a member without those of its Lie algebra."""
        found = self.generators(symmetry)
        return found[: len(found) - len(symmetry.algebra)]

    def elements(self, symmetry: Symmetry) -> Iterator[Element]:
        """All elements of a member, the identity first."""
        self._check_member(symmetry)
        if symmetry.is_trivial:
            return iter((self.identity(),))
        return (self._lift(symmetry, (g,))[0] for g in symmetry.elements(self._home))

    def sample(self, symmetry: Symmetry, n: int, seed: int = 0) -> list[Element]:
        """n random elements of a member: uniform, or long random products of its generators."""
        self._check_member(symmetry)
        if symmetry.is_trivial:
            return [self.identity()] * n
        return list(self._lift(symmetry, symmetry.sample(self._home, n, seed)))

    def identity(self) -> Element:
        """The identity of the ambient group."""
        if not self.ambient.is_catalogue:
            return self.ambient.site_generators[0].identity_like()
        dim = self.lattice.dim if self.ambient.dim is None else self.ambient.dim
        return LatticeElement(identity(dim), (0,) * self.lattice.dim, self.lattice.shape)

    def action(self, g: Element) -> Action:
        """What g does to one channel."""
        return _action(self.lattice, self.fibre, g)

    def fibre_matrix(self, g: Element) -> FloatArray:
        """ρ(g), F × F."""
        return self.fibre.matrix(g)

    def window_permutation(self, g: Element, size: Sequence[int] | int) -> IntArray:
        """The point part of g on a centred window: offset number i moves to number w[i]."""
        if not isinstance(g, LatticeElement):
            raise ValueError(f"{g} is not a catalogue element: it has no action on windows")
        shape = (size,) * len(g.point) if isinstance(size, int) else tuple(size)
        if len(shape) != len(g.point):
            raise ValueError(f"a window for {g} has {len(g.point)} sides, got {shape}")
        name = valid_name(f"the window under {g}")
        Symmetry(name, len(shape), False, (g.point,)).check_lattice(shape)
        return site_permutation(g.point, (0,) * len(shape), shape)

    def check(self, x: Any) -> None:
        """Raise unless x is a batch of this space, ``(batch, *shape)``."""
        if not hasattr(x, "shape") or not hasattr(x, "ndim"):
            raise TypeError(f"expected a numpy array or torch tensor, got {type(x).__name__}")
        if x.ndim != 1 + len(self.shape) or tuple(x.shape[1:]) != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise ValueError(
                f"expected a tensor of shape (batch, {expected}) for {self}, got {tuple(x.shape)}"
            )

    def act(self, g: Element, x: Tensor) -> Tensor:
        """g·x, of the same type as x: exact and differentiable.

        Parameters
        ----------
        g
            An element of the ambient group, from ``generators``, ``elements`` or ``sample``.
        x
            ``(batch, *shape)``, a numpy array or torch tensor.
        """
        self.check(x)
        shape: tuple[int, ...] = x.shape  # type: ignore[attr-defined]
        size, sites = self.fibre.size, self.lattice.size
        fields = shape[0] * self.channels
        moved: Any = x
        plan = _plan(self.lattice, self.fibre, g)
        if plan is not None:
            index, signs = plan
            moved = _gather(moved.reshape(fields, size * sites), index)
            if signs is not None:
                moved = moved * _values_like(signs, x)
            return moved.reshape(shape)  # type: ignore[no-any-return]
        action = self.action(g)
        moved = moved.reshape(fields * size, sites)
        if action.permutation is None:
            moved = moved @ _values_like(action.site_matrix.T, x)
        else:
            back = np.argsort(action.permutation)
            moved = _gather(moved, back)
            if action.site_signs is not None:
                moved = moved * _values_like(action.site_signs[back], x)
        moved = _values_like(action.fibre, x) @ moved.reshape(fields, size, sites)
        return moved.reshape(shape)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.lattice.shape)) or "()"
        return f"FeatureSpace({self.channels} × {self.fibre} on {shape}, ambient {self.ambient})"

    @property
    def _home(self) -> Lattice:
        """The lattice on which elements live: this one, or the generators' own."""
        return self.lattice if self.ambient.lattice is None else self.ambient.lattice

    def _lift(self, symmetry: Symmetry, elements: Sequence[Element]) -> tuple[Element, ...]:
        """Elements of a member as elements of the ambient group."""
        if self.ambient.is_catalogue:
            return tuple(elements)
        return tuple(lift(g, symmetry.layout, self.ambient.layout) for g in elements)

    def _check_member(self, symmetry: Symmetry) -> None:
        if not isinstance(symmetry, Symmetry):
            raise TypeError(f"expected a Symmetry, got {symmetry!r}")
        if not is_inside(symmetry, self.ambient):
            raise ValueError(f"{symmetry} is no subgroup of {self.ambient}, the ambient of {self}")


def _action(lattice: Lattice, fibre: Fibre, g: Element) -> Action:
    matrix = fibre.matrix(g)
    if isinstance(g, LatticeElement):
        return Action(matrix, g.sites(lattice.shape), None, None)
    assert isinstance(g, SiteElement)
    if lattice.dim == 0:
        return Action(matrix, np.zeros(1, np.intp), None, None)
    if g.degree != lattice.size:
        raise ValueError(f"{g} moves {g.degree} sites, {lattice} has {lattice.size}")
    signs = g.signs if g.signs is not None and (g.signs < 0).any() else None
    return Action(matrix, g.sites, signs, g.matrix)


@lru_cache(maxsize=128)
def _plan(lattice: Lattice, fibre: Fibre, g: Element) -> tuple[IntArray, FloatArray | None] | None:
    """(index, signs) with (g·x)[i] = signs[i] x[index[i]], signs ``None`` when all are +1.

    ``None`` when the action is no signed permutation.
    """
    signed = _action(lattice, fibre, g).signed()
    if signed is None:
        return None
    moved, signs = signed
    back = np.empty_like(moved)
    back[moved] = np.arange(len(moved))
    return back, (signs[back] if (signs < 0).any() else None)


def _gather(x: Any, index: NDArray[np.intp]) -> Any:
    """Columns of a matrix x, numpy or torch."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return x.index_select(1, torch.as_tensor(np.array(index), device=x.device))
    return np.take(x, index, axis=1)


def _values_like(values: NDArray[np.float64], x: Any) -> Any:
    """Coefficients for x, in its dtype; TypeError when x holds integers."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if not (x.is_floating_point() or x.is_complex()):
            raise TypeError(f"this element does not just permute: convert {x.dtype} to floats")
        return torch.as_tensor(np.array(values), dtype=x.dtype, device=x.device)
    if not np.issubdtype(x.dtype, np.inexact):
        raise TypeError(f"this element does not just permute: convert {x.dtype} to floats")
    return values.astype(x.dtype)
