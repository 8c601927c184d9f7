"""Bad input: one clear error that names the offender."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from groupella.groups import (
    GroupSet,
    Lattice,
    Symmetry,
    axial,
    cm,
    cyclic,
    flips,
    octahedral,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    translations,
    z2,
)
from groupella.groups.gate import load_group


def rotation(angle: float) -> np.ndarray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


@pytest.mark.parametrize(
    ("attempt", "offender"),
    [
        (lambda: GroupSet(p4()).space((4, 6), 1), "p4 exchanges axes of different length"),
        (lambda: GroupSet(z2(), cm()).space((4, 6), 1), "cm exchanges axes"),
        (lambda: GroupSet(flips(0), p4m()).space((4, 6), 1), "p4m exchanges axes"),
        (lambda: GroupSet(octahedral()).space((4, 4, 6), 1), "octahedral exchanges axes"),
        (lambda: GroupSet(p4()).space((4,), 1), "p4 acts on 2-dimensional lattices, not on"),
        (lambda: GroupSet(permutations(5)).space((6,), 1), "s5 is defined on 5 sites, not on 6"),
        (lambda: GroupSet(), "at least one symmetry"),
        (lambda: GroupSet(p4(), p4()), "two symmetries are named p4"),
        (lambda: GroupSet(z2(), Symmetry.catalogue("mine", 2, True)), "z2 and mine are the same"),
        (lambda: GroupSet(cyclic(5), translations(1)), "cyclic5 and z1 are the same"),
        (lambda: GroupSet(z2(), translations(3)), "z2, z3 act on lattices of different dimension"),
        (lambda: GroupSet(cyclic(5), cyclic(6)), "cyclic5, cyclic6 do not act on one"),
        (lambda: GroupSet(cyclic(5), p4()), "cyclic5, p4 do not act on one"),
        (lambda: Lattice((4, 0)), "at least one site"),
        (lambda: Lattice((4, -1)), "at least one site"),
        (lambda: Lattice((4.5,)), "positive integers"),
        (lambda: Lattice.of("ab"), "positive integers"),
        (lambda: flips(2), "axis 2"),
        (lambda: axial(3), "order 2 or 4"),
        (lambda: translations(4), "1, 2 or 3 dimensions"),
        (lambda: permutations(0), "positive number of points"),
        (lambda: cyclic(2.5), "positive number of points"),
        (lambda: GroupSet(p4()).space((4, 4), 0), "at least one channel"),
        (lambda: GroupSet(p4()).space((4, 4), 1.5), "channels is a positive integer"),
        (lambda: p4().order(), "depends on the lattice"),
    ],
)
def test_error_names_the_offender(attempt: Callable[[], object], offender: str) -> None:
    with pytest.raises(ValueError, match=offender):
        attempt()


@pytest.mark.parametrize(
    ("generators", "fibre", "offender"),
    [
        ([], None, "mine has no generators"),
        ([[0, 1, 2]], None, "generator 0 of mine permutes 3 points, expected 4"),
        ([[0, 1, 2, 3], [0, 0, 1, 2]], None, "generator 1 of mine is not a bijection"),
        ([[0, 1, 2, 4]], None, "generator 0 of mine has the index 4, .* range: sites are 0…3"),
        ([[0, 1, 2, -1]], None, "index -1, which is out of range: sites are 0…3"),
        ([[0.0, 1.0, 2.0, 3.0]], None, "generator 0 of mine does not permute integers"),
        ([np.eye(3)], None, r"generator 0 of mine has shape \(3, 3\)"),
        ([2 * np.eye(4)], None, "generator 0 of mine is not orthogonal"),
        ([np.full((4, 4), np.nan)], None, "not finite"),
        ([1j * np.eye(4)], None, "real orthogonal"),
        ([np.zeros((4, 4, 4))], None, "generator 0 of mine must be"),
        (["abcd"], None, "generator 0 of mine must be"),
        ([[0, [1], 2, 3]], None, "generator 0 of mine must be"),
        ([[1, 0, 2, 3]], [np.eye(2), np.eye(2)], "1 generators but 2 fibre maps"),
        ([[1, 0, 2, 3]], [np.ones((2, 2))], "fibre map 0 of mine is not orthogonal"),
        ([[1, 0, 2, 3]], ["x"], "fibre map 0 of mine is neither"),
        ([[1, 0, 2, 3], [0, 1, 3, 2]], [np.eye(2), np.eye(3)], "fibre map 1 of mine has shape"),
        ([[1, 2, 3, 0]], [[1, 2, 0]], "mine do not belong together: .* moves no site"),
        ([[1, 0, 2, 3]], [rotation(2 * np.pi / 5)], "mine do not belong together"),
        ([[0, 1, 2, 3], [1, 0, 2, 3]], [-np.eye(1), np.eye(1)], "do not belong together"),
        ([np.kron(np.eye(2), rotation(1.0))], None, "mine has more than max_order = 300"),
    ],
)
def test_generators_are_checked(
    generators: list[object], fibre: list[object] | None, offender: str
) -> None:
    with pytest.raises(ValueError, match=offender):
        Symmetry.from_generators("mine", (2, 2), generators, fibre=fibre, max_order=300)


def test_relation_between_products_is_checked_too() -> None:
    """Two commuting swaps whose fibre maps do not commute, each of order two."""
    swaps = [[1, 0, 2, 3], [0, 1, 3, 2]]
    mirrors = [np.diag([1.0, -1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])]
    with pytest.raises(ValueError, match="do not belong together"):
        Symmetry.from_generators("mine", 4, swaps, fibre=mirrors)


def test_fibre_of_the_wrong_group() -> None:
    group = load_group()
    groups = GroupSet(z2(), p4())
    with pytest.raises(ValueError, match=r"regular represents the group D4.*p4 is escnn's C4"):
        groups.space((4, 4), 1, fibre=group.dihedral_group(4).regular_representation)
    with pytest.raises(ValueError, match="irrep_1 represents the group C8"):
        groups.space((4, 4), 1, fibre=group.cyclic_group(8).irrep(1))
    with pytest.raises(ValueError, match="no irrep '7'; it has irrep:0"):
        groups.space((4, 4), 1, fibre="irrep:7")
    with pytest.raises(ValueError, match="got 'regulr'"):
        groups.space((4, 4), 1, fibre="regulr")
    with pytest.raises(ValueError, match="got 3"):
        groups.space((4, 4), 1, fibre=3)
    with pytest.raises(ValueError, match="s5 is defined by generators"):
        GroupSet(permutations(5)).space((5,), 1, fibre="regular")
    with pytest.raises(ValueError, match=r"cyclic\(5\) takes a representation"):
        cyclic(5, fibre=group.cyclic_group(4).irrep(1))
    skewed = group.change_basis(
        group.cyclic_group(4).irrep(1), np.array([[1.0, 1], [0, 1]]), "skew"
    )
    with pytest.raises(ValueError, match="skew is not orthogonal"):
        groups.space((4, 4), 1, fibre=skewed)
    other = GroupSet(p4m()).space((4, 4), 1).fibre
    with pytest.raises(ValueError, match="the fibre regular is not one of the ambient symmetry p4"):
        groups.space((4, 4), 1).with_fibre(other)


def test_wrong_tensors() -> None:
    space = GroupSet(p4()).space((4, 4), channels=2)
    g = space.identity()
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(batch, 8, 4, 4\)"):
        space.act(g, torch.zeros(1, 2, 4, 4))
    with pytest.raises(ValueError, match=r"got \(8, 4, 4\)"):
        space.check(np.zeros((8, 4, 4)))
    with pytest.raises(TypeError, match="numpy array or torch tensor, got list"):
        space.check([1.0])
    with pytest.raises(TypeError, match="not a group element"):
        space.act("rot90", torch.zeros(1, 8, 4, 4))  # type: ignore[arg-type]


def test_symmetry_outside_the_ambient() -> None:
    space = GroupSet(p2()).space((4, 4), channels=1)
    with pytest.raises(ValueError, match="p4 is no subgroup of p2"):
        space.generators(p4())
    with pytest.raises(ValueError, match="flips is no subgroup of p2"):
        next(space.elements(flips()))
    with pytest.raises(TypeError, match="expected a Symmetry, got 'p4'"):
        space.sample("p4", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="made of symmetries"):
        GroupSet(4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"unpack it, GroupSet\(\*list\)"):
        GroupSet([z2(), p4()])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"call it, z2\(\)"):
        GroupSet(z2, p4)  # type: ignore[arg-type]
    turn = GroupSet(p4()).space((4, 4), 1).generators(p4())[-1]
    with pytest.raises(ValueError, match="does not contain rot"):
        space.act(turn, np.zeros((1, 2, 4, 4)))
    with pytest.raises(ValueError, match="different lattices"):
        turn * GroupSet(p4()).space((5, 5), 1).identity()


def test_unknown_names_are_value_errors_with_the_nearest_one() -> None:
    groups = GroupSet(z2(), p4())
    for attempt in (groups.subgroups, groups.supergroups, groups.join, groups.member):
        with pytest.raises(ValueError, match=r"no member 'p5' in .*; did you mean 'p4'"):
            attempt("p5")
    with pytest.raises(ValueError, match=r"^no member 'zz' in GroupSet\(z2, p4\)"):
        groups.contains("p4", "zz")
    with pytest.raises(KeyError):
        groups["zz"]


def test_the_default_axis_may_be_named() -> None:
    groups = GroupSet(flips(1), flips(0))
    assert "flips(1)" in groups
    assert groups["flips(1)"] == flips(1)
    assert groups.contains("flips(1)", "flips")
    assert "flips(1)" not in GroupSet(flips(0))
    assert "flips(2)" not in groups


def test_flips_and_half_turns_live_on_rectangles() -> None:
    for symmetry in (z2(), p2(), pmm(), flips(0), flips(1)):
        assert GroupSet(symmetry).space((4, 6), 1).lattice.shape == (4, 6)


def test_a_group_set_takes_names() -> None:
    assert list(GroupSet("z2", p4(), "flips( 0 )")) == [z2(), p4(), flips(0)]
    assert list(GroupSet("s4", "cyclic(4)")) == [permutations(4), cyclic(4)]


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="no group 'p4n'; did you mean 'p4"):
        GroupSet("z2", "p4n")
    with pytest.raises(ValueError, match="did you mean 'octahedral'"):
        GroupSet("octahedra")
    with pytest.raises(ValueError, match="did you mean 'so2'"):
        GroupSet("SO(2)")
    for several in ("z2;p4", "z2 p4", "z2 + p4"):
        with pytest.raises(ValueError, match="separate names by commas, 'z2,p4'"):
            GroupSet(several)


@pytest.mark.parametrize(
    "name",
    [
        *("$\\frac$", "[/bold]", "flip.v2", "a/b", "a\\b", "two\nlines", "\x1b[2J", "\ud800", " a"),
        *("", " ", "x" * 201, "none", "free", "undecided", "final", "a|b", 3),
    ],
)
def test_a_name_that_cannot_be_shown_or_stored_is_refused_where_it_is_made(name: str) -> None:
    turn = np.rot90(np.arange(16).reshape(4, 4)).ravel()
    with pytest.raises(ValueError, match=r"a symmetry (is named|has a name)") as caught:
        Symmetry.from_generators(name, (4, 4), [turn])
    assert str(caught.value).isprintable()
    with pytest.raises(ValueError, match=r"a symmetry (is named|has a name)"):
        Symmetry(name)


@pytest.mark.parametrize("name", ["p4", "half turn", "flips(0)", "p-1", "Drehung", "回転", "a & b"])
def test_a_usual_name_is_fine(name: str) -> None:
    assert Symmetry(name).name == name
