"""Continuous groups: Lie algebras, their subgroups, representations, elements."""

import json
import pickle

import numpy as np
import pytest
import torch

from groupella.groups import (
    SCALAR,
    GroupSet,
    SiteElement,
    Symmetry,
    Tensors,
    V,
    about_axis,
    from_escnn_group,
    is_inside,
    lorentz,
    orthogonal,
    permutations,
    rotations,
    scalings,
    trivial,
    turns,
)
from groupella.groups.gate import load_group

X, Y, Z = (np.array(m, float) for m in (
    [[0, 0, 0], [0, 0, -1], [0, 1, 0]],
    [[0, 0, 1], [0, 0, 0], [-1, 0, 0]],
    [[0, -1, 0], [1, 0, 0], [0, 0, 0]],
))  # fmt: skip


def test_a_group_is_a_few_lines():
    so3 = Symmetry.from_lie_algebra("turns", [X, Y, Z])
    assert so3.is_continuous
    assert so3.is_orthogonal
    assert is_inside(so3, rotations(3))
    assert is_inside(rotations(3), so3)
    with pytest.raises(ValueError, match="the same symmetry"):
        GroupSet(so3, rotations(3))


@pytest.mark.parametrize(
    ("generators", "discrete", "message"),
    [
        ([X, Y], [], r"do not close to a Lie algebra: \[X0, X1\]"),
        ([X, Y, Z, X + Y], [], "span 3 dimensions"),
        ([X], [np.diag([1, 0, 1])], "is singular"),
        ([X], [np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]])], "does not belong to it"),
        ([X, np.eye(2)], [], "must have one size"),
        ([X[0]], [], "square matrix"),
        ([X * np.nan], [], "not finite"),
        (["so3"], [], "real square matrix"),
        ([], [], "no generators"),
    ],
)
def test_matrices_that_are_no_group_are_refused(generators, discrete, message):
    with pytest.raises(ValueError, match=message):
        Symmetry.from_lie_algebra("wrong", generators, discrete)


def test_membership_follows_the_matrices():
    inside = [
        (rotations(3), orthogonal(3)),
        (about_axis(2), about_axis(2, "turns")),
        (about_axis(2), about_axis(2, "mirrors")),
        (about_axis(2, "turns"), rotations(3)),
        (turns(5), about_axis(2)),
        (turns(2, axis=0), about_axis(2, "turns")),
        (turns(3), turns(6)),
        (trivial(), lorentz()),
        (lorentz(), lorentz(reflections=True)),
    ]
    outside = [
        (orthogonal(3), rotations(3)),
        (about_axis(2, "mirrors"), rotations(3)),
        (about_axis(1), about_axis(2)),
        (turns(5, axis=0), about_axis(2, "turns")),
        (turns(4), turns(6)),
        (lorentz(reflections=True), lorentz()),
        (rotations(3), lorentz()),
        (scalings(3), orthogonal(3)),
    ]
    for smaller, larger in inside:
        assert is_inside(smaller, larger), (smaller, larger)
    for smaller, larger in outside:
        assert not is_inside(smaller, larger), (smaller, larger)


def test_what_two_groups_generate():
    """Rotations about two axes generate all; a mirror and those about one axis generate O(2)."""
    groups = GroupSet(about_axis(0), about_axis(2))
    joint = groups.ambient
    assert len(joint.algebra) == 3
    assert is_inside(rotations(3), joint)
    assert is_inside(joint, rotations(3))
    mirror = Symmetry.from_lie_algebra("mirror", [], [np.diag([-1, 1, 1])])
    assert is_inside(about_axis(2, "mirrors"), GroupSet(about_axis(2), mirror).ambient)


def test_tensors_act_by_products_sums_and_duals():
    so13 = lorentz()
    space = GroupSet(so13).space((), 1, V * V.T + 2 * V + SCALAR)
    assert space.fibre_size == 16 + 8 + 1
    g, h = (e for e in space.sample(so13, 2) if isinstance(e, SiteElement))
    expected = np.zeros((25, 25))
    expected[:16, :16] = np.kron(g.fibre, np.linalg.inv(g.fibre).T)
    expected[16:20, 16:20] = expected[20:24, 20:24] = g.fibre
    expected[24, 24] = 1
    np.testing.assert_allclose(space.fibre_matrix(g), expected, atol=1e-12)
    np.testing.assert_allclose(
        space.fibre_matrix(g * h), space.fibre_matrix(g) @ space.fibre_matrix(h), atol=1e-9
    )
    eta = np.diag([1.0, -1, -1, -1])
    np.testing.assert_allclose(g.fibre.T @ eta @ g.fibre, eta, atol=1e-10)
    x = torch.randn(3, 25, dtype=torch.double)
    moved = space.act(g.inverse(), space.act(g, x))
    torch.testing.assert_close(moved, x, atol=1e-9, rtol=0)


def test_derivatives_are_those_of_the_action():
    so3 = rotations(3)
    group = load_group().so3_group(3)
    for fibre in (V * V + V.T, group.irrep(2), group.irrep(1).tensor(group.irrep(2))):
        space = GroupSet(so3).space((), 1, fibre)
        for x in space.infinitesimals(so3):
            step = 1e-5
            ahead, back = (
                space.fibre_matrix(
                    SiteElement(
                        np.arange(1),
                        None,
                        None,
                        np.eye(3) + s * x.fibre + s * s / 2 * x.fibre @ x.fibre,
                    )
                )
                for s in (step, -step)
            )
            slope = (ahead - back) / (2 * step)
            np.testing.assert_allclose(space.fibre.derivative(x.fibre), slope, atol=1e-8)


def test_fibres_of_escnn_are_its_matrices():
    from groupella.groups._continuous import _vectors

    for name in ("so2_group", "o2_group", "so3_group", "o3_group", "full_cylinder_group"):
        group = getattr(load_group(), name)()
        vectors, _ = _vectors(group)
        groups = GroupSet(from_escnn_group(group))
        beyond = {"so2_group": (7,), "full_cylinder_group": ((1,), (1, 5))}  # what escnn lists
        more = [group.irrep(*beyond[name])] if name in beyond else []
        for irrep in [*more, *list(group.irreps())[:7]]:
            space = groups.space((), 1, irrep)
            for _ in range(3):
                e = group.sample()
                g = SiteElement(np.arange(1), None, None, np.asarray(vectors(e), float))
                np.testing.assert_allclose(space.fibre_matrix(g), irrep(e), atol=1e-9)


def test_a_representation_of_another_group_is_refused():
    groups = GroupSet(orthogonal(3))
    with pytest.raises(ValueError, match="does not contain all that O"):
        groups.space((), 1, load_group().so3_group().irrep(2))
    with pytest.raises(ValueError, match="represents escnn's SO"):
        groups.space((), 1, load_group().so2_group().irrep(1))
    with pytest.raises(ValueError, match=r"no representation of O.*'W'"):
        groups.space((), 1, Tensors.of("W"))
    with pytest.raises(ValueError, match="not one of the ambient symmetry"):
        GroupSet(lorentz()).space((), 1, V).with_fibre(groups.space((), 1, V).fibre)


def test_continuous_groups_have_no_list_of_elements():
    so3 = rotations(3)
    with pytest.raises(ValueError, match="continuous: it has no order"):
        so3.order()
    with pytest.raises(ValueError, match="continuous: it has no list"):
        list(so3.elements(()))
    assert not so3.has_at_most(10**9, ())


def test_samples_spread_over_the_group():
    """Mean of the vector representation over O(3), and of its trace squared: 0 and 1."""
    elements = GroupSet(orthogonal(3)).space((), 1, V).sample(orthogonal(3), 2000)
    matrices = np.array([g.fibre for g in elements])
    assert np.abs(matrices.mean(0)).max() < 0.06
    assert abs(np.mean(np.trace(matrices, axis1=1, axis2=2) ** 2) - 1) < 0.15
    assert 0.4 < np.mean(np.linalg.det(matrices) < 0) < 0.6


@pytest.mark.parametrize(
    "symmetry",
    [
        orthogonal(3),
        lorentz(reflections=True),
        turns(5),
        permutations(4) * rotations(3, lattice=4),
        Symmetry.from_lie_algebra("shear", [], [[[1, 1], [0, 1]]]),
    ],
    ids=str,
)
def test_round_trips(symmetry):
    read = Symmetry.from_dict(json.loads(json.dumps(symmetry.as_dict())))
    assert read == symmetry
    assert pickle.loads(pickle.dumps(symmetry)) == symmetry
    space = GroupSet(symmetry).space(symmetry.lattice, 1, V * V)
    assert pickle.loads(pickle.dumps(space)) == space


def test_products_with_permutations_of_the_sites():
    both = permutations(4) * rotations(3, lattice=4)
    assert is_inside(permutations(4), both)
    assert is_inside(rotations(3, lattice=4), both)
    assert not is_inside(orthogonal(3, lattice=4), both)
    space = GroupSet(both).space(4, 1, V)
    g = space.sample(both, 1)[0]
    x = np.random.default_rng(0).standard_normal((2, 3, 4))
    np.testing.assert_allclose(
        np.sort(np.linalg.norm(space.act(g, x), axis=1)), np.sort(np.linalg.norm(x, axis=1))
    )
