"""Tied filters are all maps of their support that obey the group: as many, and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from groupella.bases import Orbits, TiedFilters, equivariant_basis, tied_filters
from groupella.groups import FeatureSpace, GroupSet, named_group, p4, permutations

CASES = [
    ("c4", (3, 3), "regular", "regular", 3, "circular"),
    ("c4", (4, 4), "regular", "regular", 3, "zeros"),
    ("d4", (4, 4), "regular", "trivial", 3, "circular"),
    ("d4", (5, 5), "trivial", "trivial", 5, "circular"),
    ("d4", (5, 5), "irrep:1,1", "regular", 3, "zeros"),
    ("mirror", (3, 4), "regular", "regular", 3, "circular"),
    ("mirror(0)", (5, 5), "trivial", "regular", (3, 5), "zeros"),
    ("c2", (4, 3), "regular", "trivial", 3, "zeros"),
    ("diagonal", (4, 4), "regular", "regular", 3, "circular"),
    ("o", (3, 3, 3), "trivial", "regular", 3, "circular"),
    ("mirror(0,dim=1)", (7,), "regular", "regular", 3, "zeros"),
    ("trivial", (4, 3), "trivial", "trivial", 3, "zeros"),
]


def spaces(name: str, lattice: tuple[int, ...], *fibres: str) -> list[FeatureSpace]:
    groups = GroupSet(named_group(name))
    plain = groups.ambient.is_trivial
    return [groups.space(lattice, 1, "trivial" if plain else fibre) for fibre in fibres]


def dense(found: TiedFilters) -> npt.NDArray[np.float64]:
    """Every basis map as a matrix, entry by entry."""
    maps = []
    for tie in found.ties:
        for r, u, j in np.ndindex(tie.filters, tie.units, tie.entries):
            w = np.zeros(found.shape)
            for s, i in np.ndindex(tie.orbit, tie.index.shape[3]):
                value = tie.signs[r, s, u] * tie.values[r, s, j, i]
                w[tie.outputs[r, s, u], tie.index[r, s, j, i]] += value
            maps.append(w)
    return np.stack(maps)


def within(lattice: tuple[int, ...], window: tuple[int, ...], padding: str) -> npt.NDArray[Any]:
    """Which pairs of sites lie in the window of each other."""
    sites = np.stack(np.unravel_index(np.arange(np.prod(lattice)), lattice), -1)
    apart = np.abs(sites[None] - sites[:, None])
    if padding == "circular":
        apart = np.minimum(apart, np.array(lattice) - apart)
    return np.asarray((apart <= np.array(window) // 2).all(-1))


@pytest.mark.parametrize(("name", "lattice", "fibre", "fibre_out", "support", "padding"), CASES)
def test_they_are_all_equivariant_maps_of_the_support(
    name: str, lattice: tuple[int, ...], fibre: str, fibre_out: str, support: Any, padding: Any
) -> None:
    before, after = spaces(name, lattice, fibre, fibre_out)
    symmetry = named_group(name)
    found = tied_filters(before, after, symmetry, support, padding)
    maps = dense(found)
    flat = maps.reshape(len(maps), -1)
    assert ((flat != 0).sum(0) <= 1).all()  # disjoint, so orthogonal
    np.testing.assert_allclose(np.square(flat).sum(1), symmetry.order())
    # A generic combination obeys the group if and only if all do.
    w = np.tensordot(np.random.default_rng(0).normal(size=len(maps)), maps, 1)
    for g in before.elements(symmetry):
        left, right = (space.action(g).matrix() for space in (after, before))
        np.testing.assert_allclose(left @ w, w @ right, atol=1e-12)
    # Of the dense basis, found otherwise, those orbits of pairs that lie in the window.
    near = np.kron(
        np.ones((after.fibre_size, before.fibre_size)), within(lattice, found.window, padding)
    )
    assert not flat[:, near.ravel() == 0].any()
    orbits = equivariant_basis(before, after, symmetry).form
    assert isinstance(orbits, Orbits)
    alive = (near.ravel() > 0) & (orbits.labels >= 0)
    assert found.dim == len(np.unique(orbits.labels[alive]))


def test_the_whole_torus_as_support_gives_all_maps() -> None:
    before, after = spaces("d4", (5, 5), "trivial", "regular")
    symmetry = named_group("d4")
    whole = equivariant_basis(before, after, symmetry)
    assert tied_filters(before, after, symmetry, 5).dim == whole.dim == 25 * 25


def test_image_size_takes_no_pairs_of_sites() -> None:
    """By the count of free orbits: sites × window × fibres² / order."""
    for name, fibre in (("c4", 4), ("d4", 8), ("mirror", 2)):
        (space,) = spaces(name, (64, 64), "regular")
        found = tied_filters(space, space, named_group(name), 3)
        assert found.dim == 64 * 64 * 9 * fibre


@pytest.mark.parametrize(
    ("support", "message"),
    [
        (4, "support must be odd and at most the sides"),
        (7, "support must be odd and at most the sides"),
        ((3, 5), "exchanges axes of different length"),
        ((3, 3, 3), "one for each axis"),
    ],
)
def test_windows_that_do_not_fit_are_refused(support: Any, message: str) -> None:
    (space,) = spaces("c4", (6, 6), "regular")
    with pytest.raises(ValueError, match=message):
        tied_filters(space, space, named_group("c4"), support)


def test_groups_and_fibres_that_do_not_fit_are_refused() -> None:
    groups = GroupSet(p4())
    space = groups.space((4, 4), 1)
    with pytest.raises(ValueError, match="p4 has translations; use a group convolution"):
        tied_filters(space, space, p4(), 3)
    line = GroupSet(permutations(5)).space((5,), 1)
    with pytest.raises(ValueError, match="is given by generators; use a dense basis"):
        tied_filters(line, line, permutations(5), 3)
    turning = groups.space((4, 4), 1, "irrep:1")
    quarter = named_group("c4")
    assert tied_filters(turning, turning, quarter, 3).dim == 16 * 9 * 4 // 4  # ±1 in a basis
    with pytest.raises(ValueError, match="padding must be"):
        tied_filters(space, space, quarter, 3, "reflect")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep the lattice"):
        tied_filters(space, groups.space((2, 2), 1), quarter, 3)
