"""Groups from generators: random ones, and a few whose order and orbits are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupella.bases import character_dimension
from groupella.groups import (
    GroupSet,
    Symmetry,
    cyclic,
    permutations,
    trivial,
    z2,
)
from groupella.groups.gate import load_group

SIZES = st.integers(2, 6)
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def permutation_groups(draw: st.DrawFn) -> Symmetry:
    n = draw(SIZES)
    generators = draw(st.lists(st.permutations(range(n)), min_size=1, max_size=3))
    return Symmetry.from_generators("random", (n,), generators)


@st.composite
def signed_groups(draw: st.DrawFn) -> Symmetry:
    """Signed permutations of the sites with the same permutation, without signs, of the fibre."""
    n = draw(st.integers(2, 4))
    count = draw(st.integers(1, 2))
    perms = [draw(st.permutations(range(n))) for _ in range(count)]
    signs = [draw(st.lists(st.sampled_from([1, -1]), min_size=n, max_size=n)) for _ in perms]
    matrices = []
    for p, e in zip(perms, signs, strict=True):
        matrix = np.zeros((n, n))
        matrix[p, range(n)] = e
        matrices.append(matrix)
    return Symmetry.from_generators("signed", (n,), matrices, fibre=perms)


@st.composite
def orthogonal_groups(draw: st.DrawFn) -> Symmetry:
    """A permutation group in a random orthonormal basis: general, but finite by construction."""
    n = draw(st.integers(2, 5))
    seed = draw(st.integers(0, 2**32 - 1))
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    perms = draw(st.lists(st.permutations(range(n)), min_size=1, max_size=2))
    matrices = [basis @ np.eye(n)[:, p] @ basis.T for p in perms]
    return Symmetry.from_generators(
        "turned", (n,), matrices, fibre=[np.eye(n)[:, p] for p in perms]
    )


def brute_force_order(generators: list[tuple[int, ...]]) -> int:
    n = len(generators[0])
    found = {tuple(range(n))}
    frontier = list(found)
    while frontier:
        products = {tuple(g[i] for i in a) for a in frontier for g in generators} - found
        found |= products
        frontier = list(products)
    return len(found)


@settings(SLOW, max_examples=60)
@given(group=permutation_groups())
def test_random_permutation_groups(group: Symmetry) -> None:
    generators = [tuple(g.sites) for g in group.site_generators if g.sites is not None]
    order = group.order()
    assert order == brute_force_order(generators)
    space = GroupSet(group).space(group.lattice, channels=2)
    x = np.random.default_rng(0).standard_normal((1, *space.shape))
    elements = list(space.elements(group))
    assert elements[0].is_identity
    for g, h in zip(space.sample(group, 4, 1), space.sample(group, 4, 2), strict=True):
        assert g * h in elements
        assert (g * g.inverse()).is_identity
        assert np.array_equal(space.act(g, space.act(h, x)), space.act(g * h, x))


@settings(SLOW, max_examples=40)
@given(group=permutation_groups())
def test_burnside_counts_the_orbits(group: Symmetry) -> None:
    """mean χ = number of orbits of sites; mean χ² = number of orbits of pairs (brute force)."""
    space = GroupSet(group).space(group.lattice, channels=1)
    n = space.lattice.size
    perms = [g.sites.tolist() for g in group.site_generators if g.sites is not None]
    for power in (1, 2):
        label = {p: p for p in itertools.product(range(n), repeat=power)}
        for _ in range(n**power):
            for p in label:
                for g in perms:
                    q = tuple(g[i] for i in p)
                    label[p] = label[q] = min(label[p], label[q])
        orbits = len(set(label.values()))
        traces = [space.action(g).trace() ** power for g in space.elements(group)]
        assert np.mean(traces) == pytest.approx(orbits)
    assert character_dimension(space, space, group) == orbits


@settings(SLOW, max_examples=40)
@given(group=st.one_of(signed_groups(), orthogonal_groups()))
def test_random_orthogonal_groups_act_and_close(group: Symmetry) -> None:
    space = GroupSet(group).space(group.lattice, channels=2)
    x = np.random.default_rng(0).standard_normal((3, *space.shape))
    elements = list(space.elements(group))
    assert len(elements) == len(set(elements)) <= 2**4 * math.factorial(5)
    for g, h in zip(space.sample(group, 3, 1), space.sample(group, 3, 2), strict=True):
        assert g * h in elements
        both = space.act(g, space.act(h, x))
        assert np.allclose(both, space.act(g * h, x), atol=1e-12)
        dense = np.kron(space.action(g).fibre, space.action(g).site_matrix)
        assert np.allclose(space.action(g).matrix().toarray(), dense, atol=1e-14)
        flat = x.reshape(3, 2, -1)
        assert np.allclose(flat @ dense.T, space.act(g, x).reshape(3, 2, -1), atol=1e-12)
        assert space.action(g).trace() == pytest.approx(np.trace(dense), abs=1e-12)


@settings(SLOW, max_examples=30)
@given(first=permutation_groups(), second=permutation_groups())
def test_inclusion_is_that_of_the_elements(first: Symmetry, second: Symmetry) -> None:
    if first.lattice != second.lattice:
        return
    second = Symmetry.from_generators(
        "other", second.lattice, [g.sites for g in second.site_generators]
    )
    a, b = set(first.elements(first.lattice)), set(second.elements(second.lattice))
    if a == b:
        with pytest.raises(ValueError, match="the same symmetry"):
            GroupSet(first, second)
        return
    groups = GroupSet(first, second)
    assert groups.contains("random", "other") == (b <= a)
    assert groups.contains("other", "random") == (a <= b)
    assert a | b <= set(groups.ambient.elements(first.lattice))


def test_known_groups() -> None:
    assert permutations(6).order() == 720
    assert cyclic(7).order() == 7
    assert permutations(1).order() == 1
    rubik_like = Symmetry.from_generators("m11", 11, [_cycles(11, [range(11)]), _m11()])
    assert rubik_like.order() == 7920


def _cycles(n: int, cycles: list[range] | list[list[int]]) -> list[int]:
    images = list(range(n))
    for cycle in cycles:
        for a, b in itertools.pairwise([*cycle, cycle[0]]):
            images[a] = b
    return images


def _m11() -> list[int]:
    """(3,7,11,8)(4,10,5,6): with the cycle (1,…,11), generators of the Mathieu group M₁₁."""
    return _cycles(11, [[2, 6, 10, 7], [3, 9, 4, 5]])


def test_general_rotations_close_into_a_finite_group() -> None:
    angle = 2 * np.pi / 7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    group = Symmetry.from_generators("d7", (2,), [turn, np.diag([1.0, -1.0])])
    assert group.order() == 14
    space = GroupSet(group).space((2,), channels=1)
    assert character_dimension(space, space, group) == 1
    assert all(space.action(g).sites is None or g.is_identity for g in space.elements(group))


def test_fibre_of_generators() -> None:
    """The sign of a permutation, on a fibre of size one: antisymmetric functions."""
    swap, cycle = [1, 0, 2], [1, 2, 0]
    fermions = Symmetry.from_generators("fermions", 3, [swap, cycle], fibre=[[[-1]], [[1]]])
    space = GroupSet(fermions).space(3, channels=1)
    assert space.fibre_size == 1
    assert not space.fibre_permutes
    x = np.array([[[1.0, 2.0, 3.0]]])
    g, h = space.generators(fermions)
    assert space.act(g, x).tolist() == [[[-2.0, -1.0, -3.0]]]
    assert space.act(h, x).tolist() == [[[3.0, 1.0, 2.0]]]
    assert fermions.order() == 6
    scalars = space.with_fibre("trivial")
    assert scalars.fibre_permutes
    assert scalars.act(g, x).tolist() == [[[2.0, 1.0, 3.0]]]
    assert character_dimension(scalars, space, fermions) == 1
    assert character_dimension(space, space, fermions) == 2


def test_group_of_the_fibre_alone() -> None:
    quarter = np.array([[0.0, -1.0], [1.0, 0.0]])
    spin = Symmetry.from_generators("spin", (), [[0]], fibre=[quarter])
    space = GroupSet(spin).space((), channels=3)
    assert space.shape == (6,)
    assert spin.order() == 4
    x = np.arange(6.0).reshape(1, 6)
    (g,) = space.generators(spin)
    assert space.act(g, x).tolist() == [[-1.0, 0.0, -3.0, 2.0, -5.0, 4.0]]


def test_cyclic_group_carries_escnns_representations() -> None:
    group = load_group().cyclic_group(6)
    for representation in (group.regular_representation, group.irrep(1) + group.irrep(3)):
        shifts = cyclic(6, fibre=representation)
        space = GroupSet(shifts).space(6, channels=1)
        assert space.fibre_size == representation.size
        assert shifts.order() == 6
        for k, g in enumerate(space.elements(shifts)):
            assert np.allclose(space.fibre_matrix(g), representation(group.element(k)), atol=1e-12)


def test_catalogue_members_leave_the_fibre_of_generators_alone() -> None:
    turn = np.rot90(np.arange(16).reshape(4, 4))
    quarter = np.array([[0, -1], [1, 0]])
    vectors = Symmetry.from_generators(
        "vectors", (4, 4), [turn.argsort(axis=None)], fibre=[quarter]
    )
    groups = GroupSet(z2(), vectors, trivial())
    space = groups.space((4, 4), channels=1)
    assert space.fibre_size == 2
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4))
    (g,) = space.generators(vectors)
    expected = np.einsum("ij,bj...->bi...", quarter, np.rot90(x, axes=(2, 3)))
    assert np.array_equal(space.act(g, x), expected)
    assert np.array_equal(space.act(space.generators(z2())[0], x), np.roll(x, 1, axis=2))
    assert not groups.contains("vectors", "z2")
    with pytest.raises(ValueError, match="no action on windows"):
        space.window_permutation(g, 3)
    with pytest.raises(ValueError, match="fibres of different sizes"):
        GroupSet(
            vectors, Symmetry.from_generators("w", (4, 4), [turn.ravel()], fibre=[[1, 2, 3, 0]])
        )
