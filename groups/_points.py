"""Point groups as escnn groups: which element of the escnn group is which matrix.

escnn's plane has x to the right and y upwards: (x, y) = (j, −i) for array coordinates (i, j). Its
space has (x, y, z) = (k, −j, −i) for (i, j, k). Generators are chosen so that the tables agree with
the ``transform`` of escnn's ``rot2dOnR2``, ``flipRot2dOnR2``, ``flip2dOnR2``, ``octaOnR3``,
``rot2dOnR3``… wherever such a space exists.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np

from ._matrices import IntMatrix, as_matrix, closure, determinant, identity, multiply, negative
from .gate import load_group

PREFERRED: tuple[IntMatrix, ...] = (
    ((0, -1), (1, 0)),
    ((-1, 0), (0, -1)),
    ((1, 0), (0, -1)),
    ((0, -1), (-1, 0)),
    ((1, 0, 0), (0, 0, -1), (0, 1, 0)),
    ((1, 0, 0), (0, -1, 0), (0, 0, -1)),
    ((1, 0, 0), (0, 1, 0), (0, 0, -1)),
    ((-1, 0, 0), (0, 1, 0), (0, 0, -1)),
)
TO_XY = np.array([[0, 1], [-1, 0]])
TO_XYZ = np.array([[0, 0, 1], [0, -1, 0], [-1, 0, 0]])


def array_matrix(action: Any) -> IntMatrix:
    """escnn's matrix on (x, y) or (x, y, z), in array coordinates; else a ValueError."""
    change = TO_XY if len(action) == 2 else TO_XYZ
    return as_matrix(change.T @ np.asarray(action) @ change)


def is_known(point: tuple[IntMatrix, ...]) -> bool:
    """Whether escnn has the point group."""
    return _recipe(point) is not None


@lru_cache(maxsize=256)
def escnn_group(point: tuple[IntMatrix, ...]) -> tuple[Any, dict[IntMatrix, Any]]:
    """The escnn group of a point group, and its element for every matrix."""
    found = _recipe(point)
    if found is None:
        raise ValueError(f"escnn has no group for this point group of order {len(point)}")
    kind, generators = found
    groups = load_group()
    if kind == "octahedral":
        group = groups.octa_group()
        return group, {array_matrix(e.to("MAT")): e for e in group.elements}
    if kind == "inverted":
        return _inverted(point)
    one = identity(len(point[0]) if point else 0)
    if kind == "cyclic":
        group = groups.cyclic_group(max(len(point), 1))
        images = [group.element(1)] if generators else []
    else:
        group = groups.dihedral_group(len(point) // 2)
        images = [group.element((0, 1)), group.element((1, 0))]
    table = {one: group.identity}
    frontier = [one]
    while frontier:
        reached = []
        for m in frontier:
            for matrix, image in zip(generators, images, strict=True):
                product = multiply(m, matrix)
                if product not in table:
                    table[product] = table[m] @ image
                    reached.append(product)
        frontier = reached
    return group, table


def _inverted(point: tuple[IntMatrix, ...]) -> tuple[Any, dict[IntMatrix, Any]]:
    """{±1} × the rotations: escnn's full octahedral group, or a direct product."""
    groups = load_group()
    rotations, rotation_table = escnn_group(_rotations(point))
    signs = groups.cyclic_group(2)
    if rotations == groups.octa_group():
        group = groups.full_octa_group()
    else:
        group = groups.direct_product(signs, rotations)
    table = {}
    for matrix, element in rotation_table.items():
        table[matrix] = group.pair_elements(signs.identity, element)
        table[negative(matrix)] = group.pair_elements(signs.element(1), element)
    return group, table


def _rotations(point: tuple[IntMatrix, ...]) -> tuple[IntMatrix, ...]:
    return tuple(m for m in point if determinant(m) > 0)


def _order(matrix: IntMatrix) -> int:
    one, power, order = identity(len(matrix)), matrix, 1
    while power != one:
        power, order = multiply(power, matrix), order + 1
    return order


@lru_cache(maxsize=256)
def _recipe(point: tuple[IntMatrix, ...]) -> tuple[str, tuple[IntMatrix, ...]] | None:
    """The kind of the point group and the matrices of its generators; ``None`` when unknown.

    ``cyclic`` has one generator, ``dihedral`` a rotation and a mirror, ``octahedral`` and
    ``inverted`` ({±1} × rotations, in space) need none.
    """
    if len(point) <= 1:
        return "cyclic", ()
    dim, size = len(point[0]), len(point)
    candidates = sorted(point, key=lambda m: (PREFERRED.index(m) if m in PREFERRED else 99, m))
    orders = {m: _order(m) for m in candidates}
    for m in candidates:
        if orders[m] == size:
            return "cyclic", (m,)
    for r, f in itertools.product(candidates, candidates):
        if orders[r] * 2 == size and orders[f] == 2 and f not in closure((r,), dim):
            turned = multiply(multiply(f, r), f)
            if multiply(turned, r) == identity(dim):
                return "dihedral", (r, f)
    if len(_rotations(point)) == size == 24:
        return "octahedral", ()
    if negative(identity(dim)) in point and _recipe(_rotations(point)) is not None:
        return "inverted", ()
    return None
