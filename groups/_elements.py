"""Elements of a group.

A :class:`LatticeElement` (M, t) moves the site s to M(s − c) + c + t on the torus, c the array
centre, so (M, t)(M′, t′) = (MM′, Mt′ + t) on odd and even sizes alike. The space determines what
it does to a fibre: ρ(M). A :class:`SiteElement` is given by what it does: an orthogonal map of
the sites (kept as a signed permutation where it is one) together with a map of the fibre.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ._matrices import IntMatrix, identity, inverse, multiply, site_permutation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


@runtime_checkable
class Element(Protocol):
    """What every group element can do."""

    @property
    def name(self) -> str: ...

    @property
    def is_identity(self) -> bool: ...

    def __mul__(self, other: Element, /) -> Element: ...

    def inverse(self) -> Element: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True)
class LatticeElement:
    """A point matrix about the array centre, followed by a translation."""

    point: IntMatrix
    shift: tuple[int, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.shift) != len(self.shape):
            raise ValueError(f"the shift {self.shift} does not fit a lattice {self.shape}")
        shift = tuple(t % n for t, n in zip(self.shift, self.shape, strict=True))
        object.__setattr__(self, "shift", shift)

    def __mul__(self, other: Element) -> LatticeElement:
        if not isinstance(other, LatticeElement):
            return NotImplemented
        if other.shape != self.shape or len(other.point) != len(self.point):
            raise ValueError(f"{self} and {other} act on different lattices")
        moved = self._turn(other.shift)
        shift = tuple(a + b for a, b in zip(moved, self.shift, strict=True))
        return LatticeElement(multiply(self.point, other.point), shift, self.shape)

    def inverse(self) -> LatticeElement:
        back = LatticeElement(inverse(self.point), (0,) * len(self.shape), self.shape)
        return LatticeElement(back.point, tuple(-t for t in back._turn(self.shift)), self.shape)

    def _turn(self, shift: tuple[int, ...]) -> tuple[int, ...]:
        if not self.shape:
            return ()
        return tuple(sum(v * t for v, t in zip(row, shift, strict=True)) for row in self.point)

    @property
    def is_identity(self) -> bool:
        return not any(self.shift) and self.point == identity(len(self.point))

    @property
    def name(self) -> str:
        parts = []
        if any(self.shift):
            parts.append(f"shift{self.shift}".replace(" ", "").replace(",)", ")"))
        if self.point != identity(len(self.point)):
            parts.append(point_name(self.point))
        return "·".join(parts) or "e"

    def sites(self, shape: tuple[int, ...]) -> IntArray:
        """Where each site of a torus goes whose sides divide those of this element's torus."""
        if not shape:
            return site_permutation((), (), ())
        if len(shape) != len(self.shape) or any(
            n % m for n, m in zip(self.shape, shape, strict=True)
        ):
            raise ValueError(
                f"{self.name} on the torus {self.shape} does not act on the torus {shape}: "
                "the sides of the latter must divide those of the former"
            )
        shift = tuple(t % n for t, n in zip(self.shift, shape, strict=True))
        return site_permutation(self.point, shift, shape)

    def __repr__(self) -> str:
        return self.name


def point_name(matrix: IntMatrix) -> str:
    """A short name: ``rot90``, ``flip(0)``, ``transpose``… or, in 3-D, the images of the axes."""
    if len(matrix) == 1:
        return "flip(0)"
    if len(matrix) == 2:
        return _PLANE[matrix]
    images = []
    for row in matrix:
        j = next(k for k, v in enumerate(row) if v)
        images.append(("+" if row[j] > 0 else "-") + "ijk"[j])
    return f"[{','.join(images)}]"


_PLANE: dict[IntMatrix, str] = {
    ((0, -1), (1, 0)): "rot90",
    ((-1, 0), (0, -1)): "rot180",
    ((0, 1), (-1, 0)): "rot270",
    ((-1, 0), (0, 1)): "flip(0)",
    ((1, 0), (0, -1)): "flip(1)",
    ((0, 1), (1, 0)): "transpose",
    ((0, -1), (-1, 0)): "antitranspose",
}


@dataclass(frozen=True, eq=False, repr=False)
class SiteElement:
    """An orthogonal map of the sites with an invertible map of the fibre, mostly orthogonal.

    ``sites`` and ``signs`` hold a signed permutation: site s moves to ``sites[s]``, multiplied by
    ``signs[s]``. ``matrix`` holds any other orthogonal map. One of the two is ``None``. Equality
    is exact for signed permutations; other matrices count as equal when four fixed random
    projections of them agree to 1e-5.
    """

    sites: IntArray | None
    signs: FloatArray | None
    matrix: FloatArray | None
    fibre: FloatArray
    label: str = ""

    def __post_init__(self) -> None:
        sites, signs, matrix = self.sites, self.signs, self.matrix
        if matrix is not None and (signed := signed_permutation(matrix)) is not None:
            sites, signs = signed
            matrix = None
        if sites is not None and signs is None:
            signs = np.ones(len(sites))
        fibre, fibre_key = _snap(self.fibre)
        if matrix is None:
            assert sites is not None
            assert signs is not None
            moves = sites.astype(np.int64).tobytes() + signs.astype(np.int8).tobytes()
        else:
            moves = fingerprint(matrix)
        values = {"sites": sites, "signs": signs, "matrix": matrix, "fibre": fibre}
        for field, array in values.items():
            if array is not None:
                array.flags.writeable = False
            object.__setattr__(self, field, array)
        key = (matrix is None, moves, fibre.shape[0], fibre_key)
        object.__setattr__(self, "_key", key)

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return SiteElement, (self.sites, self.signs, self.matrix, self.fibre, self.label)

    @property
    def name(self) -> str:
        return self.label or self._describe()

    @property
    def degree(self) -> int:
        """The number of sites moved."""
        return len(self.sites) if self.sites is not None else len(self.site_matrix)

    @property
    def moves(self) -> list[Any]:
        """What it does to sites, as ``Symmetry.from_generators`` takes it: images, or a matrix."""
        if self.sites is not None and self.permutes_sites:
            return list(self.sites.tolist())
        return list(self.site_matrix.tolist())

    @property
    def permutes_sites(self) -> bool:
        """Whether it permutes the sites, without signs."""
        return self.signs is not None and bool((self.signs > 0).all())

    @property
    def site_matrix(self) -> FloatArray:
        """The P × P orthogonal matrix on the sites."""
        if self.matrix is not None:
            return self.matrix
        assert self.sites is not None
        assert self.signs is not None
        dense = np.zeros((len(self.sites),) * 2)
        dense[self.sites, np.arange(len(self.sites))] = self.signs
        return dense

    def __mul__(self, other: Element) -> SiteElement:
        if not isinstance(other, SiteElement):
            return NotImplemented
        if self.degree != other.degree or self.fibre.shape != other.fibre.shape:
            raise ValueError(f"{self} and {other} act on different spaces")
        fibre = self.fibre @ other.fibre
        if self.sites is None or other.sites is None:
            return SiteElement(None, None, self.site_matrix @ other.site_matrix, fibre)
        assert self.signs is not None
        assert other.signs is not None
        return SiteElement(
            self.sites[other.sites], self.signs[other.sites] * other.signs, None, fibre
        )

    def inverse(self) -> SiteElement:
        if self.sites is None or self.signs is None:
            return SiteElement(None, None, self.site_matrix.T.copy(), _inverse(self.fibre))
        sites = np.empty_like(self.sites)
        sites[self.sites] = np.arange(len(sites))
        return SiteElement(sites, self.signs[sites], None, _inverse(self.fibre))

    @property
    def is_identity(self) -> bool:
        return self == self.identity_like()

    @property
    def fixes_sites(self) -> bool:
        """Whether it leaves every site alone; it may act on the fibre."""
        if self.sites is None or not self.permutes_sites:
            return False
        return bool((self.sites == np.arange(self.degree)).all())

    def identity_like(self) -> SiteElement:
        return SiteElement(np.arange(self.degree), None, None, np.eye(self.fibre.shape[0]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SiteElement) and vars(self)["_key"] == vars(other)["_key"]

    def __hash__(self) -> int:
        return hash(vars(self)["_key"])

    def __repr__(self) -> str:
        return self.name

    def _describe(self) -> str:
        if self.sites is None:
            return f"matrix({self.degree})"
        cycles = cycles_of(self.sites)
        text = "".join("(" + " ".join(map(str, c)) + ")" for c in cycles) or "e"
        signed = "±" if (self.signs is not None and (self.signs < 0).any()) else ""
        return signed + (text if len(text) <= 40 else f"{text[:36]}…)")


def _inverse(fibre: FloatArray) -> FloatArray:
    """The transpose where that is the inverse; boosts and scalings are not orthogonal."""
    if np.abs(fibre @ fibre.T - np.eye(len(fibre))).max(initial=0.0) < 1e-9:
        return fibre.T.copy()
    return np.linalg.inv(fibre)


def cycles_of(sites: IntArray) -> list[list[int]]:
    """The cycles of length two and more of a permutation."""
    images = sites.tolist()
    seen = [False] * len(images)
    cycles = []
    for start in range(len(images)):
        cycle = []
        s = start
        while not seen[s]:
            seen[s] = True
            cycle.append(s)
            s = images[s]
        if len(cycle) > 1:
            cycles.append(cycle)
    return cycles


def signed_permutation(matrix: FloatArray) -> tuple[IntArray, FloatArray] | None:
    """(p, ε) with e_i ↦ ε_i e_p[i], or ``None`` when the matrix does anything else."""
    large = np.abs(matrix) > 1e-9
    if not ((large.sum(0) == 1).all() and (large.sum(1) == 1).all()):
        return None
    images = np.abs(matrix).argmax(0)
    values = matrix[images, np.arange(len(images))]
    signs = np.sign(values)
    return (images, signs) if np.abs(values - signs).max(initial=0.0) < 1e-9 else None


def are_permutations(matrices: Iterable[FloatArray]) -> bool:
    """Whether every matrix permutes basis vectors, without signs."""
    signed = (signed_permutation(m) for m in matrices)
    return all(s is not None and bool((s[1] > 0).all()) for s in signed)


def fingerprint(matrix: FloatArray) -> bytes:
    """Four fixed random projections of a matrix, rounded to 1e-5."""
    projections: FloatArray = np.rint(_weights(matrix.size) @ matrix.ravel() * 1e5)
    return projections.astype(np.int64).tobytes()


@lru_cache(maxsize=16)
def _weights(size: int) -> FloatArray:
    return np.random.default_rng(size).standard_normal((4, size))


def _snap(fibre: FloatArray) -> tuple[FloatArray, bytes]:
    """The fibre map with integer entries made exact, and its key."""
    rounded = np.rint(fibre)
    if np.abs(fibre - rounded).max(initial=0.0) < 1e-9:
        return rounded + 0.0, rounded.astype(np.int64).tobytes()
    return fibre, fingerprint(fibre)
