"""Continuous groups by name, and those of escnn with their representations as fibres.

Bases of the Lie algebras: (E_ij − E_ji) for rotations, (E_0i + E_i0) for boosts. An irrep ψ of a
compact group G ⊂ O(n) is a part of some tensor power of V = Rⁿ. It is found step by step, as a part
of ψ′ ⊗ V with ψ′ found before: the intertwiners A with (ψ′(g) ⊗ g) A = A ψ(g) for random g are
those of all of G, and AᵀA is a multiple of the identity.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._lattice import Lattice
from ._order import is_inside
from ._symmetry import Symmetry
from ._tensors import Parts, Tensors, blocks_of

FloatArray = NDArray[np.float64]
Shape = Lattice | Sequence[int] | int

Id = tuple[Any, ...]
Found = tuple[tuple[tuple[int, FloatArray], ...], dict[Id, int]]

_MOST_PARENTS = 128
_DRAWN = 6
_CYLINDERS = ("Cylindrical", "FullCylindrical")

_known: dict[tuple[str, tuple[Id, ...]], Found] = {}  # escnn's groups are not hashable


def _plane(n: int, i: int, j: int, sign: float = -1.0) -> FloatArray:
    """E_ji + sign · E_ij: for −1, the rotation from axis i to axis j."""
    matrix = np.zeros((n, n))
    matrix[j, i], matrix[i, j] = 1.0, sign
    return matrix


def _rotation_algebra(n: int) -> list[FloatArray]:
    return [_plane(n, i, j) for i in range(n) for j in range(i + 1, n)]


def rotations(n: int = 3, *, lattice: Shape = ()) -> Symmetry:
    """SO(n): all rotations of vectors in n dimensions."""
    _check_dimension(n)
    return Symmetry.from_lie_algebra(f"SO({n})", _rotation_algebra(n), lattice=lattice)


def orthogonal(n: int = 3, *, lattice: Shape = ()) -> Symmetry:
    """O(n): all rotations and reflections of vectors in n dimensions."""
    _check_dimension(n)
    mirror = np.diag([*[1.0] * (n - 1), -1.0])
    return Symmetry.from_lie_algebra(f"O({n})", _rotation_algebra(n), [mirror], lattice=lattice)


def about_axis(axis: int = 2, flips: str | None = None, *, lattice: Shape = ()) -> Symmetry:
    """Rotations of vectors in three dimensions about one axis.

    Parameters
    ----------
    axis
        The axis that stays: 0, 1 or 2, named x, y and z.
    flips
        ``None`` for SO(2); ``"turns"`` for O(2) as a group of rotations, with half turns that
        reverse the axis; ``"mirrors"`` for O(2) with mirrors that contain the axis.
    lattice
        The lattice at whose sites the vectors are, or its shape.
    """
    if axis not in (0, 1, 2):
        raise ValueError(f"an axis is 0, 1 or 2, got {axis!r}")
    if flips not in (None, "turns", "mirrors"):
        raise ValueError(f"flips is None, 'turns' or 'mirrors', got {flips!r}")
    i, j = (k for k in range(3) if k != axis)
    signs = np.ones(3)
    signs[i] = -1.0
    signs[axis] = -1.0 if flips == "turns" else 1.0
    kind = {None: "SO(2)", "turns": "O(2)", "mirrors": "O(2)m"}[flips]
    return Symmetry.from_lie_algebra(
        f"{kind}{'xyz'[axis]}",
        [_plane(3, i, j)],
        [np.diag(signs)] if flips else [],
        lattice=lattice,
    )


def turns(n: int, axis: int = 2, *, lattice: Shape = ()) -> Symmetry:
    """C_n: rotations of vectors in three dimensions by 360°/n about one axis."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 2:
        raise ValueError(f"a rotation has an order from 2, got {n!r}")
    if axis not in (0, 1, 2):
        raise ValueError(f"an axis is 0, 1 or 2, got {axis!r}")
    i, j = (k for k in range(3) if k != axis)
    c, s = math.cos(2 * math.pi / n), math.sin(2 * math.pi / n)
    turn = np.eye(3)
    turn[i, i], turn[j, j], turn[j, i], turn[i, j] = c, c, s, -s
    return Symmetry.from_lie_algebra(f"C{n}{'xyz'[axis]}", [], [turn], lattice=lattice)


def lorentz(space: int = 3, reflections: bool = False, *, lattice: Shape = ()) -> Symmetry:
    """SO⁺(1, n): rotations and boosts of vectors (t, x₁, …, xₙ), which keep t² − |x|².

    Parameters
    ----------
    space
        The number n of space dimensions.
    reflections
        Add the reversals of time and of the last axis: O(1, n).
    lattice
        The lattice at whose sites the vectors are, or its shape.
    """
    _check_dimension(space, least=1)
    n = space + 1
    spatial = [_plane(n, i, j) for i in range(1, n) for j in range(i + 1, n)]
    boosts = [_plane(n, 0, i, 1.0) for i in range(1, n)]
    signs = np.ones((2, n))
    signs[0, 0], signs[1, -1] = -1.0, -1.0
    name = f"O(1,{space})" if reflections else f"SO(1,{space})"
    discrete = [np.diag(s) for s in signs] if reflections else []
    return Symmetry.from_lie_algebra(name, spatial + boosts, discrete, lattice=lattice)


def scalings(n: int = 3, *, lattice: Shape = ()) -> Symmetry:
    """All positive multiples of vectors in n dimensions."""
    _check_dimension(n, least=1)
    return Symmetry.from_lie_algebra(f"scalings({n})", [np.eye(n)], lattice=lattice)


def _check_dimension(n: object, least: int = 2) -> None:
    if isinstance(n, bool) or not isinstance(n, int) or n < least:
        raise ValueError(f"a number of dimensions is a whole number from {least}, got {n!r}")


def from_escnn_group(group: Any, *, lattice: Shape = ()) -> Symmetry:
    """An escnn group of rotations, by what it does to vectors.

    Parameters
    ----------
    group
        ``so2_group()``, ``o2_group()``, ``so3_group()``, ``o3_group()``, ``cylinder_group()``,
        ``full_cylinder_group()``, or a finite one such as ``ico_group()`` and ``full_ico_group()``.
        Its representations are fibres of spaces of the symmetry.
    lattice
        The lattice at whose sites the vectors are, or its shape.

    Raises
    ------
    ValueError
        If escnn has no vectors on which the group acts.
    """
    vectors, algebra = _vectors(group)
    if not group.continuous:
        discrete = [vectors(e) for e in group.generators]
    else:
        mirrors = {
            "O(2)": [np.diag([1.0, -1.0])],
            "O(3)": [-np.eye(3)],
            "Cylindrical": [np.diag([1.0, 1.0, -1.0])],
            "FullCylindrical": [np.diag([1.0, 1.0, -1.0]), np.diag([1.0, -1.0, 1.0])],
        }
        discrete = mirrors.get(str(group.name), [])
    return Symmetry.from_lie_algebra(str(group.name), algebra, discrete, lattice=lattice)


def _vectors(group: Any) -> tuple[Any, list[FloatArray]]:
    """A faithful representation on vectors as a function of elements, and its Lie algebra."""
    name = str(getattr(group, "name", group))
    one = _plane(3, 0, 1)
    if name in _CYLINDERS:
        turn = group.irrep((0,), (1,) if name == "Cylindrical" else (1, 1))
        mirror = group.irrep((1,), (0,) if name == "Cylindrical" else (0, 0))

        def cylinder(e: Any) -> FloatArray:
            matrix = np.zeros((3, 3))
            matrix[:2, :2], matrix[2:, 2:] = turn(e), mirror(e)
            return matrix

        return cylinder, [one]
    if name == "FullIcosahedral":
        return group.irrep((1,), (1,)), []
    if not hasattr(group, "standard_representation"):
        raise ValueError(
            f"escnn's {name} has no standard representation on vectors; give its matrices to "
            "Symmetry.from_lie_algebra"
        )
    standard = group.standard_representation
    standard = standard if hasattr(standard, "irreps") else standard()
    if not group.continuous:
        return standard, []
    return standard, _rotation_algebra(int(standard.size))


def as_tensors(ambient: Symmetry, representation: Any) -> tuple[str, Tensors]:
    """An escnn representation as a fibre of a symmetry whose vectors its group moves."""
    group = representation.group
    own = from_escnn_group(group)
    fibre = _fibre_of(ambient, own)
    if fibre is None:
        raise ValueError(
            f"the fibre {representation.name} represents escnn's {group.name}, which does not "
            f"contain all that {ambient} does to vectors; take one of a group that does"
        )
    basis = np.asarray(representation.change_of_basis, float)
    if np.abs(basis @ basis.T - np.eye(len(basis))).max() > 1e-8:
        raise ValueError(f"the fibre {representation.name} is not orthogonal")
    ids = tuple(tuple(i) for i in representation.irreps)
    steps, numbers = _found(group, tuple(dict.fromkeys(ids)))
    label = f"{group.name}:{representation.name}"
    if len(ids) > 1:
        label += f"-{hashlib.blake2b(basis.tobytes(), digest_size=4).hexdigest()}"
    part = Parts(fibre, label, steps, tuple(numbers[i] for i in ids), basis)
    return label, Tensors(((part,),))


def _fibre_of(ambient: Symmetry, own: Symmetry) -> str | None:
    """The fibre on which the ambient symmetry does only what `own` does to vectors."""
    for name, size in ambient.layout:
        if size != own.fibre_size:
            continue
        algebra = [blocks_of(x.fibre, ambient.layout)[name] for x in ambient.algebra]
        discrete = [blocks_of(g.fibre, ambient.layout)[name] for g in ambient.site_generators]
        moving = [x for x in algebra if np.abs(x).max() > 0]
        if is_inside(Symmetry.from_lie_algebra("vectors", moving, discrete), own):
            return name
    return None


def _found(group: Any, wanted: tuple[Id, ...]) -> Found:
    """Steps to the irreps (see `Parts`), and the number of each by id; computed once."""
    key = (str(group.name), wanted)
    if key not in _known:
        _known[key] = _searched(group, wanted)
    return _known[key]


def _searched(group: Any, wanted: tuple[Id, ...]) -> Found:
    vectors, _ = _vectors(group)
    elements = _drawn(group)
    moves = [np.asarray(vectors(e), float) for e in elements]
    irreps = _irreps(group, wanted)
    known = [[np.ones((1, 1))] * len(moves)]
    steps: list[tuple[int, FloatArray]] = []
    trivial = tuple(group.trivial_representation.irreps[0])
    numbers = {trivial: 0}
    parent = 0
    while not set(wanted) <= set(numbers) and parent < min(len(known), _MOST_PARENTS):
        products = [np.kron(a, g) for a, g in zip(known[parent], moves, strict=True)]
        for name, irrep in irreps.items():
            if name in numbers or irrep.size > len(products[0]):
                continue
            columns = _intertwiner(products, [np.asarray(irrep(e), float) for e in elements])
            if columns is not None:
                numbers[name] = len(known)
                steps.append((parent, columns))
                known.append([columns.T @ p @ columns for p in products])
        parent += 1
    missing = [i for i in wanted if i not in numbers]
    if missing:
        raise ValueError(
            f"the irreps {missing} of escnn's {group.name} are in no tensor of vectors"
        )
    return tuple(steps), numbers


def _irreps(group: Any, wanted: tuple[Id, ...]) -> dict[Id, Any]:
    """The irreps that escnn lists, and all up to the largest frequency of the wanted ones."""
    if str(group.name) in _CYLINDERS:  # products of mirrors and a group across the axis
        for i in group.G2.bl_irreps(max(i[1][-1] for i in wanted)):
            for mirror in group.G1.irreps():
                group.irrep(mirror.id, i)
    elif group.continuous:
        for i in group.bl_irreps(max(i[-1] for i in wanted)):
            group.irrep(*i)
    return {tuple(i.id): i for i in group.irreps()}


def _drawn(group: Any) -> list[Any]:
    """Random elements, which generate a dense subgroup, or generators; the same every time."""
    if not group.continuous:
        return list(group.generators)
    state = np.random.get_state()  # noqa: NPY002 - what escnn draws from
    try:
        np.random.seed(0)  # noqa: NPY002
        return [group.sample() for _ in range(_DRAWN)]
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _intertwiner(products: list[FloatArray], images: list[FloatArray]) -> FloatArray | None:
    """Orthonormal columns Q with P(g) Q = Q ψ(g) for the drawn elements; None if there are none."""
    size, small = len(products[0]), len(images[0])
    penalty = np.zeros((size * small,) * 2)
    for p, image in zip(products, images, strict=True):
        moved = np.kron(p, image)
        penalty += 2 * np.eye(size * small) - moved - moved.T
    values, vectors = scipy.linalg.eigh(penalty, subset_by_index=(0, 0), check_finite=False)
    if values[0] > 1e-8:
        return None
    columns = vectors[:, 0].reshape(size, small)
    return np.asarray(columns * math.sqrt(small))
