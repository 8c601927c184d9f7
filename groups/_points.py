"""Point groups as escnn groups: which element of the escnn group is which signed permutation matrix.

escnn's plane has x to the right and y upwards, so (x, y) = (j, −i) in array coordinates, and its space
has (x, y, z) = (k, −j, −i) for an array (i, j, k). The tables agree with the ``transform`` of escnn's
``rot2dOnR2``, ``flipRot2dOnR2`` and ``flip2dOnR2`` where such a space exists.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ._escnn import load_group
from ._matrices import IntMatrix, as_matrix, closure, identity, multiply

__all__ = ["escnn_group", "is_known", "point_order", "recipe"]

ROTATION: IntMatrix = ((0, -1), (1, 0))
HALF_TURN: IntMatrix = ((-1, 0), (0, -1))
FLIP: IntMatrix = ((1, 0), (0, -1))
ANTITRANSPOSE: IntMatrix = ((0, -1), (-1, 0))
PREFERRED = (ROTATION, HALF_TURN, FLIP, ANTITRANSPOSE)
TO_XYZ = np.array([[0, 0, 1], [0, -1, 0], [-1, 0, 0]])


def point_order(matrix: IntMatrix) -> int:
    """The order of one matrix."""
    one, power, order = identity(len(matrix)), matrix, 1
    while power != one:
        power, order = multiply(power, matrix), order + 1
    return order


@lru_cache(maxsize=256)
def recipe(point: tuple[IntMatrix, ...]) -> tuple[str, tuple[IntMatrix, ...]] | None:
    """The kind of the point group and the matrices of its standard generators; ``None`` if unknown.

    Kinds: ``cyclic`` (one generator), ``dihedral`` (rotation, mirror), ``octahedral`` and
    ``full_octahedral`` (in their standard orientation).
    """
    order = len(point)
    if order <= 1:
        return "cyclic", ()
    candidates = sorted(point, key=lambda m: (PREFERRED.index(m) if m in PREFERRED else 9, m))
    orders = {m: point_order(m) for m in candidates}
    for m in candidates:
        if orders[m] == order:
            return "cyclic", (m,)
    for r, f in itertools.product(candidates, candidates):
        if orders[r] == order // 2 and orders[f] == 2 and f not in closure((r,), len(r)):
            flipped = multiply(multiply(f, r), f)
            if multiply(flipped, r) == identity(len(r)):
                return "dihedral", (r, f)
    if len(point[0]) == 3 and order == 48:
        return "full_octahedral", ()
    if len(point[0]) == 3 and order == 24 and all(np.linalg.det(m) > 0 for m in point):
        return "octahedral", ()
    return None


def is_known(point: tuple[IntMatrix, ...]) -> bool:
    return recipe(point) is not None


@lru_cache(maxsize=256)
def escnn_group(point: tuple[IntMatrix, ...]) -> tuple[Any, dict[IntMatrix, Any]]:
    """The escnn group of a point group, and its element for every matrix."""
    found = recipe(point)
    if found is None:
        raise ValueError(f"no escnn group is known for this point group of order {len(point)}")
    kind, generators = found
    group = load_group()
    if kind == "octahedral":
        return _by_matrix(group.octa_group(), lambda e: e.to("MAT"))
    if kind == "full_octahedral":
        return _by_matrix(group.full_octa_group(), _full_octahedral_matrix)
    n = max(len(point), 1)
    if kind == "cyclic":
        made = group.cyclic_group(n)
        elements = [made.element(1)] if generators else []
    else:
        made = group.dihedral_group(n // 2)
        elements = [made.element((0, 1)), made.element((1, 0))]
    one = identity(len(point[0]) if point else 0)
    table = {one: made.identity}
    frontier = [one]
    while frontier:
        reached = []
        for m in frontier:
            for matrix, element in zip(generators, elements, strict=True):
                product = multiply(m, matrix)
                if product not in table:
                    table[product] = table[m] @ element
                    reached.append(product)
        frontier = reached
    return made, table


def _by_matrix(made: Any, matrix: Callable[[Any], Any]) -> tuple[Any, dict[IntMatrix, Any]]:
    table = {}
    for element in made.elements:
        table[as_matrix(TO_XYZ.T @ matrix(element) @ TO_XYZ)] = element
    return made, table


def _full_octahedral_matrix(element: Any) -> Any:
    inverted, rotation = element.to("[int | MAT]")
    return -rotation if inverted else rotation
