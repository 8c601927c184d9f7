"""The fibre: the orthogonal matrices ρ(M) by which a point group acts on one channel's components.

They are evaluated once from an escnn ``Representation``; integer entries are made exact, and a
representation that escnn computed numerically is polished to a homomorphism of working precision
by ρ(g) ← mean_h ρ(gh) ρ(h)ᵀ, which converges quadratically.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._elements import Element, LatticeElement, SiteElement, signed_permutation
from ._matrices import IntMatrix, multiply
from ._points import escnn_group
from ._symmetry import Symmetry

__all__ = ["Fibre", "make_fibre"]

FloatArray = NDArray[np.float64]


class Fibre:
    """A representation of the ambient point group, or (``point`` empty) of the generators' own."""

    __slots__ = ("_recipe", "_table", "matrices", "name", "permutes", "point", "size")

    name: str
    size: int
    point: tuple[IntMatrix, ...]
    matrices: FloatArray
    permutes: bool
    _table: dict[IntMatrix, FloatArray]
    _recipe: tuple[Any, ...] | None

    def __init__(
        self,
        name: str,
        size: int,
        point: tuple[IntMatrix, ...],
        matrices: FloatArray,
        permutes: bool,
        recipe: tuple[Any, ...] | None = None,
    ) -> None:
        matrices.flags.writeable = False
        values = (name, size, point, matrices, permutes, dict(zip(point, matrices, strict=True)))
        fields = ("name", "size", "point", "matrices", "permutes", "_table", "_recipe")
        for field, value in zip(fields, (*values, recipe), strict=True):
            object.__setattr__(self, field, value)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"a fibre is frozen: cannot set {field!r}")

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        fields = (self.name, self.size, self.point, self.matrices, self.permutes, self._recipe)
        return Fibre, fields

    def matrix(self, g: Element) -> FloatArray:
        """ρ(g), F × F."""
        if isinstance(g, SiteElement):
            if g.fibre.shape[0] == self.size:
                return g.fibre
            return np.eye(self.size)
        if isinstance(g, LatticeElement):
            if not self.point:
                return np.eye(self.size)
            try:
                return self._table[g.point]
            except KeyError:
                raise ValueError(f"the point group of the fibre {self.name} does not contain {g}") from None
        raise TypeError(f"not a group element: {g!r}")

    @property
    def representation(self) -> Any:
        """The escnn ``Representation``."""
        if self._recipe is None:
            raise ValueError(f"the fibre {self.name} is given by generators, not by escnn")
        group, _ = escnn_group(self.point)
        return _representation(group, self._recipe)

    @property
    def key(self) -> tuple[object, ...]:
        return (self.size, self.point, self.matrices.tobytes())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fibre) and self.key == other.key)

    def __hash__(self) -> int:
        return hash((self.size, len(self.point), self.name))

    def __repr__(self) -> str:
        return self.name


def make_fibre(ambient: Symmetry, fibre: object) -> Fibre:
    """The fibre of a space over that ambient symmetry.

    ``fibre``: ``None`` (regular; for generators their own), ``"trivial"``, ``"regular"``,
    ``"irrep:<id>"``, or an escnn ``Representation`` of the ambient point group.
    """
    if isinstance(fibre, Fibre):
        wrong = fibre.point != ambient.point and fibre.point
        if wrong or (not ambient.is_catalogue and fibre.size not in (1, ambient.fibre_size)):
            raise ValueError(f"the fibre {fibre.name} is not one of the point group of {ambient}")
        return fibre
    if not ambient.is_catalogue:
        return _generator_fibre(ambient, fibre)
    point = ambient.point
    if fibre == "trivial" or (len(point) <= 1 and fibre in (None, "regular")):
        return Fibre("trivial", 1, point, np.ones((len(point), 1, 1)), True, ("trivial",))
    if fibre in (None, "regular"):
        return _regular(point)
    group, table = escnn_group(point)
    if isinstance(fibre, str):
        if not fibre.startswith("irrep:"):
            raise ValueError(
                f"unknown fibre {fibre!r}: 'trivial', 'regular', 'irrep:<id>' or an escnn Representation"
            )
        representation = _irrep(group, fibre.removeprefix("irrep:"))
    else:
        representation = fibre
        if not hasattr(fibre, "change_of_basis") or not callable(fibre):
            raise ValueError(
                f"a fibre is 'trivial', 'regular', 'irrep:<id>' or an escnn Representation, got {fibre!r}"
            )
        if getattr(fibre, "group", None) != group:
            raise ValueError(
                f"the fibre {getattr(fibre, 'name', fibre)} represents {getattr(fibre, 'group', None)}, "
                f"but the point group of {ambient} is escnn's {group}"
            )
    matrices = np.array([np.asarray(representation(table[m]), dtype=float) for m in point])
    matrices = _polished(str(representation.name), point, matrices)
    return Fibre(
        str(representation.name),
        int(representation.size),
        point,
        matrices,
        _permutes(matrices),
        (
            "escnn",
            str(representation.name),
            [tuple(i) for i in representation.irreps],
            np.array(representation.change_of_basis),
            sorted(representation.supported_nonlinearities),
        ),
    )


_REGULAR: dict[tuple[IntMatrix, ...], Fibre] = {}


def _regular(point: tuple[IntMatrix, ...]) -> Fibre:
    """ρ(g) e_h = e_gh, with escnn's order of the elements."""
    if point not in _REGULAR:
        group, table = escnn_group(point)
        position = {element: k for k, element in enumerate(group.elements)}
        where = {m: position[table[m]] for m in point}
        matrices = np.zeros((len(point),) * 3)
        for k, g in enumerate(point):
            for h in point:
                matrices[k, where[multiply(g, h)], where[h]] = 1.0
        _REGULAR[point] = Fibre("regular", len(point), point, matrices, True, ("regular",))
    return _REGULAR[point]


def _generator_fibre(ambient: Symmetry, fibre: object) -> Fibre:
    if fibre is None or fibre == "generators":
        size = ambient.fibre_size
    elif fibre == "trivial":
        size = 1
    else:
        raise ValueError(
            f"{ambient} is defined by generators: its fibre is 'trivial' or the one given with the "
            f"generators (fibre=None), got {fibre!r}"
        )
    maps = [signed_permutation(g.fibre) for g in ambient.site_generators] if size > 1 else []
    permutes = all(s is not None and bool((s[1] > 0).all()) for s in maps)
    return Fibre("trivial" if size == 1 else "generators", size, (), np.zeros((0, size, size)), permutes)


def _irrep(group: Any, label: str) -> Any:
    for irrep in group.irreps():
        if label in (irrep.name, irrep.name.removeprefix("irrep_")):
            return irrep
    names = ", ".join(f"irrep:{i.name.removeprefix('irrep_')}" for i in group.irreps())
    raise ValueError(f"{group} has no irrep {label!r}; it has {names}")


def _representation(group: Any, made: tuple[Any, ...]) -> Any:
    from ._escnn import load_group

    if made[0] == "trivial":
        return group.trivial_representation
    if made[0] == "regular":
        return group.regular_representation
    _, name, irreps, change_of_basis, nonlinearities = made
    known = group.representations.get(name)
    if known is not None and np.array_equal(known.change_of_basis, change_of_basis):
        return known
    return load_group().Representation(group, name, irreps, change_of_basis, nonlinearities)


def _permutes(matrices: FloatArray) -> bool:
    signed = [signed_permutation(m) for m in matrices]
    return all(s is not None and bool((s[1] > 0).all()) for s in signed)


def _polished(name: str, point: tuple[IntMatrix, ...], matrices: FloatArray) -> FloatArray:
    size = matrices.shape[1]
    defect = np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(size)).max(initial=0.0)
    if defect > 1e-4:
        raise ValueError(f"the fibre {name} is not orthogonal (by {defect:.1e})")
    rounded = np.rint(matrices)
    near = np.abs(matrices - rounded) < 1e-9
    matrices = np.where(near, rounded, matrices) + 0.0
    if near.all():
        return matrices
    index = {m: k for k, m in enumerate(point)}
    products = np.array([[index[multiply(g, h)] for h in point] for g in point])
    for _ in range(4):
        defect = np.abs(np.einsum("gij,hjk->ghik", matrices, matrices) - matrices[products]).max()
        if defect < 4e-16 * size:
            break
        matrices = np.einsum("ghij,hkj->gik", matrices[products], matrices) / len(point)
    if defect > 1e-10:
        raise ValueError(f"the fibre {name} is not a representation (by {defect:.1e})")
    return matrices
