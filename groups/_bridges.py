"""To and from the field types of escnn and e2cnn.

C channels of a fibre ρ are the field type [ρ] * C, and tensors pass unchanged. A field type whose
representations differ becomes one channel whose fibre is their direct sum. Which element of a
foreign group is which matrix is read off its action, so any choice of mirror axis is understood.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.linalg

from ._catalogue import with_own_name
from ._fibre import Fibre, decompose, fibre_of_matrices, make_fibre
from ._generators import valid_name
from ._lattice import Lattice
from ._matrices import IntMatrix, closure, site_permutation
from ._points import array_matrix, escnn_group, is_known
from ._space import FeatureSpace
from ._symmetry import Symmetry
from .gate import load_gspaces, load_nn

Shape = Lattice | Sequence[int] | int


def to_escnn(space: FeatureSpace) -> Any:
    """The escnn ``FieldType`` whose ``transform`` is ``space.act`` for the point group.

    Raises
    ------
    ValueError
        If escnn has no space on which the ambient symmetry acts.
    """
    point = _points_of(space, "escnn", (2, 3))
    group, table = escnn_group(point)
    for gspace in _escnn_spaces(len(point[0]), len(point)):
        if gspace.fibergroup == group and all(
            array_matrix(gspace.basespace_action(table[m])) == m for m in point
        ):
            fields = [space.fibre.representation] * space.channels
            return load_nn().FieldType(gspace, fields)
    raise ValueError(f"escnn has no space on which {space.ambient} acts")


def from_escnn(field_type: Any, lattice: Shape = ()) -> FeatureSpace:
    """The space of an escnn ``FieldType``, with translations in its ambient symmetry.

    Parameters
    ----------
    field_type
        The field type; all elements of its group must move the sites of a lattice exactly.
    lattice
        The lattice of the space, or its shape.

    Raises
    ------
    ValueError
        If an element does not move sites exactly.
    """
    gspace = field_type.gspace
    if gspace.fibergroup.continuous:
        raise ValueError(
            f"the continuous group {gspace.fibergroup} does not move the sites of a lattice "
            "exactly: take a finite subgroup, or test rotations by interpolation "
            "(groupella.testing.rotation_error)"
        )
    try:
        table = {array_matrix(gspace.basespace_action(e)): e for e in gspace.fibergroup.elements}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(
            f"{gspace} does not move the sites of a lattice exactly: {error}"
        ) from None
    point = tuple(sorted(table))
    fields = list(field_type.representations)
    same = all(f is fields[0] for f in fields)
    ambient = _ambient(gspace, point, len(table) == gspace.fibergroup.order())
    group, standard = escnn_group(point)
    if group == gspace.fibergroup and standard == table:
        fibre = make_fibre(ambient, fields[0] if same else field_type.representation)
    else:
        fibre = _fibre_from(fields[:1] if same else fields, [table[m] for m in point], point)
    return FeatureSpace(Lattice.of(lattice), len(fields) if same else 1, ambient, fibre)


def to_e2cnn(space: FeatureSpace) -> Any:
    """The e2cnn ``FieldType`` whose ``transform`` is ``space.act`` for the point group.

    Raises
    ------
    ValueError
        If e2cnn has no space on which the ambient symmetry acts.
    """
    point = _points_of(space, "e2cnn", (2,))
    nn = _e2cnn("nn")
    _, table = escnn_group(point)
    values = [table[m].value for m in point]
    for gspace in _e2cnn_spaces(len(point)):
        if set(gspace.fibergroup.elements) != set(values):
            continue
        if [_e2cnn_matrix(gspace, v) for v in values] == list(point):
            field = _e2cnn_representation(gspace, space.fibre, values)
            return nn.FieldType(gspace, [field] * space.channels)
    raise ValueError(f"e2cnn has no space on which {space.ambient} acts")


def from_e2cnn(field_type: Any, lattice: Shape = ()) -> FeatureSpace:
    """The space of an e2cnn ``FieldType``, with translations in its ambient symmetry.

    Parameters
    ----------
    field_type
        The field type; all elements of its group must move the sites of a lattice exactly.
    lattice
        The lattice of the space, or its shape.

    Raises
    ------
    ValueError
        If an element does not move sites exactly.
    """
    gspace = field_type.gspace
    elements = gspace.fibergroup.elements
    if elements is None:
        raise ValueError(f"{gspace.name} is continuous: it does not move sites exactly")
    table = {_e2cnn_matrix(gspace, e): e for e in elements}
    if None in table:
        raise ValueError(f"{gspace.name} does not move the sites of a lattice exactly")
    point = tuple(sorted(m for m in table if m is not None))
    ambient = _ambient(gspace.name, point, len(table) == len(elements))
    fields = list(field_type.representations)
    same = all(f is fields[0] for f in fields)
    fibre = _fibre_from(fields[:1] if same else fields, [table[m] for m in point], point)
    return FeatureSpace(Lattice.of(lattice), len(fields) if same else 1, ambient, fibre)


def _points_of(space: FeatureSpace, library: str, dims: tuple[int, ...]) -> tuple[IntMatrix, ...]:
    if not space.ambient.is_catalogue:
        raise ValueError(f"{space.ambient} is defined by generators: {library} does not know it")
    dim = space.lattice.dim if space.ambient.dim is None else space.ambient.dim
    if dim not in dims:
        raise ValueError(f"{library} has no {dim}-dimensional spaces, so none for {space}")
    return space.ambient.point_in(dim)


def _ambient(gspace: object, point: tuple[IntMatrix, ...], faithful: bool) -> Symmetry:
    dim = len(point[0])
    if not faithful:
        raise ValueError(f"{gspace} has elements that do not move the base space")
    ambient = with_own_name(Symmetry(valid_name(f"<{gspace}>"), dim, True, closure(point, dim)))
    if is_known(ambient.point):
        return ambient
    raise ValueError(f"the point group of {gspace} is none that groupella knows")


def _fibre_from(fields: list[Any], elements: list[Any], point: tuple[IntMatrix, ...]) -> Fibre:
    """The direct sum of foreign representations, evaluated on one element for each matrix."""
    matrices = [scipy.linalg.block_diag(*(np.asarray(f(e)) for f in fields)) for e in elements]
    return fibre_of_matrices("+".join(f.name for f in fields), point, np.array(matrices, float))


def _escnn_spaces(dim: int, order: int) -> Iterator[Any]:
    """escnn's spaces with a discrete group of that order, as they are asked for."""
    gspaces = load_gspaces()
    half = max(order // 2, 1)
    if dim == 2:
        if order == 1:
            yield gspaces.trivialOnR2()
        yield gspaces.rot2dOnR2(order)
        for axis in (math.pi / 2, 0.0, math.pi / 4, 3 * math.pi / 4):
            yield gspaces.flip2dOnR2(axis) if order == 2 else gspaces.flipRot2dOnR2(half, axis=axis)
        return
    if order == 1:
        yield gspaces.trivialOnR3()
    elif order == 2:
        yield gspaces.invOnR3()
        yield gspaces.mirOnR3(axis=math.pi / 2)
        yield gspaces.mirOnR3(axis=0.0)
    elif order == 24:
        yield gspaces.octaOnR3()
    elif order == 48:
        yield gspaces.fullOctaOnR3()
    if order in (2, 4):
        yield gspaces.rot2dOnR3(order)
    if order in (4, 8):
        yield gspaces.dihedralOnR3(half)
        yield gspaces.conicalOnR3(half)


def _e2cnn(module: str) -> Any:
    try:
        return importlib.import_module(f"e2cnn.{module}")
    except ImportError as error:
        raise ImportError(
            f"e2cnn cannot be imported ({error}): pip install e2cnn (it needs numpy 1.x)"
        ) from error


def _e2cnn_spaces(order: int) -> Iterator[Any]:
    gspaces = _e2cnn("gspaces")
    axes = (math.pi / 2, 0.0, math.pi / 4, 3 * math.pi / 4)
    if order == 1:
        yield gspaces.TrivialOnR2()
    else:
        yield gspaces.Rot2dOnR2(order)
    if order == 2:
        yield from (gspaces.Flip2dOnR2(axis=axis) for axis in axes)
    if order in (4, 8):
        yield from (gspaces.FlipRot2dOnR2(order // 2, axis=axis) for axis in axes)


def _e2cnn_matrix(gspace: Any, element: Any) -> IntMatrix | None:
    """The matrix of an e2cnn element, by what it does to an image; ``None`` if there is none."""
    image = np.arange(9.0).reshape(1, 1, 3, 3)
    moved = gspace._basespace_action(image, element).ravel()
    for matrix in closure((((0, -1), (1, 0)), ((1, 0), (0, -1))), 2):
        sites = site_permutation(matrix, (0, 0), (3, 3))
        if np.allclose(moved[sites], image.ravel(), atol=1e-4):
            return matrix
    return None


def _e2cnn_representation(gspace: Any, fibre: Fibre, values: list[Any]) -> Any:
    group = gspace.fibergroup
    matrices = fibre.matrices if fibre.point else np.ones((1, 1, 1))
    for known in (*group.irreps.values(), *group.representations.values()):
        if known.size == fibre.size and all(
            np.allclose(known(v), m, atol=1e-9) for v, m in zip(values, matrices, strict=True)
        ):
            return known
    irreps = list(group.irreps.values())
    evaluated = [np.array([i(v) for v in values]) for i in irreps]
    chosen, basis = decompose(matrices, evaluated)
    names = [irreps[k].name for k in chosen]
    kinds = ["norm", "pointwise"] if fibre.permutes else ["norm"]
    by_element = dict(zip(values, matrices, strict=True))
    return _e2cnn("group").Representation(group, fibre.name, names, basis, kinds, by_element)
