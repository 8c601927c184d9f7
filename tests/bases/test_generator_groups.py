"""Random groups given by generators: characters, orbits, Reynolds means and null spaces agree."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from groupella.bases import Basis, character_dimension, equivariant_basis, kernel_basis
from groupella.groups import FeatureSpace, GroupSet, Symmetry, flips, p4, z2

FIBRES = ("none", "parity", "points", "turned points", "turned sum")


def _matrix(images: list[int]) -> np.ndarray:
    matrix = np.zeros((len(images), len(images)))
    matrix[images, np.arange(len(images))] = 1
    return matrix


@st.composite
def groups_by_generators(draw: st.DrawFn) -> GroupSet:
    """One to three permutations of up to five sites, with a representation made from them."""
    n = draw(st.integers(2, 5))
    generators = draw(st.lists(st.permutations(range(n)), min_size=1, max_size=3))
    kind = draw(st.sampled_from(FIBRES))
    turn = np.linalg.qr(np.random.default_rng(draw(st.integers(0, 99))).standard_normal((n, n)))[0]
    matrices = [_matrix(list(g)) for g in generators]
    if kind == "none":
        fibre = None
    elif kind == "parity":
        fibre = [np.array([[round(np.linalg.det(m))]]) for m in matrices]
    elif kind == "points":
        fibre = matrices
    elif kind == "turned points":
        fibre = [turn @ m @ turn.T for m in matrices]
    else:
        signs = [round(np.linalg.det(m)) for m in matrices]
        blocks = [
            np.block([[m * s, np.zeros((n, 1))], [np.zeros((1, n)), s]])
            for m, s in zip(matrices, signs, strict=True)
        ]
        wide = np.linalg.qr(np.random.default_rng(5).standard_normal((n + 1, n + 1)))[0]
        fibre = [wide @ block @ wide.T for block in blocks]
    symmetry = Symmetry.from_generators("random", (n,), [list(g) for g in generators], fibre)
    return GroupSet(symmetry)


def projector(basis: Basis) -> np.ndarray:
    rows = basis.tensor.reshape(basis.dim, basis.size)
    np.testing.assert_allclose(rows @ rows.T, np.eye(basis.dim), rtol=0, atol=1e-12)
    return rows.T @ rows


def trace_of_every_element(space_in: FeatureSpace, space_out: FeatureSpace, g: Symmetry) -> float:
    elements = list(space_in.elements(g))
    return sum(
        space_in.action(e).matrix().trace() * space_out.action(e).matrix().trace() for e in elements
    ) / len(elements)


@given(groups_by_generators(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_methods_agree(groups: GroupSet, plain_input: bool) -> None:
    symmetry = groups.ambient
    n = symmetry.lattice.size
    space_out = groups.space((n,), 1)
    space_in = groups.space((n,), 1, "trivial") if plain_input else space_out
    basis = equivariant_basis(space_in, space_out, symmetry)
    expected = round(trace_of_every_element(space_in, space_out, symmetry))
    assert basis.dim == character_dimension(space_in, space_out, symmetry) == expected
    for g in space_in.generators(symmetry):
        left, right = (s.action(g).matrix().toarray() for s in (space_out, space_in))
        np.testing.assert_allclose(left @ basis.tensor, basis.tensor @ right, rtol=0, atol=1e-12)
    here = projector(basis)
    np.testing.assert_allclose(here @ here, here, rtol=0, atol=1e-12)
    others = ["reynolds"] if basis.method == "orbits" else []
    for method in [*others, "nullspace"] if basis.size <= 400 else others:
        again = equivariant_basis(space_in, space_out, symmetry, method)
        np.testing.assert_allclose(projector(again), here, rtol=0, atol=1e-12)


def test_the_plane_rotations_of_order_three() -> None:
    """C₃ by its 2-D irrep: commuting maps are a + bJ, two parameters, and no signed permutation."""
    c, s = np.cos(2 * np.pi / 3), np.sin(2 * np.pi / 3)
    symmetry = Symmetry.from_generators("c3", (3,), [[1, 2, 0]], [[[c, -s], [s, c]]])
    groups = GroupSet(symmetry)
    on_fibre = groups.space((), 1)
    basis = equivariant_basis(on_fibre, on_fibre, symmetry)
    assert (basis.dim, basis.method) == (2, "reynolds")
    expected = np.array([[[1, 0], [0, 1]], [[0, -1], [1, 0]]])
    np.testing.assert_allclose(basis.project(expected), expected, rtol=0, atol=1e-12)
    on_sites = groups.space((3,), 1)
    assert equivariant_basis(on_sites, on_sites, symmetry).dim == 12
    pooled = equivariant_basis(on_sites, on_fibre, symmetry)
    assert pooled.dim == character_dimension(on_sites, on_fibre, symmetry) == 4


def test_orthogonal_matrices_of_the_sites() -> None:
    """C₅ as rotations of the plane: the sites are two coordinates, mixed by a matrix."""
    angle = 2 * np.pi / 5
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    groups = GroupSet(Symmetry.from_generators("c5", (2,), [turn]))
    space = groups.space((2,), 1)
    basis = equivariant_basis(space, space, groups.ambient)
    assert basis.dim == 2
    left = np.array(turn)
    np.testing.assert_allclose(left @ basis.tensor, basis.tensor @ left, rtol=0, atol=1e-12)


def test_klein_four_with_signs() -> None:
    """Two commuting sign changes: diagonal maps between lines of equal sign."""
    signs = [np.diag([-1.0, 1, -1, 1]), np.diag([1.0, -1, 1, -1])]
    groups = GroupSet(Symmetry.from_generators("klein", (4,), signs))
    space = groups.space((4,), 1)
    basis = equivariant_basis(space, space, groups.ambient)
    assert (basis.dim, basis.method) == (8, "orbits")


def test_catalogue_groups_in_a_set_with_generators() -> None:
    """Kernels and maps of z2, flips and p4 are those of a set without the fourth member."""
    sites = np.arange(16).reshape(4, 4)
    turn = [[0.0, -1.0], [1.0, 0.0]]
    own = Symmetry.from_generators("own", (4, 4), [np.rot90(sites).argsort(axis=None)], [turn])
    members = (z2(), flips(), p4())
    mixed, plain = GroupSet(*members, own), GroupSet(*members)
    there, here = (s.space((4, 4), 1, "trivial") for s in (mixed, plain))
    for symmetry, kernels in zip(members, (9, 6, 3), strict=True):
        found = kernel_basis(there, there, symmetry, 3)
        assert found.dim == character_dimension(there, there, symmetry, 3) == kernels
        wanted = kernel_basis(here, here, symmetry, 3)
        np.testing.assert_allclose(projector(found), projector(wanted), rtol=0, atol=1e-12)
        maps = projector(equivariant_basis(here, here, symmetry))
        for method in ("auto", "reynolds", "nullspace"):
            again = equivariant_basis(there, there, symmetry, method)
            np.testing.assert_allclose(projector(again), maps, rtol=0, atol=1e-12)
    # They leave the fibre alone that the generators turn: a kernel for each of its 2 × 2 entries.
    vectors = mixed.space((4, 4), 1)
    assert kernel_basis(vectors, vectors, flips(), 3).dim == 4 * 6
