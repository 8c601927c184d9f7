"""The fibre: the orthogonal matrices ρ(M) by which a point group acts on one channel's components.

They are evaluated once, from an escnn ``Representation``. Integer entries are made exact, and what
escnn computed numerically is polished to a homomorphism of working precision by
ρ(g) ← mean_h ρ(gh) ρ(h)ᵀ, which converges quadratically.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._elements import Element, LatticeElement, SiteElement, are_permutations
from ._matrices import IntMatrix, multiply
from ._points import escnn_group
from ._symmetry import Symmetry
from ._tensors import SCALAR, Layout, Tensors, blocks_of
from .gate import load_group

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Fibre:
    """A representation of the ambient point group, or the fibre given with generators.

    ``matrices[k]`` is ρ of ``point[k]``; both are empty for generators. Equal when these are equal.
    """

    name: str
    size: int
    point: tuple[IntMatrix, ...]
    matrices: FloatArray
    permutes: bool
    recipe: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        self.matrices.flags.writeable = False

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Without what is cached: hashes differ between processes."""
        fields = (self.name, self.size, self.point, self.matrices, self.permutes, self.recipe)
        return Fibre, fields

    @cached_property
    def _table(self) -> dict[IntMatrix, FloatArray]:
        return dict(zip(self.point, self.matrices, strict=True))

    @cached_property
    def _hash(self) -> int:
        return hash((self.size, self.point, self.matrices.tobytes()))

    def matrix(self, g: Element) -> FloatArray:
        """ρ(g), F × F."""
        if isinstance(g, LatticeElement):
            if len(self.point) <= 1 and self.recipe[:1] != ("tensors",):
                return np.eye(self.size)
            if g.point not in self._table:
                raise ValueError(f"the point group of the fibre {self.name} does not contain {g}")
            return self._table[g.point]
        if not isinstance(g, SiteElement):
            raise TypeError(f"not a group element: {g!r}")
        if self.name == "trivial":
            return np.ones((1, 1))
        return self.tensors.matrix(self._blocks(g.fibre))

    @property
    def tensors(self) -> Tensors:
        """The fibre of a symmetry defined by generators, in terms of those that came with it."""
        if self.name == "trivial" and not self.recipe:
            return SCALAR
        if self.recipe[:1] != ("tensors",):
            raise ValueError(f"the fibre {self.name} is not made from those of generators")
        found: Tensors = self.recipe[1]
        return found

    @property
    def turns(self) -> int | None:
        """The number of turns that it is the regular fibre of, 1 for scalars; None for others."""
        if self.recipe[:1] == ("turns",):
            return self.size
        return 1 if self.name == "trivial" else None

    def derivative(self, x: FloatArray) -> FloatArray:
        """dρ(X), F × F, for a matrix X of a Lie algebra."""
        return self.tensors.derivative(self._blocks(x))

    def factors(self, g: Element) -> list[list[FloatArray]]:
        """ρ(g) by summands and their tensor factors."""
        assert isinstance(g, SiteElement)
        return self.tensors.factors(self._blocks(g.fibre))

    def derivatives(self, x: FloatArray) -> list[list[FloatArray]]:
        """dρ(X) by summands and their tensor factors."""
        return self.tensors.derivatives(self._blocks(x))

    def _blocks(self, matrix: FloatArray) -> dict[str, FloatArray]:
        layout: Layout = self.recipe[2] if self.recipe else ()
        if layout and len(matrix) != sum(size for _, size in layout):
            raise ValueError(
                f"a matrix of size {len(matrix)} does not act on the fibre {self.name} of size "
                f"{self.size}"
            )
        return blocks_of(matrix, layout)

    @property
    def representation(self) -> Any:
        """The escnn ``Representation``; ValueError for the fibre of generators."""
        if not self.recipe or self.recipe[0] == "tensors":
            raise ValueError(
                f"the fibre {self.name} was given by generators: escnn does not know it"
            )
        group, table = escnn_group(self.point)
        if self.recipe[0] == "trivial":
            return group.trivial_representation
        if self.recipe[0] == "regular":
            return group.regular_representation
        if self.recipe[0] in ("matrices", "turns"):
            irreps = list(group.irreps())
            order = [table[m] for m in self.point]
            chosen, basis = decompose(
                self.matrices, [np.array([i(e) for e in order]) for i in irreps]
            )
            names = [irreps[k].id for k in chosen]
            kinds = ["norm", "pointwise"] if self.permutes else ["norm"]
        else:
            _, names, basis, kinds = self.recipe
        known = group.representations.get(self.name)
        if known is not None and np.array_equal(known.change_of_basis, basis):
            return known
        by_element = {table[m]: matrix for m, matrix in self._table.items()}
        return load_group().Representation(group, self.name, names, basis, kinds, by_element)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Fibre)
            and self._hash == other._hash
            and self.size == other.size
            and self.point == other.point
            and (bool(self.point) or self.name == other.name)
            and np.array_equal(self.matrices, other.matrices)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name


def make_fibre(ambient: Symmetry, fibre: object) -> Fibre:
    """The fibre of a space over that ambient symmetry; ``fibre`` as in ``GroupSet.space``."""
    if isinstance(fibre, Fibre):
        return _checked(ambient, fibre)
    if not ambient.is_catalogue:
        return _generator_fibre(ambient, fibre)
    point = ambient.point
    if isinstance(fibre, str) and fibre == "trivial":
        return Fibre("trivial", 1, point, np.ones((len(point), 1, 1)), True, ("trivial",))
    if fibre is None or (isinstance(fibre, str) and fibre == "regular"):
        if ambient.is_approximate:
            return _regular_turns(ambient)
        return make_fibre(ambient, "trivial") if len(point) <= 1 else _regular(point)
    group, table = escnn_group(point)
    representation: Any = fibre
    if isinstance(fibre, str) and fibre.startswith("irrep:"):
        representation = _irrep(group, fibre.removeprefix("irrep:"))
    elif not hasattr(fibre, "change_of_basis") or not callable(fibre):
        raise ValueError(
            "a fibre is 'trivial', 'regular', 'irrep:<id>' or an escnn Representation, "
            f"got {fibre!r}"
        )
    if representation.group != group:
        raise ValueError(
            f"the fibre {representation.name} represents the group {representation.group}, "
            f"but the point group of {ambient} is escnn's {group}; take representation.restrict(…)"
        )
    size = int(representation.size)
    matrices = np.array([representation(table[m]) for m in point], float).reshape(-1, size, size)
    recipe = (
        "escnn",
        [tuple(i) for i in representation.irreps],
        np.array(representation.change_of_basis),
        sorted(representation.supported_nonlinearities),
    )
    name = str(representation.name)
    return fibre_of_matrices(name, point, matrices, recipe)


def fibre_of_matrices(
    name: str,
    point: tuple[IntMatrix, ...],
    matrices: FloatArray,
    recipe: tuple[Any, ...] = ("matrices",),
) -> Fibre:
    """The fibre on which ``point[k]`` acts by ``matrices[k]``, checked to be a representation."""
    matrices = _polished(name, point, matrices)
    return Fibre(name, matrices.shape[1], point, matrices, are_permutations(matrices), recipe)


@lru_cache(maxsize=256)
def _regular(point: tuple[IntMatrix, ...]) -> Fibre:
    """ρ(g) e_h = e_gh, with escnn's order of the elements."""
    group, table = escnn_group(point)
    position = {element: k for k, element in enumerate(group.elements)}
    where = {m: position[table[m]] for m in point}
    matrices = np.zeros((len(point),) * 3)
    for k, g in enumerate(point):
        for h in point:
            matrices[k, where[multiply(g, h)], where[h]] = 1.0
    return Fibre("regular", len(point), point, matrices, True, ("regular",))


def patch_fibre(ambient: Symmetry, sides: Sequence[int]) -> Fibre:
    """The pixels of a patch as the components of a fibre, in row-major order.

    A motion M of the ambient point group moves pixel u of a patch, measured from its centre, to
    pixel Mu of the patch to which it moves the site. So an image that is cut into patches is a
    feature space on the lattice of patches, whose point group turns about the centres of patches.

    Raises
    ------
    ValueError
        If the symmetry is given by generators, acts on another number of axes, or exchanges sides
        of different length.
    """
    point, shape = ambient.point, tuple(int(n) for n in sides)
    if not ambient.is_catalogue or ambient.dim not in (None, len(shape)):
        raise ValueError(f"{ambient} does not act on patches of {'×'.join(map(str, shape))} pixels")
    pixels = np.indices(shape).reshape(len(shape), -1)
    ends = np.array(shape)[:, None] - 1
    size = pixels.shape[1]
    matrices = np.zeros((len(point), size, size))
    for k, m in enumerate(point):
        moved = (np.array(m).reshape(len(shape), -1) @ (2 * pixels - ends) + ends) // 2
        if (moved < 0).any() or (moved > ends).any():
            raise ValueError(
                f"{ambient} exchanges sides of patches of {'×'.join(map(str, shape))} pixels, "
                "which must be equal"
            )
        matrices[k, np.ravel_multi_index(tuple(moved), shape), np.arange(size)] = 1.0
    return Fibre("patch", size, point, matrices, True, ("matrices",))


def _regular_turns(ambient: Symmetry) -> Fibre:
    """The regular fibre of n turns, restricted to quarter turns."""
    if len(ambient.point) != 4:
        raise ValueError(
            f"{ambient} has reflections beside turns by other angles; its fibre is 'trivial'"
        )
    n = ambient.sampled_turns
    table = escnn_group(ambient.point)[1]
    steps = [n // 4 * int(table[m].value) for m in ambient.point]
    matrices = np.array([np.roll(np.eye(n), step, axis=0) for step in steps])
    return Fibre(f"regular({n})", n, ambient.point, matrices, True, ("turns", n))


def _generator_fibre(ambient: Symmetry, fibre: object) -> Fibre:
    """The trivial fibre, or one made from those of the generators (None: product of all)."""
    if isinstance(fibre, Tensors):
        return _tensor_fibre(ambient, str(fibre), fibre)
    if hasattr(fibre, "change_of_basis") and callable(fibre):
        return _tensor_fibre(ambient, *_of_escnn(ambient, fibre))
    names = [name for name, _ in ambient.layout]
    wanted = fibre.split("×") if isinstance(fibre, str) else fibre
    if fibre in (None, "generators"):
        wanted = names
    if fibre == "trivial" or (fibre in (None, "generators") and not names):
        return Fibre("trivial", 1, (), np.zeros((0, 1, 1)), True)
    if not isinstance(wanted, list) or not wanted or not set(wanted) <= set(names):
        own = "".join(f", {n!r}" for n in names if n)
        own += ", or some of these joined by ×" if len(names) > 1 else ""
        raise ValueError(
            f"{ambient} is defined by generators: its fibre is 'trivial', Tensors, or the one that "
            f"the generators brought along (None{own}), got {fibre!r}"
        )
    label = "generators" if wanted == [""] else "×".join(name or "fibre" for name in wanted)
    return _tensor_fibre(ambient, label, math.prod(map(Tensors.of, wanted), start=SCALAR))


def _tensor_fibre(ambient: Symmetry, label: str, tensors: Tensors) -> Fibre:
    layout = ambient.layout
    try:
        size = sum(tensors.sizes(layout))
    except ValueError as error:
        raise ValueError(f"{tensors} is no representation of {ambient}: {error}") from None
    assert ambient.lattice is not None
    maps = [
        factor
        for g in ambient.generators(ambient.lattice)
        for term in tensors.factors(blocks_of(g.fibre, layout))  # type: ignore[attr-defined]
        for factor in term
    ]
    recipe = ("tensors", tensors, layout)
    return Fibre(label, size, (), np.zeros((0, size, size)), are_permutations(maps), recipe)


def _of_escnn(ambient: Symmetry, representation: Any) -> tuple[str, Tensors]:
    from ._continuous import as_tensors

    return as_tensors(ambient, representation)


def _checked(ambient: Symmetry, fibre: Fibre) -> Fibre:
    if ambient.is_catalogue:
        fits = fibre.point == ambient.point and fibre.recipe[:1] != ("tensors",)
    elif fibre.recipe:
        fits = fibre.recipe[0] == "tensors" and fibre.recipe[2] == ambient.layout
    else:
        fits = fibre.name == "trivial" and not fibre.point
    if not fits:
        raise ValueError(f"the fibre {fibre} is not one of the ambient symmetry {ambient}")
    return fibre


def _irrep(group: Any, label: str) -> Any:
    for irrep in group.irreps():
        if label in (irrep.name, irrep.name.removeprefix("irrep_")):
            return irrep
    names = ", ".join(f"irrep:{i.name.removeprefix('irrep_')}" for i in group.irreps())
    raise ValueError(f"escnn's {group} has no irrep {label!r}; it has {names}")


def _polished(name: str, point: tuple[IntMatrix, ...], matrices: FloatArray) -> FloatArray:
    size = matrices.shape[1]
    defect = float(np.abs(matrices @ matrices.transpose(0, 2, 1) - np.eye(size)).max(initial=0.0))
    if defect > 1e-4:
        raise ValueError(f"the fibre {name} is not orthogonal: ρρᵀ is off by {defect:.1e}")
    rounded = np.rint(matrices)
    near = np.abs(matrices - rounded) < 1e-9
    matrices = np.where(near, rounded, matrices) + 0.0
    if not len(point):
        return matrices
    index = {m: k for k, m in enumerate(point)}
    products = np.array([[index[multiply(g, h)] for h in point] for g in point], dtype=int)
    for _ in range(5):
        all_products = np.einsum("gij,hjk->ghik", matrices, matrices, optimize=True)
        defect = float(np.abs(all_products - matrices[products]).max(initial=0.0))
        if defect < 4e-16 * size:
            break
        matrices = np.einsum("ghij,hkj->gik", matrices[products], matrices, optimize=True)
        matrices /= len(point)
    if defect > 1e-10:
        raise ValueError(f"the fibre {name} is not a representation: off by {defect:.1e}")
    return matrices


def decompose(matrices: FloatArray, irreps: Sequence[FloatArray]) -> tuple[list[int], FloatArray]:
    """(which irreps, Q) with ρ(g) = Q (⊕ ψ_i(g)) Qᵀ, Q orthogonal.

    ρ(g_k) is ``matrices[k]`` and ψ_i(g_k) is ``irreps[i][k]``. Averaging ρ(g) A ψ(g)ᵀ over the
    group turns any A into an intertwiner T from ψ to ρ. TᵀT is symmetric and commutes with ψ, hence
    a multiple of the identity: T over its scale is a block of columns of Q. The next block starts
    from an A that is orthogonal to the images found so far.
    """
    size = matrices.shape[1]
    rng = np.random.default_rng(0)
    chosen: list[int] = []
    columns = np.zeros((size, 0))
    for i, irrep in enumerate(irreps):
        traces = np.trace(irrep, axis1=1, axis2=2)
        overlap = float(np.mean(traces * np.trace(matrices, axis1=1, axis2=2)))
        multiplicity = round(overlap / float(np.mean(traces**2)))
        for _ in range(multiplicity):
            start = rng.standard_normal((size, irrep.shape[1]))
            start -= columns @ (columns.T @ start)
            block = np.einsum("gij,jk,glk->il", matrices, start, irrep, optimize=True)
            block -= columns @ (columns.T @ block)
            scale = np.sqrt(np.sum(block**2) / irrep.shape[1])
            columns = np.concatenate([columns, block / scale], axis=1)
            chosen.append(i)
    return chosen, columns
