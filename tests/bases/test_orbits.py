"""Orbits of pairs against connected components of the doubled index set, node by node."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupella.bases._arrays import SignedPermutation, signed_permutation, tensor_signed
from groupella.bases._orbits import Orbits, orbit_matrix, pair_orbits


def brute_force(rows, columns, shape) -> tuple[np.ndarray, int]:
    """Union–find over (a, b, sign), one edge for every generator; the projector's rows by hand."""
    n, m = shape
    parent = list(range(2 * n * m))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for (p, s), (q, t) in zip(rows, columns, strict=True):
        for a in range(n):
            for b in range(m):
                sign = (1 if s is None else s[a]) * (1 if t is None else t[b])
                for bit in (0, 1):
                    there = 2 * (p[a] * m + q[b]) + (bit if sign > 0 else 1 - bit)
                    parent[find(2 * (a * m + b) + bit)] = find(int(there))
    roots = [find(i) for i in range(2 * n * m)]
    alive = sorted({frozenset((roots[2 * i], roots[2 * i + 1])) for i in range(n * m)}, key=min)
    alive = [pair for pair in alive if len(pair) == 2]
    vectors = np.zeros((len(alive), n * m))
    for row, pair in enumerate(alive):
        first = min(pair)
        for i in range(n * m):
            if roots[2 * i] in pair:
                vectors[row, i] = 1.0 if roots[2 * i] == first else -1.0
        vectors[row] /= np.linalg.norm(vectors[row])
    return vectors, len(alive)


def dense(orbits: Orbits) -> np.ndarray:
    signs = np.ones(len(orbits.labels)) if orbits.signs is None else orbits.signs
    vectors = np.zeros((orbits.count, len(orbits.labels)))
    alive = orbits.labels >= 0
    vectors[orbits.labels[alive], np.flatnonzero(alive)] = signs[alive]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@st.composite
def signed_actions(draw: st.DrawFn) -> tuple[list, list, tuple[int, int]]:
    n, m = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    count = draw(st.integers(0, 3))
    signed = draw(st.booleans())

    def one(size: int) -> SignedPermutation:
        perm = np.array(draw(st.permutations(range(size))), dtype=np.int64)
        if not signed:
            return perm, None
        bits = draw(st.lists(st.sampled_from([1, 1, -1]), min_size=size, max_size=size))
        return perm, np.array(bits, dtype=np.int8)

    return [one(n) for _ in range(count)], [one(m) for _ in range(count)], (n, m)


@given(signed_actions())
@settings(max_examples=150, deadline=None)
def test_agrees_with_components_of_the_doubled_index_set(action) -> None:
    rows, columns, shape = action
    orbits = pair_orbits(rows, columns, shape)
    expected, count = brute_force(rows, columns, shape)
    assert orbits.count == count
    found = dense(orbits)
    np.testing.assert_allclose(found.T @ found, expected.T @ expected, atol=1e-14)


@given(signed_actions())
@settings(max_examples=60, deadline=None)
def test_numbering_starts_each_orbit_at_its_first_pair_with_a_plus(action) -> None:
    rows, columns, shape = action
    orbits = pair_orbits(rows, columns, shape)
    firsts = [int(np.flatnonzero(orbits.labels == k)[0]) for k in range(orbits.count)]
    assert firsts == sorted(firsts)
    if orbits.signs is not None:
        assert all(orbits.signs[first] == 1 for first in firsts)


def symmetric_group(n: int) -> list[SignedPermutation]:
    swap = np.arange(n)
    swap[:2] = [1, 0]
    return [(swap, None), (np.roll(np.arange(n), -1), None)]


@pytest.mark.parametrize("n", [2, 5, 20, 100])
def test_maps_between_sets_have_two_parameters(n: int) -> None:
    generators = symmetric_group(n)
    orbits = pair_orbits(generators, generators, (n, n))
    assert orbits.count == 2
    np.testing.assert_array_equal(orbits.labels.reshape(n, n), 1 - np.eye(n))


@pytest.mark.parametrize(("power", "partitions"), [((1, 2), 5), ((2, 2), 15)])
def test_maps_between_graphs_count_set_partitions(power: tuple[int, int], partitions: int) -> None:
    """Equivariant maps n^a → n^b under S_n: one for every partition of a + b indices (Bell)."""
    generators = symmetric_group(6)
    single = generators
    double = [tensor_signed(g, g) for g in generators]
    rows, columns = (single if p == 1 else double for p in power)
    orbits = pair_orbits(rows, columns, (6 ** power[0], 6 ** power[1]))
    assert orbits.count == partitions


def test_a_pair_that_meets_itself_with_the_other_sign_is_zero() -> None:
    flip = (np.array([0]), np.array([-1], dtype=np.int8))
    keep = (np.array([0]), None)
    assert pair_orbits([flip], [keep], (1, 1)).count == 0
    assert pair_orbits([flip], [flip], (1, 1)).count == 1


def test_large_tables_are_handled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cyclic shifts of 12 points with a reflection: 7 distances, whatever the size of a part."""
    shift = (np.roll(np.arange(12), -1), None)
    reflect = (np.arange(12)[::-1].copy(), None)
    for chunk in (1, 30, 1 << 21):
        monkeypatch.setattr("groupella.bases._orbits._CHUNK", chunk)
        assert pair_orbits([shift, reflect], [shift, reflect], (12, 12)).count == 7


def test_signed_permutation_reads_exact_and_noisy_matrices() -> None:
    turn = np.array([[math.cos(math.pi / 2), -1.0], [1.0, math.cos(math.pi / 2)]])
    found = signed_permutation(turn)
    assert found is not None
    perm, sign = found
    assert perm.tolist() == [1, 0]
    assert sign is not None
    assert sign.tolist() == [1, -1]
    assert signed_permutation(np.array([[0.6, -0.8], [0.8, 0.6]])) is None
    assert signed_permutation(np.ones((2, 2))) is None


def test_rows_of_orbits_that_leave_entries_out() -> None:
    """Labels −1 are zeros, with signs or without."""
    labels = np.array([0, -1, 0, 1], dtype=np.int32)
    expected = np.array([[0.5**0.5, 0, 0.5**0.5, 0], [0, 0, 0, 1.0]])
    np.testing.assert_allclose(orbit_matrix(Orbits(labels, None, 2), 4).toarray(), expected)
    signs = np.array([1, 1, -1, 1], dtype=np.int8)
    expected[0, 2] *= -1
    np.testing.assert_allclose(orbit_matrix(Orbits(labels, signs, 2), 4).toarray(), expected)


def test_needs_as_many_row_as_column_generators() -> None:
    with pytest.raises(ValueError, match="1 generators act on rows but 2 on columns"):
        pair_orbits(symmetric_group(3)[:1], symmetric_group(3), (3, 3))
