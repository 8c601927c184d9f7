"""From feature spaces to tensor problems: what group elements do to fibres, sites and windows.

A map between one channel and another lies in fibre_out ⊗ sites_out ⊗ fibre_in ⊗ sites_in, a kernel
in fibre_out ⊗ fibre_in ⊗ window, where translations are the identity and the point group is left.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from groupella.groups import (
    Element,
    FeatureSpace,
    Fibre,
    Infinitesimal,
    Lattice,
    LatticeElement,
    Symmetry,
    as_site_element,
)

from ._arrays import FloatArray, signed_permutation
from ._cache import cached, content_key
from ._lie import Axes, lie_invariants
from ._problem import Factor, Factors, Problem, apply

Rows: TypeAlias = "FloatArray | sp.csr_array"

FEW = 5_000


def map_problem(space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry) -> Problem:
    """Equivariant maps from one channel of `space_in` to one of `space_out`."""
    home = _common_home(space_in, space_out, symmetry)
    space_in, space_out = space_in.with_channels(1), space_out.with_channels(1)

    orthogonal = space_in.ambient.is_catalogue or space_in.ambient.is_orthogonal

    def factors(g: Element) -> Factors:
        fibre, sites = _raw_channel(space_in, g)
        dual = fibre if orthogonal else np.linalg.inv(fibre).T
        return (*_channel(space_out, g), factor(dual), sites)

    def raw(g: Element) -> Factors:
        return (*_raw_channel(space_out, g), *_raw_channel(space_in, g))

    generators = home.generators(symmetry)
    return Problem(
        shape=(
            space_out.fibre_size,
            space_out.lattice.size,
            space_in.fibre_size,
            space_in.lattice.size,
        ),
        split=2,
        generators=tuple(map(factors, generators)),
        translations=tuple(k for k, g in enumerate(generators) if _is_translation(g)),
        cosets=_lazily(factors, lambda: _cosets(home, symmetry)),
        elements=_lazily(raw, lambda: home.elements(symmetry)),
        is_small=lambda: symmetry.is_catalogue or symmetry.has_at_most(FEW, home.lattice),
    )


def fibre_terms(fibre: Fibre, algebra: Sequence[Infinitesimal], dual: bool) -> list[Axes]:
    """dρ of all X of a Lie algebra, by summands and factors of a fibre: (k, n, n) for each."""
    by_x = [fibre.derivatives(x.fibre) for x in algebra]
    terms = [
        [np.array([by_x[k][t][a] for k in range(len(algebra))]) for a in range(len(term))]
        for t, term in enumerate(by_x[0])
    ]
    return [[-m.swapaxes(1, 2) for m in term] for term in terms] if dual else list(terms)


def reduced_problem(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry
) -> tuple[Rows, Problem]:
    """Maps of fibres that the Lie algebra leaves alone, and what is left to solve on them.

    The Lie algebra moves no site. So maps that it leaves alone are N ⊗ (any map of the sites), N
    the rows of the first result; discrete elements map them among themselves. The problem is that
    of the discrete elements on coordinates (row of N, site_out, site_in).
    """
    if space_in.ambient.key != space_out.ambient.key:
        raise ValueError(f"{space_in} and {space_out} belong to different sets of groups")
    algebra = space_in.infinitesimals(symmetry)
    outs = fibre_terms(space_out.fibre, algebra, dual=False)
    ins = fibre_terms(space_in.fibre, algebra, dual=True)
    places_out, places_in = _places(space_out.fibre), _places(space_in.fibre)
    elements = [g for g in space_in.discrete(symmetry) if not g.is_identity]
    parts, places = [], []
    moves: list[list[FloatArray]] = [[] for _ in elements]
    for i, out in enumerate(outs):
        for j, into in enumerate(ins):
            axes = [*out, *into]
            rows = cached(content_key(("lie", *axes)), lambda axes=axes: lie_invariants(axes))  # type: ignore[misc]
            assert isinstance(rows, np.ndarray)
            if not len(rows):
                continue
            parts.append(rows)
            places.append((places_out[i][:, None] * space_in.fibre_size + places_in[j]).ravel())
            shape = tuple(m.shape[1] for m in axes)
            for g, blocks in zip(elements, moves, strict=True):
                blocks.append(_moved(rows, shape, space_out.fibre, space_in.fibre, (i, j), g))
    size = space_out.fibre_size * space_in.fibre_size
    count = sum(map(len, parts))
    generators = tuple(
        (
            blocks[0] if len(blocks) == 1 else np.asarray(scipy.linalg.block_diag(*blocks)),
            _on_sites(space_out, g),
            _on_sites(space_in, g),
        )
        for g, blocks in zip(elements, moves, strict=True)
        if count
    )
    shape = (count, space_out.lattice.size, space_in.lattice.size)
    if len(parts) == 1 and parts[0].shape[1] == size:
        found: Rows = parts[0]
    else:
        found = _placed_rows(parts, places, size)
    return found, Problem(shape, 2, generators, (), lambda: (), lambda: (), lambda: False)


def _places(fibre: Fibre) -> list[NDArray[np.int64]]:
    """The components of every summand."""
    layout = fibre.recipe[2] if fibre.recipe else ()
    sizes = fibre.tensors.sizes(layout)
    starts = np.cumsum([0, *sizes])
    return [np.arange(a, b) for a, b in itertools.pairwise(starts)]


def _moved(
    rows: FloatArray,
    shape: tuple[int, ...],
    fibre_out: Fibre,
    fibre_in: Fibre,
    which: tuple[int, int],
    g: Element,
) -> FloatArray:
    """A with g·N_b = Σ_a A[a, b] N_a."""
    factors = fibre_out.factors(g)[which[0]]
    duals = [np.linalg.inv(m).T for m in fibre_in.factors(g)[which[1]]]
    moved = apply((*factors, *duals), rows.reshape(len(rows), *shape)).reshape(rows.shape)
    return np.asarray(rows @ moved.T)


def _placed_rows(
    parts: Sequence[FloatArray], places: Sequence[NDArray[np.int64]], size: int
) -> sp.csr_array:
    """Rows at their places in longer ones."""
    if not parts:
        return sp.csr_array((0, size))
    blocks = []
    for rows, place in zip(parts, places, strict=True):
        inner = sp.coo_array(np.where(np.abs(rows) < 1e-15, 0.0, rows))
        entries = (inner.data, (inner.row, place[inner.col]))
        blocks.append(sp.coo_array(entries, shape=(len(rows), size)))
    return sp.csr_array(sp.vstack(blocks))


def kernel_problem(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    window: tuple[int, ...],
) -> Problem:
    """Kernels on `window` that the point group of `symmetry` turns into themselves."""

    def factors(g: Element) -> Factors:
        offsets = space_in.window_permutation(g, window).astype(np.int64)
        return (_point_factor(space_out, g), _point_factor(space_in, g), (offsets, None))

    space_in.generators(symmetry), space_out.generators(symmetry)
    # Its own elements, since those of a space whose ambient symmetry is generated have no window.
    lattice = space_in.lattice
    generators = [g for g in symmetry.generators(lattice) if not _is_translation(g)]
    return Problem(
        shape=(space_out.fibre_size, space_in.fibre_size, math.prod(window)),
        split=1,
        generators=tuple(map(factors, generators)),
        translations=(),
        cosets=_lazily(factors, lambda: _points(lattice, symmetry)),
        elements=_lazily(factors, lambda: _points(lattice, symmetry)),
    )


def _lazily(
    factors: Callable[[Element], Factors], elements: Callable[[], Iterable[Element]]
) -> Callable[[], Iterator[Factors]]:
    return lambda: map(factors, elements())


def _common_home(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry
) -> FeatureSpace:
    """A space whose group elements act on both lattices: the smallest torus that covers both."""
    if space_in.ambient.is_catalogue != space_out.ambient.is_catalogue:
        raise ValueError(f"{space_in} and {space_out} belong to different sets of groups")
    space_in.generators(symmetry), space_out.generators(symmetry)
    first, second = space_in.lattice.shape, space_out.lattice.shape
    if not space_in.ambient.is_catalogue or first == second:
        return space_in
    if first and second and len(first) != len(second):
        raise ValueError(f"{space_in} and {space_out} have lattices of different dimension")
    if not first or not second:
        return space_in if first else space_in.with_lattice(second)
    return space_in.with_lattice(tuple(map(math.lcm, first, second)))


def _is_translation(g: Element) -> bool:
    return isinstance(g, LatticeElement) and all(
        value == (i == j) for i, row in enumerate(g.point) for j, value in enumerate(row)
    )


def _cosets(home: FeatureSpace, symmetry: Symmetry) -> Iterable[Element]:
    """One element for every coset of the translations; where these are not known, all elements."""
    if not symmetry.translations or not home.ambient.is_catalogue:
        return home.elements(symmetry)
    return _points(home.lattice, symmetry)


def _points(lattice: Lattice, symmetry: Symmetry) -> list[LatticeElement]:
    """The point group, about the array centre."""
    zero = (0,) * lattice.dim
    return [LatticeElement(point, zero, lattice.shape) for point in symmetry.point]


def _point_factor(space: FeatureSpace, g: Element) -> Factor:
    """What an element of a catalogue group does to the fibre of a space that may be generated."""
    if not space.ambient.is_catalogue:
        g = as_site_element(g, space.ambient.fibre_size)
    return factor(space.fibre_matrix(g))


def _channel(space: FeatureSpace, g: Element) -> tuple[Factor, Factor]:
    fibre, sites = _raw_channel(space, g)
    return factor(fibre), sites


def _on_sites(space: FeatureSpace, g: Element) -> Factor:
    if not space.lattice.dim:
        return np.zeros(1, np.int64), None
    return _raw_channel(space.with_fibre("trivial"), g)[1]


def _raw_channel(space: FeatureSpace, g: Element) -> tuple[FloatArray, Factor]:
    """The fibre's matrix as it is, which is all that characters need."""
    action = space.action(g)
    if action.permutation is None:
        return action.fibre, action.site_matrix
    signs = None if action.site_signs is None else action.site_signs.astype(np.int8)
    return action.fibre, (action.permutation.astype(np.int64), signs)


def factor(matrix: FloatArray) -> Factor:
    signed = signed_permutation(matrix)
    return matrix if signed is None else signed
