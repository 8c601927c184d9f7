"""Products with symmetries of the values: actions, dimensions by characters, and their layers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from groupella.bases import equivariant_basis
from groupella.groups import (
    GroupSet,
    Symmetry,
    c4,
    generated,
    internal,
    p4,
    permutations,
    product,
    translations,
    trivial,
    z2,
)
from groupella.groups.gate import load_group
from groupella.nn.layer import ResidualPathway
from groupella.testing import assert_equivariant

Matrix = NDArray[np.float64]
QUARTER = np.array([[0.0, -1.0], [1.0, 0.0]])


def rotation(order: int) -> Matrix:
    c, s = np.cos(2 * np.pi / order), np.sin(2 * np.pi / order)
    return np.array([[c, -s], [s, c]])


def permutation_matrices(n: int) -> list[Matrix]:
    return [np.eye(n)[:, p] for p in map(list, itertools.permutations(range(n)))]


def powers(matrix: Matrix, order: int) -> list[Matrix]:
    return [np.linalg.matrix_power(matrix, k) for k in range(order)]


def by_characters(*factors: list[tuple[Matrix, Matrix]]) -> int:
    """dim Hom(⊗ V_in, ⊗ V_out) of a product of groups, each a list of (out, in) matrices."""
    each = [np.mean([np.trace(out) * np.trace(into) for out, into in group]) for group in factors]
    return round(math.prod(each))


def same(matrices: list[Matrix]) -> list[tuple[Matrix, Matrix]]:
    return [(m, m) for m in matrices]


def test_permutations_times_rotations_of_the_fibre() -> None:
    spin = internal("spin", 5, [rotation(8)])
    both = permutations(5) * spin
    assert both.name == "s5×spin"
    assert both.order() == 120 * 8
    space = GroupSet(both, permutations(5), spin, trivial()).space(5, channels=1)
    assert space.shape == (2, 5)
    sites, turns = permutation_matrices(5), powers(rotation(8), 8)
    expected = {
        both: by_characters(same(sites), same(turns)),
        permutations(5): by_characters(same(sites), same([np.eye(2)])),
        spin: by_characters(same([np.eye(5)]), same(turns)),
    }
    for symmetry, dim in expected.items():
        for method in ("auto", "constraints", "nullspace"):
            assert equivariant_basis(space, space, symmetry, method).dim == dim, symmetry
    scalars = space.with_fibre("trivial")
    assert equivariant_basis(scalars, space, both).dim == 0
    assert equivariant_basis(scalars, scalars, both).dim == 2


def test_a_group_too_large_to_be_listed() -> None:
    """S₃₀ × C₁₂: 2 · 2 maps of vectors, as characters say for each factor."""
    both = permutations(30) * internal("spin", 30, [rotation(12)])
    space = GroupSet(both).space(30, channels=1)
    basis = equivariant_basis(space, space, both)
    assert basis.method == "constraints"
    assert basis.dim == 2 * by_characters(same(powers(rotation(12), 12)))
    rows = basis.tensor
    np.testing.assert_allclose(
        np.einsum("aij,bij->ab", rows, rows), np.eye(basis.dim), rtol=0, atol=1e-12
    )
    for g in space.sample(both, 5):
        moved = space.action(g).matrix().toarray()
        np.testing.assert_allclose(moved @ rows @ moved.T, rows, rtol=0, atol=1e-12)


def test_shifts_times_a_change_of_sign() -> None:
    sign = internal("sign", 6, [[[-1]]])
    both = translations(1) * sign
    assert both.order() == 12
    space = GroupSet(both, translations(1), sign).space(6, channels=1)
    scalars = space.with_fibre("trivial")
    shifts = [np.roll(np.eye(6), k, axis=0) for k in range(6)]
    odd = [(-np.eye(1), -np.eye(1)), (np.eye(1), np.eye(1))]
    mixed = [(-np.eye(1), np.eye(1)), (np.eye(1), np.eye(1))]
    assert equivariant_basis(space, space, both).dim == by_characters(same(shifts), odd) == 6
    assert equivariant_basis(scalars, space, both).dim == by_characters(same(shifts), mixed) == 0
    x = np.arange(6.0).reshape(1, 1, 6)
    step, flip = space.generators(both)
    assert np.array_equal(space.act(step, x), np.roll(x, 1, axis=2))
    assert np.array_equal(space.act(flip, x), -x)
    assert np.array_equal(scalars.act(flip, x), x)


def test_colour_permutations_times_p4() -> None:
    colours = internal("colours", (4, 4), [[1, 2, 0], [1, 0, 2]])
    turns = generated(p4(), (4, 4), "regular")
    both = colours * turns
    groups = GroupSet(both, colours, turns, trivial())
    assert groups.contains("colours×p4", "p4")
    assert groups.contains("colours×p4", "colours")
    assert not groups.contains("p4", "colours")
    space = groups.space((4, 4), channels=1)
    assert space.shape == (12, 4, 4)
    known = GroupSet(p4()).space((4, 4), channels=1)
    alone = equivariant_basis(known, known, p4()).dim
    of_colours = by_characters(same(permutation_matrices(3)))
    assert equivariant_basis(space, space, both).dim == alone * of_colours
    only = space.with_fibre("colours")
    plain = known.with_fibre("trivial")
    flat = equivariant_basis(plain, plain, p4()).dim
    assert equivariant_basis(only, only, both).dim == flat * of_colours
    one = equivariant_basis(space.with_fibre("p4"), space.with_fibre("p4"), both).dim
    assert one == alone


def test_escnn_representations_as_fibres_of_generated_groups() -> None:
    """By restriction of the point group's, and by matrices of any other group's."""
    turned = generated(c4(), (3, 3), {"vector": "irrep:1", "regular": "regular"})
    known = GroupSet(c4()).space((3, 3), channels=1, fibre="irrep:1")
    own = GroupSet(turned).space((3, 3), channels=1, fibre="vector")
    x = np.random.default_rng(0).standard_normal((2, 2, 3, 3))
    for a, b in zip(own.generators(turned), known.generators(c4()), strict=True):
        np.testing.assert_allclose(own.act(a, x), known.act(b, x), rtol=0, atol=1e-12)
    expected = equivariant_basis(known, known.with_fibre("regular"), c4()).dim
    assert equivariant_basis(own, own.with_fibre("regular"), turned).dim == expected
    icosahedral = load_group().ico_group()
    vector = icosahedral.irrep(1)
    spins = internal("spins", 2, vector)
    space = GroupSet(spins).space(2, channels=1)
    assert spins.order() == 60
    matrices = [vector(e) for e in icosahedral.elements]
    expected = by_characters(same([np.eye(2)]), same(matrices))
    assert equivariant_basis(space, space, spins).dim == expected == 4


def test_an_escnn_representation_is_a_fibre_of_a_group_by_generators() -> None:
    """By its matrices at the generators of its group, in their order: a rotation and a mirror."""
    dihedral = load_group().dihedral_group(5)
    sites = np.arange(5)
    moves = [(sites + 1) % 5, -sites % 5]
    matrices = [np.eye(5)[:, [(k + s * i) % 5 for i in sites]] for s in (1, -1) for k in sites]
    characters = {"irrep_1,2": [2 * np.cos(4 * np.pi * k / 5) for k in sites] + [0.0] * 5}
    characters["irrep_1,0"] = [1.0] * 5 + [-1.0] * 5
    for name, values in characters.items():
        irrep = next(rho for rho in dihedral.irreps() if rho.name == name)
        pentagon = Symmetry.from_generators("pentagon", 5, moves, fibre={"v": irrep})
        space = GroupSet(pentagon).space(5, channels=1)
        fixed = [np.trace(m) for m in matrices]
        expected = np.mean([(f * chi) ** 2 for f, chi in zip(fixed, values, strict=True)])
        assert equivariant_basis(space, space, pentagon).dim == round(expected)
    with pytest.raises(ValueError, match="do not belong together"):
        Symmetry.from_generators("wrong", 5, moves[::-1], fibre=dihedral.irrep(1, 1))
    with pytest.raises(ValueError, match="has 1 generators but 2 fibre maps"):
        Symmetry.from_generators("few", 5, moves[:1], fibre=dihedral.irrep(1, 1))
    circle = load_group().so2_group(3).irrep(1)
    with pytest.raises(ValueError, match=r"SO\(2\), which no finite number .*restrict it"):
        internal("v", 5, circle)
    with pytest.raises(ValueError, match="one map for each generator"):
        Symmetry.from_generators("no", 5, moves, fibre={"v": "irrep:1"})
    turned = generated(c4(), (3, 3), circle.restrict(4))
    space = GroupSet(turned).space((3, 3), 1)
    # One site stays, eight do not; traces of turns by 0, 90, 180 and 270°: 2, 0, −2, 0.
    assert equivariant_basis(space, space, turned).dim == ((9 * 2) ** 2 + (1 * -2) ** 2) / 4


CASES = {
    "rotations": (permutations(4), internal("spin", 4, [rotation(8)]), 4),
    "sign": (z2(), internal("sign", (3, 3), [[[-1]]]), (3, 3)),
    "colours": (z2(), internal("colours", (3, 3), [[1, 2, 0], [1, 0, 2]]), (3, 3)),
    "point": (generated(c4(), (3, 3), "irrep:1"), internal("sign", (3, 3), [[[-1]]]), (3, 3)),
}


@pytest.mark.parametrize("increments", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_layers_are_equivariant_in_every_strict_limit(case: str, increments: bool) -> None:
    first, second, lattice = CASES[case]
    both = first * second
    groups = GroupSet(both, first, second, trivial())
    source, target = groups.space(lattice, channels=2), groups.space(lattice, channels=3)
    torch.manual_seed(0)
    layer = ResidualPathway(source, target, groups, increments=increments)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    for member in (both, first, second):
        strict = layer.strict(member.name)
        for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            module = strict.to(dtype)
            assert_equivariant(module, source, target, member, dtype=dtype, tolerance=tolerance)
    with pytest.raises(AssertionError):
        assert_equivariant(layer.double(), source, target, both, dtype=torch.float64)


def test_products_are_written_and_read() -> None:
    both = generated(c4(), (3, 3), "irrep:1") * internal("sign", (3, 3), [[[-1]]])
    again = Symmetry.from_dict(both.as_dict())
    assert again.key == both.key
    assert GroupSet(again).space((3, 3), 1, "c4×sign").shape == (2, 3, 3)


def test_what_has_no_product() -> None:
    with pytest.raises(ValueError, match="do not commute"):
        permutations(4) * translations(1)
    with pytest.raises(ValueError, match="both act on sites alone"):
        z2() * p4()
    with pytest.raises(ValueError, match="one and the same lattice"):
        permutations(4) * internal("sign", 5, [[[-1]]])
    unnamed = Symmetry.from_generators("a", 2, [[0, 1]], fibre=[QUARTER])
    with pytest.raises(ValueError, match="without a name"):
        unnamed * Symmetry.from_generators("b", 2, [[0, 1]], fibre=[[1, 0]])
    with pytest.raises(ValueError, match="different sizes"):
        product(unnamed * internal("v", 2, [QUARTER]), internal("v", 2, [[1, 2, 0]]))
    with pytest.raises(ValueError, match="generators already"):
        generated(permutations(3), 3)
    space = GroupSet(unnamed * internal("v", 2, [QUARTER])).space(2, 1)
    assert space.shape == (4, 2)
    with pytest.raises(ValueError, match=r"\(None, 'v', or some of these joined by ×\), got 'w'"):
        space.with_fibre("w")
    with pytest.raises(TypeError):
        z2() * 3  # type: ignore[operator]
