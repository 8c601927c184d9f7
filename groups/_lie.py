"""Lie algebras of matrices: closure, membership of a group element, random elements.

A continuous symmetry is G = D · exp 𝔤: a Lie algebra 𝔤 of matrices X on the fibres, closed under
[X, Y] = XY − YX, and discrete elements that map 𝔤 to itself. The elements exp X of a basis of 𝔤
generate a dense subgroup of the identity component, so what they leave alone all of it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._elements import SiteElement, fingerprint
from ._enumerate import enumerate_group
from ._faithful import generated_group
from ._tensors import Layout, blocks_of

FloatArray = NDArray[np.float64]

_CLOSED = 1e-9
_STARTS = 12
_STEPS = 60
_MOST_COMPONENTS = 512


@dataclass(frozen=True, eq=False)
class Infinitesimal:
    """An element of a Lie algebra: its matrix on all fibres. It moves no site.

    Equal when four fixed random projections agree to 1e-5.
    """

    fibre: FloatArray

    def __post_init__(self) -> None:
        self.fibre.flags.writeable = False
        object.__setattr__(self, "_key", (len(self.fibre), fingerprint(self.fibre)))

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return Infinitesimal, (self.fibre,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Infinitesimal) and vars(self)["_key"] == vars(other)["_key"]

    def __hash__(self) -> int:
        return hash(vars(self)["_key"])

    def lifted(self, own: Layout, layout: Layout) -> Infinitesimal:
        """The same on the fibres of `layout`: zero on those that are not its own."""
        if own == layout:
            return self
        blocks = blocks_of(self.fibre, own)
        maps = [blocks.get(name, np.zeros((size, size))) for name, size in layout]
        return Infinitesimal(np.asarray(scipy.linalg.block_diag(*maps)))


@lru_cache(maxsize=1024)
def exponential(x: Infinitesimal, degree: int) -> SiteElement:
    """exp X, on a lattice with `degree` sites."""
    return SiteElement(np.arange(degree), None, None, scipy.linalg.expm(x.fibre), "exp X")


def checked_algebra(
    name: str, generators: Sequence[object], discrete: Sequence[object]
) -> tuple[list[FloatArray], list[FloatArray]]:
    """The matrices of a user, verified to be a Lie algebra and discrete elements that keep it.

    Raises
    ------
    ValueError
        If a matrix is not real and square, if sizes differ, if generators depend on each other or
        do not close, or if a discrete element is singular or does not map the algebra to itself.
    """
    named = [(f"generator {k} of {name}", m) for k, m in enumerate(generators)]
    named += [(f"discrete element {k} of {name}", m) for k, m in enumerate(discrete)]
    if not named:
        raise ValueError(f"{name} has no generators; the group of one element is trivial()")
    matrices = [_square(m, what) for what, m in named]
    for matrix, (what, _) in zip(matrices, named, strict=True):
        if matrix.shape != matrices[0].shape:
            raise ValueError(
                f"all matrices of {name} must have one size: {named[0][0]} is "
                f"{len(matrices[0])}×{len(matrices[0])}, {what} {len(matrix)}×{len(matrix)}"
            )
    algebra, elements = matrices[: len(generators)], matrices[len(generators) :]
    basis = spanned(algebra)
    if len(basis) < len(algebra):
        raise ValueError(
            f"the {len(algebra)} generators of {name} span {len(basis)} dimensions: leave out "
            "those that are zero or combinations of others"
        )
    for i, x in enumerate(algebra):
        for j in range(i):
            if not _inside(basis, algebra[j] @ x - x @ algebra[j]):
                raise ValueError(
                    f"the generators of {name} do not close to a Lie algebra: [X{j}, X{i}] is no "
                    "combination of them; add it to the generators"
                )
    for k, h in enumerate(elements):
        if np.linalg.cond(h) > 1e12:
            raise ValueError(f"discrete element {k} of {name} is singular, so no group element")
        if not all(_inside(basis, h @ x @ np.linalg.inv(h)) for x in algebra):
            raise ValueError(
                f"discrete element {k} of {name} does not belong to it: h X h⁻¹ leaves the Lie "
                "algebra for a generator X"
            )
    return algebra, elements


def _square(given: object, what: str) -> FloatArray:
    try:
        array = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be a real square matrix, got {given!r}") from None
    if array.ndim != 2 or array.shape[0] != array.shape[1] or not array.size:
        raise ValueError(f"{what} must be a square matrix, got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what} has entries that are not finite")
    return array.copy()


def spanned(matrices: Sequence[FloatArray]) -> FloatArray:
    """Orthonormal rows that span the matrices, flattened."""
    if not matrices:
        return np.zeros((0, 0))
    flat = np.array([m.ravel() for m in matrices])
    _, values, rows = np.linalg.svd(flat, full_matrices=False)
    return np.asarray(rows[values > _CLOSED * max(values.max(), 1e-300)])


def _inside(basis: FloatArray, matrix: FloatArray) -> bool:
    flat = matrix.ravel()
    if not len(basis):
        return bool(np.abs(flat).max() < _CLOSED)
    rest = flat - basis.T @ (basis @ flat)
    return bool(np.linalg.norm(rest) <= _CLOSED * max(1.0, float(np.linalg.norm(flat))))


def spans(larger: Sequence[FloatArray], smaller: Sequence[FloatArray]) -> bool:
    """Whether every matrix of `smaller` is a combination of those of `larger`."""
    basis = spanned(larger)
    return all(_inside(basis, x) for x in smaller)


def closed(algebra: Sequence[FloatArray], discrete: Sequence[FloatArray]) -> list[FloatArray]:
    """The smallest Lie algebra around the matrices that discrete elements map to itself."""
    found: list[FloatArray] = []
    queue = list(algebra)
    inverses = [np.linalg.inv(h) for h in discrete]
    while queue:
        x = queue.pop(0)
        if _inside(spanned(found), x):
            continue
        queue += [x @ y - y @ x for y in found]
        queue += [h @ x @ back for h, back in zip(discrete, inverses, strict=True)]
        found.append(x)
    return found


def contains(
    name: str,
    discrete: tuple[SiteElement, ...],
    algebra: Sequence[FloatArray],
    g: SiteElement,
    max_order: int,
) -> bool:
    """Whether g is in the group of these discrete elements and the exponentials of the algebra.

    Elements of the sites and of the fibres are decided one by one where no discrete element is
    both. In the fibres, the point of the group that is nearest to g is found by Gauss–Newton steps
    from several points of every component.
    """
    basis = spanned(algebra)
    back = np.linalg.inv(g.fibre)
    if not all(_inside(basis, g.fibre @ x @ back) for x in algebra):
        return False
    movers = tuple(h for h in discrete if not h.fixes_sites)
    one = np.eye(len(g.fibre))
    if all(np.array_equal(h.fibre, one) for h in movers):
        moves = SiteElement(g.sites, g.signs, g.matrix, one)
        if not g.fixes_sites and not (movers and moves in generated_group(name, movers, max_order)):
            return False
        components = _components([h.fibre for h in discrete if h.fixes_sites], len(one))
    else:
        listed = enumerate_group(name, discrete, max_order)
        moves = SiteElement(g.sites, g.signs, g.matrix, one)
        components = [
            h.fibre for h in listed if SiteElement(h.sites, h.signs, h.matrix, one) == moves
        ]
    return any(_reaches(start, algebra, g.fibre) for start in components)


def _components(matrices: Sequence[FloatArray], size: int) -> list[FloatArray]:
    """Products of the matrices, each once, the identity first; no more than 512."""
    found = {fingerprint(np.eye(size)): np.eye(size)}
    queue = [np.eye(size)]
    while queue and len(found) < _MOST_COMPONENTS:
        last = queue.pop(0)
        for matrix in matrices:
            product = matrix @ last
            key = fingerprint(product)
            if key not in found:
                found[key] = product
                queue.append(product)
    return list(found.values())


def _reaches(start: FloatArray, algebra: Sequence[FloatArray], target: FloatArray) -> bool:
    """Whether start · exp 𝔤 contains the target."""
    if np.linalg.det(start) * np.linalg.det(target) < 0:  # det exp X > 0
        return False
    near = _CLOSED * max(1.0, float(np.abs(target).max()))
    if np.abs(start - target).max() < near:
        return True
    if not len(algebra):
        return False
    rng = np.random.default_rng(0)
    stacked = np.array(algebra) / np.linalg.norm(algebra, axis=(1, 2))[:, None, None]
    for trial in range(_STARTS):
        first = rng.standard_normal(len(stacked)) * (trial > 0)
        g = start @ scipy.linalg.expm(np.tensordot(first, stacked, 1))
        before = np.inf
        for _ in range(_STEPS):
            rest = float(np.linalg.norm(target - g))
            if rest < near or rest > before * (1 - 1e-6):
                break
            before = rest
            columns = (g @ stacked).reshape(len(stacked), -1).T
            step = np.linalg.lstsq(columns, (target - g).ravel(), rcond=None)[0]
            length = float(np.linalg.norm(step))
            g = g @ scipy.linalg.expm(np.tensordot(step / max(1.0, length), stacked, 1))
        if np.abs(g - target).max() < near:
            return True
    return False


def random_exponentials(
    algebra: Sequence[Infinitesimal], degree: int, n: int, rng: np.random.Generator
) -> list[SiteElement]:
    """n random elements of the identity component: products of three exponentials.

    Angles are spread over full turns; where the matrices are not skew, over half a unit.
    """
    stacked = np.array([x.fibre / np.linalg.norm(x.fibre, 2) for x in algebra])
    skew = np.abs(stacked + stacked.transpose(0, 2, 1)).max() < _CLOSED
    spread = np.pi if skew else 0.5
    drawn = []
    for weights in rng.standard_normal((n, 3, len(stacked))) * spread:
        fibre = np.eye(stacked.shape[1])
        for one in weights:
            fibre = fibre @ scipy.linalg.expm(np.tensordot(one, stacked, 1))
        drawn.append(SiteElement(np.arange(degree), None, None, fibre, "random"))
    return drawn
