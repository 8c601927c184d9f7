"""A fixed pattern that breaks ties between phases, as every element of the ambient group sees it.

The pattern w(c, f, r) = a(c) b(f) Π_i u_i(r_i) on channels, fibre and sites has no symmetry. The
match of a sample x with the pattern that a point-group element k has turned and moved to site s is

    m(k, s) = Σ_{c, f, s'} a(c) (ρ(k) b)(f) Π_i u_{k, i}(s'_i − s_i) x(c, f, s'),

with u_{k, i} the factor that k brings to axis i, reversed if k reverses it. From m(g x)(k, s) =
m(x)(g⁻¹k, g⁻¹s) it follows that the site of the best match moves with the sample. Two sites match
equally well only if an element of the group that maps x to itself exchanges them: otherwise the
difference is a polynomial in a, b and u that is not zero, and does not vanish at generic ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from groupella.groups import FeatureSpace, LatticeElement, Symmetry
from groupella.nn._constant import Constant

IntArray = npt.NDArray[np.int64]


class Pattern(NamedTuple):
    """a ⊗ ρ(k) b, (|K|, C·F), and for each axis the circulants u_{k, i}, (|K|, n, n).

    `chain` has the numbers k of the elements of groups, each inside the one before it, first those
    of the ambient group.
    """

    fibre: Constant
    axes: tuple[Constant, ...]
    chain: tuple[tuple[int, ...], ...]

    def like(self, x: Tensor) -> tuple[Tensor, ...]:
        """The factors as tensors of the dtype and on the device of x."""
        return (self.fibre.like(x), *(axis.like(x) for axis in self.axes))


def pattern_on(
    space: FeatureSpace, between: bool = False, smaller: Sequence[Symmetry] = ()
) -> Pattern:
    """Return the pattern on a space whose ambient group is of the catalogue.

    `smaller`: groups with translations, each inside the one before it.

    A reflection about the array centre takes site s to n − 1 − s. With `between`, matches are those
    of shifts s, which it takes to −s: a reversed pattern then starts at site s − 1.
    """
    sides = space.lattice.shape
    points = np.array(space.ambient.point_in(len(sides)))
    zero = (0,) * len(sides)
    elements = [LatticeElement(p, zero, sides) for p in space.ambient.point_in(len(sides))]
    turned = [space.fibre_matrix(g) @ _generic(space.fibre_size, 2) for g in elements]
    fibre = np.stack([np.kron(_generic(space.channels, 3), b) for b in turned])
    axes = []
    for i, side in enumerate(sides):
        apart = np.arange(side) - np.arange(side)[:, None]  # s' − s
        from_axis = np.abs(points[:, i]).argmax(1)
        axes.append(
            np.stack(
                [
                    _generic(side, 5 + 2 * int(j))[_reversed(apart, point[i, j], between) % side]
                    for point, j in zip(points, from_axis, strict=True)
                ]
            )
        )
    chain = [tuple(range(len(points)))]
    for symmetry in smaller:
        own = set(symmetry.point_in(len(sides)))
        numbers = enumerate(space.ambient.point_in(len(sides)))
        elements_of = tuple(k for k, matrix in numbers if matrix in own)
        if len(elements_of) < len(chain[-1]):
            chain.append(elements_of)
    return Pattern(Constant(fibre), tuple(map(Constant, axes)), tuple(chain))


def _reversed(apart: IntArray, sign: int, between: bool) -> IntArray:
    return apart if sign > 0 else -apart - int(between)


def matches(x: Tensor, fibre: Tensor, *axes: Tensor) -> Tensor:
    """Return the match with each element at each site: (batch, |K|, *lattice), in float64."""
    found = torch.einsum("kc,nc...->nk...", fibre, x.double())
    for axis, factor in enumerate(axes, 2):
        found = found.movedim(axis, -1)
        found = torch.einsum("nk...j,kij->nk...i", found, factor).movedim(-1, axis)
    return found


def _generic(size: int, number: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """`size` fixed numbers without structure, other ones for each prime `number`."""
    return np.asarray(np.cos(np.sqrt(number) * np.arange(1, size + 1) ** 2))
