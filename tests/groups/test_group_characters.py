"""Characters against traces of explicit matrices, and their orthogonality."""

from __future__ import annotations

import numpy as np
import pytest

from groupella.bases import character_dimension
from groupella.groups import (
    GroupSet,
    Symmetry,
    c4,
    cmm,
    flips,
    line_reflections,
    octahedral_point,
    p4,
    p4m,
    trivial,
    z2,
)


@pytest.mark.parametrize(
    ("symmetry", "shape"),
    [
        *((s, shape) for s in (z2(), p4(), p4m(), flips(0), cmm()) for shape in ((3, 3), (4, 4))),
        (flips(1), (2, 3)),
        (line_reflections(), (6,)),
        (octahedral_point(), (3, 3, 3)),
        (trivial(), (2, 2)),
    ],
    ids=str,
)
def test_character_is_the_trace_of_every_element(
    symmetry: Symmetry, shape: tuple[int, ...]
) -> None:
    for fibre in (None, "trivial"):
        space = GroupSet(symmetry).space(shape, channels=3, fibre=fibre)
        actions = [space.action(g) for g in space.elements(symmetry)]
        traces = [action.matrix().trace() for action in actions]
        assert np.allclose([action.trace() for action in actions], traces, atol=1e-12)


def test_irreps_are_orthonormal() -> None:
    groups = GroupSet(c4())
    spaces = [groups.space((), 1, fibre=f"irrep:{k}") for k in range(3)]
    dimensions = [[character_dimension(a, b, c4()) for b in spaces] for a in spaces]
    assert dimensions == [[1, 0, 0], [0, 2, 0], [0, 0, 1]]


def test_dimension_between_lattices_counts_orbits_of_pairs() -> None:
    """Translations of a 4×4 torus from it to a 2×2 one: 64 pairs in orbits of 16."""
    space = GroupSet(z2()).space((4, 4), channels=1)
    assert character_dimension(space, space, z2()) == 16
    assert character_dimension(space, space.with_lattice((2, 2)), z2()) == 4
    assert character_dimension(space.with_lattice((2, 2)), space, z2()) == 4
    assert character_dimension(space, space.with_lattice(()), z2()) == 1
    assert character_dimension(space.with_lattice((4, 2)), space.with_lattice((2, 4)), z2()) == 4
    assert character_dimension(space.with_lattice((2, 2)), space.with_lattice((3, 3)), z2()) == 1


def test_regular_fibre_turns_point_equivariance_into_free_choice() -> None:
    """Hom(V ⊗ regular, W ⊗ regular) over the point group is |K| times dim V dim W / 1 pairs."""
    space = GroupSet(p4()).space((4, 4), channels=1)
    assert character_dimension(space, space, p4()) == 16 * 16 // 16 * 4
    assert character_dimension(space, space, c4()) == 16 * 16 * 4
