"""Generators given by the user: checking them one by one, and enumerating what they generate.

A group whose generators are (signed) permutations of the sites, with (signed) permutations of the
fibre, is finite whatever they are, so it is not enumerated until its elements are asked for. Other
orthogonal generators may generate an infinite group: it is enumerated at once, up to a bound.

Fibre and sites belong together when a product of generators that leaves every site alone leaves the
fibre alone: site map ↦ fibre map is then a homomorphism. An enumerated group is checked
element by element; otherwise the orders on the sites and on the fibre are compared for the
generators, their pairwise products and some random ones. Where no generator moves a site, the group
is that of the fibre maps and there is nothing to check.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._elements import SiteElement, cycles_of, signed_permutation
from ._lattice import Lattice

FloatArray = NDArray[np.float64]


def _orthogonal_map(
    given: object, size: int, what: str
) -> tuple[NDArray[np.intp] | None, FloatArray | None]:
    """(permutation, None) or (None, matrix) of that size; ValueError if ``what`` is not."""
    array = _numbers(given)
    if array is None:
        raise ValueError(
            f"{what} must be a permutation of {size} points or a real orthogonal {size}×{size} "
            f"matrix, got {given!r}"
        )
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
        raise ValueError(f"{what} is not orthogonal: MMᵀ is off the identity by {defect:.1e}")
    return None, matrix


def _numbers(given: object) -> NDArray[Any] | None:
    try:
        array = np.asarray(given)
    except ValueError:
        return None
    real = np.issubdtype(array.dtype, np.integer) or np.issubdtype(array.dtype, np.floating)
    return array if real and array.ndim in (1, 2) else None


def _permutation(array: NDArray[np.generic], size: int, what: str) -> NDArray[np.intp]:
    if len(array) != size:
        raise ValueError(f"{what} permutes {len(array)} points, expected {size}")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{what} does not permute integers, got {array.tolist()}")
    images = array.astype(np.intp)
    outside = images[(images < 0) | (images >= size)]
    if len(outside):
        raise ValueError(
            f"{what} has the index {outside[0]}, which is out of range: "
            f"{'components' if what.startswith('fibre') else 'sites'} are 0…{size - 1}"
        )
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
        sites, matrix = _orthogonal_map(generator, lattice.size, f"generator {k} of {name}")
        fibre_map = np.eye(1)
        if fibre is not None:
            images, given = _orthogonal_map(fibre[k], size, f"fibre map {k} of {name}")
            fibre_map = given if given is not None else np.eye(size)[:, images]
        elements.append(SiteElement(sites, None, matrix, fibre_map))
    checked = tuple(elements)
    if all(_is_monomial(g) for g in checked):
        _check_orders(name, checked)
    else:
        _check_homomorphism(name, checked, enumerate_group(name, checked, max_order))
    return checked


def _fibre_size(first: object, name: str) -> int:
    array = _numbers(first)
    if array is None or len(array) == 0:
        raise ValueError(f"fibre map 0 of {name} is neither a permutation nor a matrix: {first!r}")
    return len(array)


def _is_monomial(g: SiteElement) -> bool:
    return g.sites is not None and signed_permutation(g.fibre) is not None


def _fixes_sites(g: SiteElement) -> bool:
    if g.sites is None or g.signs is None:
        return False
    return bool((g.sites == np.arange(g.degree)).all() and (g.signs > 0).all())


def _check_orders(name: str, generators: tuple[SiteElement, ...]) -> None:
    """The order of a product on the fibre must divide its order on the sites."""
    if all(_fixes_sites(g) for g in generators):
        return
    pairs = [a * b for a, b in itertools.combinations(generators, 2)]
    rng = np.random.default_rng(0)
    for g in (*generators, *pairs, *random_products(generators, 20, rng)):
        order = _site_order(g)
        if order % _fibre_order(g):
            raise ValueError(
                f"the fibre and site maps of {name} do not belong together: a product of "
                f"generators has order {order} on the sites and {_fibre_order(g)} on the fibre"
            )


def random_products(
    generators: tuple[SiteElement, ...], n: int, rng: np.random.Generator
) -> list[SiteElement]:
    """Nearly uniform elements by product replacement (Celler et al. 1995) with an accumulator."""
    slots = [generators[k % len(generators)] for k in range(max(8, len(generators)))]
    accumulator = generators[0].identity_like()
    drawn = []
    for step in range(60 + n):
        i, j = rng.choice(len(slots), size=2, replace=False)
        factor = slots[j] if rng.random() < 0.5 else slots[j].inverse()
        slots[i] = slots[i] * factor if rng.random() < 0.5 else factor * slots[i]
        accumulator = accumulator * slots[i]
        if step >= 60:
            drawn.append(accumulator)
    return drawn


def _site_order(g: SiteElement) -> int:
    assert g.sites is not None
    assert g.signs is not None
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
                f"the fibre and site maps of {name} do not belong together: a product of "
                "generators moves no site but acts on the fibre"
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
        f"{name} has more than max_order = {max_order} elements, or infinitely many; "
        "give generators of a smaller group, or raise max_order"
    )
