"""Generators given by the user: checking them one by one, and enumerating what they generate.

A group whose generators are (signed) permutations of the sites, with (signed) permutations of the fibre,
is finite whatever they are, so it is not enumerated until its elements are asked for. Other orthogonal
generators may generate an infinite group: it is enumerated at once, up to a bound.

Fibre and sites belong together when g ↦ fibre(g) is a homomorphism from the group of site maps: a word
that leaves every site alone must leave the fibre alone. On an enumerated group this is checked for all
elements; otherwise for the orders of the generators and of their pairwise products. Where no generator
moves a site, the group is that of the fibre maps and there is nothing to check.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._elements import SiteElement, cycles_of, signed_permutation
from ._lattice import Lattice

__all__ = ["checked_generators", "enumerate_group", "orthogonal_map"]

FloatArray = NDArray[np.float64]


def orthogonal_map(
    given: object, size: int, what: str
) -> tuple[NDArray[np.intp] | None, FloatArray | None]:
    """(permutation, None) or (None, matrix) of that size; a ValueError names ``what`` is wrong."""
    try:
        array = np.asarray(given)
        if array.dtype == bool or not np.issubdtype(array.dtype, np.number):
            raise TypeError
        if np.iscomplexobj(array):
            raise ValueError(f"{what} is complex; real orthogonal maps are expected")
    except (TypeError, ValueError) as error:
        if "complex" in str(error):
            raise
        raise ValueError(
            f"{what} must be a permutation of {size} points or a {size}×{size} orthogonal matrix, "
            f"got {given!r}"
        ) from None
    if array.ndim == 1:
        return _permutation(array, size, what), None
    if array.shape != (size, size):
        raise ValueError(
            f"{what} has shape {array.shape}; a permutation has shape ({size},), "
            f"an orthogonal matrix ({size}, {size})"
        )
    matrix = array.astype(float)
    if not np.isfinite(matrix).all():
        raise ValueError(f"{what} has entries that are not finite")
    defect = float(np.abs(matrix @ matrix.T - np.eye(size)).max(initial=0.0))
    if defect > 1e-9:
        raise ValueError(f"{what} is not orthogonal: M Mᵀ differs from the identity by {defect:.1e}")
    return None, matrix


def _permutation(array: NDArray[np.generic], size: int, what: str) -> NDArray[np.intp]:
    if len(array) != size:
        raise ValueError(f"{what} permutes {len(array)} points, expected {size}")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} is a permutation of numbers that are not integers: {array.tolist()}")
    images = array.astype(np.intp)
    if not np.array_equal(np.sort(images), np.arange(size)):
        missing = sorted(set(range(size)) - set(images.tolist()))[:5]
        raise ValueError(f"{what} is not a bijection of {size} points: nothing moves to {missing}")
    return images


def checked_generators(
    name: str,
    lattice: Lattice,
    generators: Sequence[object],
    fibre: Sequence[object] | None,
    max_order: int,
) -> tuple[SiteElement, ...]:
    """The generators of a user as elements, each verified; see the module's docstring."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a symmetry has a name, got {name!r}")
    generators = list(generators)
    if not generators:
        raise ValueError(f"{name} has no generators; the group of one element is trivial()")
    if fibre is not None and len(fibre) != len(generators):
        raise ValueError(
            f"{name} has {len(generators)} generators but {len(fibre)} fibre maps: give one each"
        )
    size = 1 if fibre is None else _fibre_size(fibre[0], name)
    elements = []
    for k, generator in enumerate(generators):
        sites, matrix = orthogonal_map(generator, lattice.size, f"generator {k} of {name}")
        fibre_map = np.eye(1)
        if fibre is not None:
            images, given = orthogonal_map(fibre[k], size, f"fibre map {k} of {name}")
            fibre_map = given if given is not None else np.eye(size)[:, images]
        elements.append(SiteElement(sites, None, matrix, fibre_map))
    checked = tuple(elements)
    if all(_is_monomial(g) for g in checked):
        _check_orders(name, checked)
    else:
        _check_homomorphism(name, checked, enumerate_group(name, checked, max_order))
    return checked


def _fibre_size(first: object, name: str) -> int:
    shape = np.shape(first)  # type: ignore[arg-type]
    if len(shape) not in (1, 2):
        raise ValueError(f"fibre map 0 of {name} is neither a permutation nor a matrix: {first!r}")
    return int(shape[0])


def _is_monomial(g: SiteElement) -> bool:
    return g.sites is not None and signed_permutation(g.fibre) is not None


def _fixes_sites(g: SiteElement) -> bool:
    one = g.identity_like()
    return g.sites is not None and bool(
        (g.sites == one.sites).all() and (g.signs == one.signs).all()
    )


def _check_orders(name: str, generators: tuple[SiteElement, ...]) -> None:
    """A word whose site map has order k must have a fibre map with fibre^k = 1."""
    if all(_fixes_sites(g) for g in generators) or generators[0].fibre.shape[0] == 0:
        return
    pairs = itertools.product(range(len(generators)), repeat=2)
    words = [((k,), g) for k, g in enumerate(generators)]
    words += [((i, j), generators[i] * generators[j]) for i, j in pairs if i != j]
    for word, g in words:
        order = _site_order(g)
        power = np.linalg.matrix_power(g.fibre, order % _fibre_order(g))
        if not np.array_equal(power, np.eye(len(power))):
            raise ValueError(
                f"the fibre and site maps of {name} do not belong together: the product of "
                f"generators {word} has order {order} on the sites, but not on the fibre"
            )


def _site_order(g: SiteElement) -> int:
    assert g.sites is not None and g.signs is not None
    order = 1
    for cycle in cycles_of(g.sites):
        order = math.lcm(order, len(cycle) * (2 if np.prod(g.signs[cycle]) < 0 else 1))
    fixed = g.sites == np.arange(g.degree)
    return math.lcm(order, 2 if (g.signs[fixed] < 0).any() else 1)


def _fibre_order(g: SiteElement) -> int:
    signed = signed_permutation(g.fibre)
    assert signed is not None
    return _site_order(SiteElement(signed[0], signed[1], None, np.eye(1)))


def _check_homomorphism(
    name: str, generators: tuple[SiteElement, ...], elements: tuple[SiteElement, ...]
) -> None:
    if all(_fixes_sites(g) for g in generators):
        return
    one = np.eye(generators[0].fibre.shape[0])
    for g in elements:
        if _fixes_sites(g) and not np.allclose(g.fibre, one, atol=1e-7):
            raise ValueError(
                f"the fibre and site maps of {name} do not belong together: a product of generators "
                "moves no site but acts on the fibre"
            )


_ENUMERATED: OrderedDict[tuple[SiteElement, ...], tuple[SiteElement, ...]] = OrderedDict()


def enumerate_group(
    name: str, generators: tuple[SiteElement, ...], max_order: int
) -> tuple[SiteElement, ...]:
    """Every element of the generated group, the identity first; ValueError above ``max_order``."""
    if not generators:
        return ()
    found = _ENUMERATED.get(generators)
    if found is None:
        found = _breadth_first(name, generators, max_order)
        _check_homomorphism(name, generators, found)
        _ENUMERATED[generators] = found
        while len(_ENUMERATED) > 16:
            _ENUMERATED.popitem(last=False)
    if len(found) > max_order:
        raise ValueError(_too_large(name, max_order))
    return found


def _breadth_first(
    name: str, generators: tuple[SiteElement, ...], max_order: int
) -> tuple[SiteElement, ...]:
    one = generators[0].identity_like()
    found: dict[SiteElement, None] = {one: None}
    frontier = [one]
    while frontier:
        reached = []
        for a in frontier:
            for g in generators:
                b = g * a
                if b not in found:
                    found[b] = None
                    reached.append(b)
            if len(found) > max_order:
                raise ValueError(_too_large(name, max_order))
        frontier = reached
    return tuple(found)


def _too_large(name: str, max_order: int) -> str:
    return (
        f"{name} has more than max_order = {max_order} elements (or infinitely many); give generators "
        "of a smaller group, or raise max_order"
    )
