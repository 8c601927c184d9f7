"""Distances to anchors: straight, on the torus, and left-invariant ones on groups."""

from __future__ import annotations

import numpy as np
import pytest

from groupella.bases import squared_distances
from groupella.groups import (
    GroupSet,
    Symmetry,
    c4,
    cyclic,
    d4,
    flips,
    line_reflections,
    octahedral,
    octahedral_point,
    p4,
    p4m,
    permutations,
    z2,
)


def window(size: int) -> np.ndarray:
    return np.indices((size, size)).reshape(2, -1).T - (size - 1) / 2


def test_plain_window() -> None:
    points, anchors = window(3), np.array([[0.0, 0.0], [1.0, -0.5]])
    found = squared_distances(points, anchors)
    assert found.shape == (9, 2)
    for i, p in enumerate(points):
        for j, z in enumerate(anchors):
            assert found[i, j] == ((p - z) ** 2).sum()


def test_a_torus_is_a_product_of_circles() -> None:
    """Sides n are circles of circumference n in the plane; distances are straight."""
    one, other = [[0, 0], [7, 3]], [[6, 0], [0.5, 0]]
    sides = np.array([8, 4])
    first, second = (
        sides / (2 * np.pi) * np.exp(2j * np.pi * p / sides) for p in map(np.array, (one, other))
    )
    expected = np.square(np.abs(first[:, None] - second)).sum(2)
    np.testing.assert_allclose(squared_distances(one, other, period=(8, 4)), expected)
    near = squared_distances([[999.0]], [[0.5]], period=(1000,))
    np.testing.assert_allclose(near, 1.5**2, rtol=1e-4)
    points = np.indices((8, 4)).reshape(2, -1).T
    shifted = np.add(points, [3, 1]) % [8, 4]
    np.testing.assert_allclose(
        squared_distances(points, points, period=(8, 4)),
        squared_distances(shifted, shifted, period=(8, 4)),
    )


@pytest.mark.parametrize(
    ("symmetry", "shape"),
    [
        (z2(), (3, 4)),
        (p4(), (3, 3)),
        (p4m(), (4, 4)),
        (flips(0), (2, 3)),
        (c4(), (3, 3)),
        (d4(), (2, 2)),
        (line_reflections(), (5,)),
        (octahedral_point(), (2, 2, 2)),
    ],
    ids=str,
)
def test_distances_on_lattice_groups_are_invariant(symmetry: Symmetry, shape: tuple) -> None:
    space = GroupSet(symmetry).space(shape, 1)
    elements = list(space.elements(symmetry))
    sample = space.sample(symmetry, 12, seed=1)
    values = squared_distances(sample, sample)
    np.testing.assert_array_equal(values, values.T)
    np.testing.assert_array_equal(np.diag(values), 0)
    for a in elements[:: max(1, len(elements) // 10)]:
        moved = [a * g for g in sample]
        np.testing.assert_array_equal(squared_distances(moved, moved), values)
    apart = squared_distances(elements, elements)
    assert (apart[~np.eye(len(elements), dtype=bool)] > 0).all()


@pytest.mark.parametrize("omega", [0.1, 0.2, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("symmetry", "shape"),
    [(z2(), (8, 3)), (p4m(), (4, 4)), (line_reflections(), (8,)), (octahedral(), (2, 2, 2))],
    ids=str,
)
def test_bumps_are_positive_definite_kernels(
    symmetry: Symmetry, shape: tuple, omega: float
) -> None:
    """With the shortest way round eight sites, eigenvalues are as low as −0.18."""
    elements = list(GroupSet(symmetry).space(shape, 1).elements(symmetry))
    kernel = np.exp(-(omega**2) * squared_distances(elements, elements))
    assert np.linalg.eigvalsh(kernel).min() > -1e-12 * len(elements)


def test_quarter_turns_are_chords_apart() -> None:
    """½|R − R'|² = 2(1 − cos θ): 0, 2, 4, 2 for the rotations by multiples of 90°."""
    space = GroupSet(c4()).space((3, 3), 1)
    (turn,) = space.generators(c4())
    elements = [turn * turn.inverse(), turn, turn * turn, turn * turn * turn]
    np.testing.assert_allclose(squared_distances(elements, elements[:1]).ravel(), [0, 2, 4, 2])


@pytest.mark.parametrize("symmetry", [cyclic(7), permutations(4)], ids=str)
def test_word_lengths_are_invariant(symmetry: Symmetry) -> None:
    space = GroupSet(symmetry).space(symmetry.lattice, 1)
    elements, generators = list(space.elements(symmetry)), space.generators(symmetry)
    values = squared_distances(elements, elements[:5], generators=generators)
    whole = squared_distances(elements, elements, generators=generators)
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(values, whole[:, :5])
    for a in elements[::5]:
        moved = [a * g for g in elements]
        np.testing.assert_array_equal(squared_distances(moved, moved, generators=generators), whole)


def test_word_length_in_a_cyclic_group_is_the_way_round() -> None:
    symmetry = cyclic(7)
    space = GroupSet(symmetry).space((7,), 1)
    (step,) = generators = space.generators(symmetry)
    elements = [step * step.inverse()]
    for _ in range(6):
        elements.append(elements[-1] * step)
    found = squared_distances(elements[:1], elements, generators=generators)
    np.testing.assert_array_equal(found, [[0, 1, 4, 9, 9, 4, 1]])


def test_bad_input() -> None:
    points = np.zeros((3, 2))
    with pytest.raises(ValueError, match=r"got \(3, 2\) and \(3, 1\)"):
        squared_distances(points, points[:, :1])
    with pytest.raises(ValueError, match="period must be 2 positive lengths"):
        squared_distances(points, points, period=(4,))
    symmetry = cyclic(4)
    space = GroupSet(symmetry).space((4,), 1)
    elements = list(space.elements(symmetry))
    with pytest.raises(ValueError, match="pass its `generators`"):
        squared_distances(elements, elements)
    with pytest.raises(ValueError, match="both be group elements"):
        squared_distances(elements, points)
    with pytest.raises(ValueError, match="period is for coordinates"):
        squared_distances(elements, elements, period=(4,))
    with pytest.raises(ValueError, match="2 elements are not words"):
        squared_distances(elements[:1], elements, generators=[elements[2]])
    small, large = (list(GroupSet(c4()).space((n, n), 1).elements(c4())) for n in (3, 4))
    with pytest.raises(ValueError, match="act on one lattice"):
        squared_distances(small, large)
