"""From feature spaces to tensor problems: what group elements do to fibres, sites and windows.

A map between one channel and another lies in fibre_out ⊗ sites_out ⊗ fibre_in ⊗ sites_in, a kernel
in fibre_out ⊗ fibre_in ⊗ window, where translations are the identity and the point group is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from groupella.groups import (
    Element,
    FeatureSpace,
    Lattice,
    LatticeElement,
    Symmetry,
    as_site_element,
)

from ._arrays import FloatArray, signed_permutation
from ._problem import Factor, Factors, Problem

FEW = 5_000


def map_problem(space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry) -> Problem:
    """Equivariant maps from one channel of `space_in` to one of `space_out`."""
    home = _common_home(space_in, space_out, symmetry)
    space_in, space_out = space_in.with_channels(1), space_out.with_channels(1)

    def factors(g: Element) -> Factors:
        return (*_channel(space_out, g), *_channel(space_in, g))

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
    return _factor(space.fibre_matrix(g))


def _channel(space: FeatureSpace, g: Element) -> tuple[Factor, Factor]:
    fibre, sites = _raw_channel(space, g)
    return _factor(fibre), sites


def _raw_channel(space: FeatureSpace, g: Element) -> tuple[FloatArray, Factor]:
    """The fibre's matrix as it is, which is all that characters need."""
    action = space.action(g)
    if action.permutation is None:
        return action.fibre, action.site_matrix
    signs = None if action.site_signs is None else action.site_signs.astype(np.int8)
    return action.fibre, (action.permutation.astype(np.int64), signs)


def _factor(matrix: FloatArray) -> Factor:
    signed = signed_permutation(matrix)
    return matrix if signed is None else signed
