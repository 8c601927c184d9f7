"""Bases for continuous groups: dimensions known from invariant theory, and exactness."""

import math

import numpy as np
import pytest

from groupella.bases import character_dimension, equivariant_basis, increments
from groupella.groups import (
    SCALAR,
    GroupSet,
    Symmetry,
    Tensors,
    V,
    about_axis,
    from_escnn_group,
    lorentz,
    orthogonal,
    permutations,
    rotations,
    scalings,
    trivial,
    turns,
)
from groupella.groups.gate import load_group

CHAIN = (orthogonal(3), rotations(3), about_axis(2, "turns"), about_axis(2), turns(4), trivial())


def spaces(symmetry: Symmetry, rep_in: Tensors, rep_out: Tensors):
    groups = GroupSet(symmetry)
    return groups.space((), 1, rep_in), groups.space((), 1, rep_out)


def checked(space_in, space_out, symmetry):
    """The basis, after a check that it is orthonormal and commutes with random elements."""
    basis = equivariant_basis(space_in, space_out, symmetry)
    rows = basis.matrix.toarray()
    np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-10)
    for g in space_in.sample(symmetry, 4, seed=3):
        left = space_out.action(g).matrix().toarray()
        right = space_in.action(g).matrix().toarray()
        size = max(1.0, np.abs(left).max() * np.abs(right).max())
        np.testing.assert_allclose(left @ basis.tensor, basis.tensor @ right, atol=1e-10 * size)
    return basis


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("power", [1, 2, 3, 4])
def test_tensor_invariants_of_the_orthogonal_group_are_pairings(n, power):
    """Weyl's first fundamental theorem: (2k − 1)!! pairings of 2k ≤ 2n vectors, none of an odd
    number; without reflections, also the determinant of n vectors."""
    pairings = math.prod(range(1, power, 2)) if power % 2 == 0 else 0
    assert checked(*spaces(orthogonal(n), SCALAR, V**power), orthogonal(n)).dim == pairings
    expected = pairings + (power == n)
    assert checked(*spaces(rotations(n), SCALAR, V**power), rotations(n)).dim == expected


def test_invariants_of_rotations_are_motzkin_sums_however_they_are_solved():
    """dim Inv_SO(3) V^k = 1, 0, 1, 1, 3, 6, 15 (Riordan numbers); larger ones by weights."""
    so3 = rotations(3)
    for power, count in enumerate((1, 0, 1, 1, 3, 6, 15)):
        pair = spaces(so3, SCALAR, V**power)
        assert checked(*pair, so3).dim == count
        assert character_dimension(*pair, so3) == count


@pytest.mark.parametrize(
    ("symmetry", "rep_in", "rep_out"),
    [
        (orthogonal(3), V * V + V, V * V + SCALAR),
        (about_axis(0), V * V, V + SCALAR),
        (about_axis(2, "mirrors"), V, V * V),
        (lorentz(), V * V.T, V.T * V),
        (lorentz(2, reflections=True), V * V, V.T + SCALAR),
        (scalings(2), V * V.T + V, V.T * V + V),
    ],
    ids=lambda value: str(value),
)
def test_lie_algebra_and_group_elements_give_the_same_maps(symmetry, rep_in, rep_out):
    pair = spaces(symmetry, rep_in, rep_out)
    basis = checked(*pair, symmetry)
    other = equivariant_basis(*pair, symmetry, method="nullspace")
    assert basis.dim == other.dim > 0
    cosines = basis.matrix @ other.matrix.T.toarray()
    np.testing.assert_allclose(cosines @ cosines.T, np.eye(basis.dim), atol=1e-9)


def test_the_metric_is_the_invariant_of_two_four_vectors():
    so13 = lorentz()
    basis = equivariant_basis(*spaces(so13, SCALAR, V * V), so13)
    assert basis.dim == 1
    metric = basis.tensor.reshape(4, 4)
    np.testing.assert_allclose(metric / metric[0, 0], np.diag([1, -1, -1, -1]), atol=1e-12)
    mixed = equivariant_basis(*spaces(so13, SCALAR, V * V.T), so13).tensor.reshape(4, 4)
    np.testing.assert_allclose(mixed / mixed[0, 0], np.eye(4), atol=1e-12)


def test_symplectic_group_by_its_matrices():
    """Sp(2n): X = Ω S with S symmetric; the invariant of two vectors is Ω."""
    n = 2
    omega = np.kron([[0, 1], [-1, 0]], np.eye(n))
    symmetric = []
    for i in range(2 * n):
        for j in range(i + 1):
            s = np.zeros((2 * n, 2 * n))
            s[i, j] = s[j, i] = 1
            symmetric.append(omega @ s)
    sp4 = Symmetry.from_lie_algebra("Sp(4)", symmetric)
    found = equivariant_basis(*spaces(sp4, SCALAR, V * V), sp4).tensor.reshape(-1, 4, 4)
    assert len(found) == 1
    assert np.abs(np.abs(found[0] @ omega) - 0.5 * np.eye(4)).max() < 1e-10
    assert equivariant_basis(*spaces(sp4, SCALAR, V**4), sp4).dim == 3


def test_schur_lemma_and_clebsch_gordan_for_irreps_of_escnn():
    group = load_group().so3_group(4)
    so3 = from_escnn_group(group)
    groups = GroupSet(so3)
    for k in range(4):
        for j in range(4):
            one, other = (groups.space((), 1, group.irrep(m)) for m in (k, j))
            assert checked(one, other, so3).dim == int(k == j)
    square = group.irrep(2).tensor(group.irrep(1))
    space = groups.space((), 1, square)
    assert [checked(space, groups.space((), 1, group.irrep(k)), so3).dim for k in range(5)] == [
        0, 1, 1, 1, 0,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["so2_group", "o2_group", "o3_group", "cylinder_group", "full_ico_group"]
)
def test_irreps_of_other_escnn_groups(name):
    """End ψ has dimension 1, 2 or 4 (real, complex, quaternionic type): escnn's own table."""
    group = getattr(load_group(), name)()
    symmetry = from_escnn_group(group)
    groups = GroupSet(symmetry)
    for irrep in list(group.irreps())[:6]:
        space = groups.space((), 1, irrep)
        assert checked(space, space, symmetry).dim == irrep.sum_of_squares_constituents


def test_a_chain_of_subgroups_has_nested_maps_and_increments():
    groups = GroupSet(*CHAIN)
    assert groups.subgroups("O(3)") == groups.names
    assert groups.supergroups("C4z") == groups.names[:-1]
    source, target = groups.space((), 1, V + SCALAR), groups.space((), 1, V * V)
    bases = {s.name: equivariant_basis(source, target, s) for s in groups}
    dims = [basis.dim for basis in bases.values()]
    # From SCALAR: 1, 1, 2, 3, 3 (+ 9 for none); from V: 0, 1, 3, 7, 7 (+ 27).
    assert dims == [1, 2, 5, 10, 10, 36]
    parts = increments(bases)
    assert parts.overlapping == ()
    assert parts.rows == parts.rank == 36
    assert [parts[n].dim for n in parts.names] == [1, 1, 3, 5, 26]


def test_sets_of_vectors_have_maps_of_sites_times_maps_of_vectors():
    """Hom_{S_n × O(3)} = Hom_{S_n}(sites) ⊗ Hom_{O(3)}(fibres): 2 · 3 from tensors to tensors."""
    sites = 5
    symmetry = permutations(sites) * orthogonal(3, lattice=sites)
    groups = GroupSet(symmetry)
    space = groups.space(sites, 1, V * V)
    assert checked(space, space, symmetry).dim == 2 * 3
    vectors = groups.space(sites, 1, V)
    assert checked(vectors, vectors, symmetry).dim == 2
    pooled = groups.space((), 1, V)
    assert checked(vectors, pooled, symmetry).dim == 1


def test_what_cannot_be_solved_is_refused():
    so3 = rotations(3)
    with pytest.raises(ValueError, match="continuous: it has no list of elements"):
        equivariant_basis(*spaces(so3, V, V), so3, method="reynolds")
    with pytest.raises(ValueError, match="method 'lie' is for continuous groups"):
        equivariant_basis(*spaces(turns(3), V, V), turns(3), method="lie")
    with pytest.raises(ValueError, match="are more than can be solved"):
        equivariant_basis(*spaces(so3, SCALAR, V**11), so3)
    with pytest.raises(ValueError, match="for connected groups"):
        character_dimension(*spaces(orthogonal(3), V, V), orthogonal(3))


MOTIONS = [
    [[0, -1, 0], [1, 0, 0], [0, 0, 0]],
    [[0, 0, 1], [0, 0, 0], [0, 0, 0]],
    [[0, 0, 0], [0, 0, 1], [0, 0, 0]],
]
STRETCHES = [[[1, 0], [0, 0]], [[0, 1], [0, 0]]]


@pytest.mark.parametrize("generators", [MOTIONS, STRETCHES], ids=["se2", "ax+b"])
def test_characters_do_not_count_for_algebras_that_are_not_reductive(generators: list) -> None:
    """Motions of the plane and x → ax + b: a subspace without complement; bases are right."""
    matrices = [np.asarray(x, dtype=float) for x in generators]
    symmetry = Symmetry.from_lie_algebra("motions", matrices)
    space_in, space_out = spaces(symmetry, V * V, V)
    n, one = len(matrices[0]), np.eye(len(matrices[0]))
    rows = [
        np.kron(x, np.eye(n * n)) - np.kron(one, (np.kron(x, one) + np.kron(one, x)).T)
        for x in matrices
    ]
    expected = n**3 - np.linalg.matrix_rank(np.concatenate(rows))
    assert equivariant_basis(space_in, space_out, symmetry).dim == expected > 0
    with pytest.raises(ValueError, match="reductive"):
        character_dimension(space_in, space_out, symmetry)


def test_characters_count_where_the_centre_is_not_compact() -> None:
    """Spirals, exp(t (1 + J)): tr(X²) is zero, but planes are what they leave alone."""
    spiral = Symmetry.from_lie_algebra("spiral", [[[1, -1], [1, 1]]])
    for pair, count in (((V, V), 2), ((V, V.T), 0), ((V * V, V * V), 6)):
        given = spaces(spiral, *pair)
        assert character_dimension(*given, spiral) == equivariant_basis(*given, spiral).dim == count
