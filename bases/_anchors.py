"""Distances between points and anchors, for the bumps exp(−ω² d(p, z)²) of sparsified layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, cast

import numpy as np
import numpy.typing as npt

from groupella.groups import Element, LatticeElement

from ._arrays import FloatArray

Points: TypeAlias = "npt.ArrayLike | Sequence[Element]"

_LONGEST_SEARCH = 100_000


def squared_distances(
    points: Points,
    anchors: Points,
    *,
    period: Sequence[float] | None = None,
    generators: Sequence[Element] | None = None,
) -> FloatArray:
    """Squared distances d(p, z)² between points p and anchors z.

    The distance depends on what the points are:

    - coordinates (n, dimension): Euclidean, as in a k×k window;
    - coordinates on a torus with sides `period`: along each axis the chord (n/π) sin(π a/n) of a
      circle of length n, a the way round;
    - elements of a symmetry of a lattice, g = (R, t) with point part R and translation t:
      d(g, h)² = |t_g − t_h|²_torus + ½ |R_g − R_h|²_Frobenius;
    - elements of a group given by generators: the length of the shortest word in the `generators`
      and their inverses that equals g⁻¹h.

    Both distances on groups are symmetric and left-invariant, d(ag, ah) = d(g, h): a function of
    them depends on g⁻¹h only. All but word lengths are distances in a Euclidean space, so that
    exp(−ω² d²) is positive definite for every ω: a stationary kernel. (That of the shortest way
    round a torus is not.)

    Parameters
    ----------
    points, anchors
        Coordinates (n, dimension) and (m, dimension), or two sequences of group elements.
    period
        The sides of the torus, for coordinates.
    generators
        The generators of the group, for elements of a group given by generators.

    Returns
    -------
    array
        (n, m), float64.

    Raises
    ------
    ValueError
        If points and anchors are not of one kind and dimension, if `generators` are missing, or if
        an element is not a word in them.
    """
    if _are_elements(points) or _are_elements(anchors):
        if period is not None:
            raise ValueError("group elements know their lattice; period is for coordinates")
        if not (_are_elements(points) and _are_elements(anchors)):
            raise ValueError("points and anchors must both be group elements, or both coordinates")
        first = cast("Sequence[Element]", points)
        second = cast("Sequence[Element]", anchors)
        if all(isinstance(g, LatticeElement) for g in (*first, *second)):
            return _lattice_group_distances(
                cast("Sequence[LatticeElement]", first), cast("Sequence[LatticeElement]", second)
            )
        return _word_distances(first, second, generators)
    return _coordinate_distances(
        cast("npt.ArrayLike", points), cast("npt.ArrayLike", anchors), period
    )


def _are_elements(points: Points) -> bool:
    return isinstance(points, (list, tuple)) and bool(points) and isinstance(points[0], Element)


def _coordinate_distances(
    points: npt.ArrayLike, anchors: npt.ArrayLike, period: Sequence[float] | None
) -> FloatArray:
    first, second = np.asarray(points, dtype=np.float64), np.asarray(anchors, dtype=np.float64)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ValueError(
            "points and anchors must be (n, dimension) and (m, dimension), "
            f"got {first.shape} and {second.shape}"
        )
    apart = first[:, None, :] - second[None, :, :]
    if period is not None:
        sides = np.asarray(period, dtype=np.float64)
        if sides.shape != (first.shape[1],) or not (sides > 0).all():
            raise ValueError(
                f"period must be {first.shape[1]} positive lengths, one per dimension, got {period}"
            )
        apart = np.abs(apart - sides * np.rint(apart / sides))
        apart = sides / np.pi * np.sin(np.pi / sides * apart)
    return np.asarray(np.square(apart).sum(axis=-1))


def _lattice_group_distances(
    points: Sequence[LatticeElement], anchors: Sequence[LatticeElement]
) -> FloatArray:
    shapes = {g.shape for g in (*points, *anchors)}
    if len(shapes) > 1:
        raise ValueError(f"all group elements must act on one lattice, got {sorted(shapes)}")
    (shape,) = shapes
    squared = np.zeros((len(points), len(anchors)))
    if shape:
        squared += _coordinate_distances(
            [g.shift for g in points], [g.shift for g in anchors], shape
        )
    first, second = (
        np.array([g.point for g in group], dtype=np.float64).reshape(len(group), -1)
        for group in (points, anchors)
    )
    return np.asarray(squared + _coordinate_distances(first, second, None) / 2)


def _word_distances(
    points: Sequence[Element], anchors: Sequence[Element], generators: Sequence[Element] | None
) -> FloatArray:
    if not generators:
        raise ValueError(
            "distances in a group given by generators are word lengths: pass its `generators`, "
            "as from space.generators(symmetry)"
        )
    backwards = [g.inverse() for g in points]
    between = [[g * h for h in anchors] for g in backwards]
    wanted = {element for row in between for element in row}
    steps = list(dict.fromkeys([*generators, *(g.inverse() for g in generators)]))
    identity = generators[0] * generators[0].inverse()
    length = {identity: 0}
    frontier = [identity]
    wanted.discard(identity)
    while wanted and frontier:
        reached = []
        for element in frontier:
            for step in steps:
                further = element * step
                if further not in length:
                    length[further] = length[element] + 1
                    reached.append(further)
                    wanted.discard(further)
        if len(length) > _LONGEST_SEARCH:
            raise ValueError(
                f"no words for all elements among the {_LONGEST_SEARCH} shortest; "
                "take fewer or nearer points"
            )
        frontier = reached
    if wanted:
        raise ValueError(f"{len(wanted)} elements are not words in the generators given")
    return np.square(np.array([[length[g] for g in row] for row in between], dtype=np.float64))
