"""Generators given by the user, checked one by one, and random products of them.

Fibre and sites belong together when a product of generators that leaves every site alone leaves the
fibre alone: site map ↦ fibre map is then a homomorphism. That is decided by a chain of
stabilisers, or by all elements, see `_faithful`. Where no generator moves a site, the group is that
of the fibre maps and there is nothing to check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ._elements import SiteElement
from ._faithful import generated_group
from ._lattice import Lattice
from ._tensors import Layout

FloatArray = NDArray[np.float64]

_LONGEST_NAME = 200
_SPECIAL = './\\$[]{}|"`*?'  # in module names, file names, formulas, markup and tables
_RESERVED = ("none", "undecided", "not measured", "chance", "free", "final")


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


def valid_name(text: str) -> str:
    """`text` in round brackets and without other special characters, to name a symmetry by."""
    others = "".join(c for c in _SPECIAL if c not in "[]{}")
    return text.translate(str.maketrans("[]{}", "()()", others))


def check_name(name: object) -> None:
    """Raise unless `name` can name a symmetry, its module in a network and its file.

    Raises
    ------
    ValueError
        If it is empty or long, has unprintable or special characters, or means something else.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"a symmetry has a name, got {name!r}")
    special = [c for c in name if c in _SPECIAL or not c.isprintable()]
    if special or name != name.strip() or len(name) > _LONGEST_NAME:
        raise ValueError(
            f"a symmetry is named {name[:60]!r}; a name has at most {_LONGEST_NAME} printable "
            f"characters, none of {' '.join(_SPECIAL)}, and no space at its ends"
        )
    if name in _RESERVED:
        raise ValueError(f"a symmetry is named {name!r}, which results use for something else")


def checked_generators(
    name: str,
    lattice: Lattice,
    generators: Sequence[object],
    fibre: object,
    max_order: int,
    internal: bool = False,
) -> tuple[tuple[SiteElement, ...], Layout]:
    """The generators of a user as elements, and names and sizes of their fibres, each verified."""
    check_name(name)
    generators = list(generators)
    if not generators:
        raise ValueError(f"{name} has no generators; the group of one element is trivial()")
    fibres = fibre if isinstance(fibre, Mapping) else {} if fibre is None else {"": fibre}
    blocks: dict[str, list[FloatArray]] = {}
    for label, maps in fibres.items():
        _check_label(name, label, isinstance(fibre, Mapping))
        blocks[label] = _fibre_maps(name, len(generators), maps)
    elements = []
    for k, generator in enumerate(generators):
        sites, matrix = _orthogonal_map(generator, lattice.size, f"generator {k} of {name}")
        maps = [block[k] for block in blocks.values()]
        fibre_map = scipy.linalg.block_diag(*maps) if maps else np.eye(1)
        elements.append(SiteElement(sites, None, matrix, fibre_map))
    checked = tuple(elements)
    if not internal:
        _check_homomorphism(name, checked, max_order)
    else:
        generated_group(name, checked, max_order)
    if not isinstance(fibre, Mapping):
        return checked, ()
    return checked, tuple((label, len(maps[0])) for label, maps in blocks.items())


def _check_label(name: str, label: object, named: bool) -> None:
    if named and (not isinstance(label, str) or "×" in label or label == "trivial"):
        raise ValueError(
            f"a fibre of {name} is named {label!r}: give a name other than 'trivial', without ×"
        )


def maps_of(given: Any) -> Any:
    """What an escnn representation does at its group's generators; anything else as it is."""
    if not (hasattr(given, "change_of_basis") and callable(given)):
        return given
    try:
        generators = given.group.generators
    except ValueError:
        raise ValueError(
            f"the fibre {given.name} represents {given.group}, which no finite number of elements "
            "generates: restrict it to a finite group, as escnn's representation.restrict(4) does"
        ) from None
    return [given(e) for e in generators]


def _fibre_maps(name: str, count: int, given: Any) -> list[FloatArray]:
    given = maps_of(given)
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise ValueError(
            f"the fibre of {name} is one map for each generator, or an escnn representation, got "
            f"{given!r}"
        )
    if len(given) != count:
        raise ValueError(
            f"{name} has {count} generators but {len(given)} fibre maps: give one each"
        )
    size = _fibre_size(given[0], name)
    maps = []
    for k, one in enumerate(given):
        images, matrix = _orthogonal_map(one, size, f"fibre map {k} of {name}")
        maps.append(matrix if matrix is not None else np.eye(size)[:, images])
    return maps


def _fibre_size(first: object, name: str) -> int:
    array = _numbers(first)
    if array is None or len(array) == 0:
        raise ValueError(f"fibre map 0 of {name} is neither a permutation nor a matrix: {first!r}")
    return len(array)


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


def _check_homomorphism(name: str, generators: tuple[SiteElement, ...], max_order: int) -> None:
    group = generated_group(name, generators, max_order)
    if all(g.fixes_sites for g in generators):
        return
    if group.has_internal_elements:
        raise ValueError(
            f"the fibre and site maps of {name} do not belong together: a product of generators "
            "moves no site but acts on the fibre (if it should, pass internal=True)"
        )
