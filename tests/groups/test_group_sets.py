"""Group sets: the ambient group, restriction, inclusion and what members generate together."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from groupella.groups import (
    GroupSet,
    Lattice,
    Symmetry,
    axial,
    c2,
    c4,
    cm,
    cmm,
    cyclic,
    d2,
    d4,
    flips,
    line_reflections,
    mirror,
    octahedral,
    octahedral_point,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    translations,
    trivial,
    z2,
)

WALLPAPER = [z2(), p2(), p4(), p4m(), flips(1), flips(0), pmm(), cm(), cm(anti=True), cmm()]


@pytest.mark.parametrize(
    ("members", "ambient"),
    [
        ((z2(), p4(), flips(axis=0)), "p4m"),
        ((z2(),), "z2"),
        ((z2(), flips(0)), "flips(0)"),
        ((flips(0), flips(1)), "pmm"),
        ((p2(), flips(1)), "pmm"),
        ((cm(), cm(anti=True)), "cmm"),
        ((cm(), flips()), "p4m"),
        ((z2(), c4()), "p4"),
        ((c2(), mirror(0)), "d2"),
        ((c4(), mirror(1), trivial()), "d4"),
        ((trivial(),), "trivial"),
        ((trivial(), z2()), "z2"),
        ((translations(1), mirror(0, dim=1)), "line_reflections"),
        ((axial(4, 0), axial(4, 1)), "octahedral"),
        ((axial(4, 0, translations=False), octahedral_point()), "o"),
        ((octahedral(), flips(0, dim=3)), "octahedral(mirrors)"),
    ],
    ids=str,
)
def test_ambient_is_the_smallest_symmetry_around(
    members: tuple[Symmetry, ...], ambient: str
) -> None:
    groups = GroupSet(*members)
    assert str(groups.ambient) == ambient
    assert groups.names == tuple(m.name for m in members)
    assert list(groups) == list(members)
    assert len(groups) == len(members)


def test_point_group_that_escnn_lacks_finds_refuge_in_the_cube() -> None:
    """The tetrahedral rotations: half turns about the axes and the cyclic exchange of axes."""
    exchange = ((0, 0, 1), (1, 0, 0), (0, 1, 0))
    tetrahedral = Symmetry.catalogue("t", 3, True, (exchange, ((1, 0, 0), (0, -1, 0), (0, 0, -1))))
    assert len(tetrahedral.point) == 12
    groups = GroupSet(tetrahedral)
    assert str(groups.ambient) == "octahedral"
    space = groups.space((3, 3, 3), channels=1)
    assert space.fibre_size == 24
    assert len(list(space.elements(tetrahedral))) == 12 * 27


def test_three_flips_of_voxels_have_a_fibre_of_eight() -> None:
    groups = GroupSet(*(flips(axis, dim=3) for axis in range(3)))
    space = groups.space((4, 3, 2), channels=1)
    assert space.fibre_size == 8
    assert space.fibre.representation.size == 8
    x = np.random.default_rng(0).standard_normal((1, *space.shape))
    drawn = space.sample(groups.ambient, 18, seed=1)
    for g, h in zip(drawn[:9], drawn[9:], strict=True):
        assert np.array_equal(space.act(g, space.act(h, x)), space.act(g * h, x))


def test_inclusion_of_catalogue_symmetries_is_that_of_their_elements() -> None:
    symmetries = [*WALLPAPER, c2(), c4(), d4(), d2(), mirror(0), mirror(1)]
    groups = GroupSet(*symmetries)
    space = groups.space((4, 4), channels=1)
    elements = {s.name: set(space.elements(s)) for s in symmetries}
    for a, b in itertools.product(groups.names, repeat=2):
        assert groups.contains(a, b) == (elements[b] <= elements[a]), (a, b)


def test_order_helpers() -> None:
    groups = GroupSet(z2(), p4(), flips(axis=0), p4m(), trivial())
    assert groups.strictest == ("p4m",)
    assert groups.maximal(("z2", "p4", "flips(0)")) == ("p4", "flips(0)")
    assert groups.minimal() == ("trivial",)
    assert groups.minimal(("p4", "flips(0)", "p4m")) == ("p4", "flips(0)")
    assert groups.subgroups("p4") == ("z2", "p4", "trivial")
    assert groups.supergroups("p4") == ("p4", "p4m")
    assert groups["p4"] == p4()
    assert "p4" in groups
    assert p4() in groups
    assert "p6" not in groups
    with pytest.raises(KeyError, match="p6"):
        groups["p6"]


def test_intersections_close_the_set() -> None:
    assert list(GroupSet(z2(), p4(), flips()).intersections()) == ["p4&flips"]
    joined = GroupSet(z2(), p4(), flips()).intersections()["p4&flips"]
    assert joined.key == p4m().key
    assert GroupSet(z2(), p4(), flips(), p4m()).intersections() == {}
    assert GroupSet(z2(), p4()).intersections() == {}
    three = GroupSet(flips(0), flips(1), cm())
    keys = {s.key for s in three.intersections().values()}
    assert keys == {pmm().key, p4m().key}


def test_members_act_by_restriction() -> None:
    groups = GroupSet(z2(), p4(), flips(axis=0))
    space = groups.space((4, 4), channels=1)
    assert space.fibre_size == 8
    ambient = set(space.elements(groups.ambient))
    for member in groups:
        assert set(space.elements(member)) <= ambient
        assert set(space.generators(member)) <= ambient


def test_generator_defined_members_join_into_their_generated_group() -> None:
    swap = Symmetry.from_generators("swap", (4,), [[1, 0, 2, 3]])
    groups = GroupSet(cyclic(4), swap)
    assert groups.ambient.order() == 24
    assert groups.space((4,), channels=2).shape == (2, 4)
    assert not groups.contains("cyclic4", "swap")
    assert groups.intersections() == {"cyclic4&swap": groups.join("cyclic4", "swap")}
    with_all = GroupSet(permutations(4), cyclic(4), swap)
    assert with_all.ambient == permutations(4)
    assert with_all.contains("s4", "swap")
    assert with_all.intersections() == {}


def test_catalogue_and_generator_members_mix_on_one_lattice() -> None:
    swap = Symmetry.from_generators("swap", (4, 4), [[1, 0, *range(2, 16)]])
    shift = Symmetry.from_generators(
        "right", (4, 4), [np.roll(np.arange(16).reshape(4, 4), -1, 1).ravel()]
    )
    groups = GroupSet(z2(), shift, p4(), swap)
    assert groups.contains("z2", "right")
    assert groups.contains("p4", "right")
    assert not groups.contains("right", "z2")
    assert not groups.contains("p4", "swap")
    space = groups.space((4, 4), channels=3)
    assert space.fibre_size == 1
    x = np.random.default_rng(0).standard_normal((2, *space.shape))
    plain = GroupSet(p4()).space((4, 4), channels=3, fibre="trivial")
    for g, h in zip(space.generators(p4()), plain.generators(p4()), strict=True):
        assert np.array_equal(space.act(g, x), plain.act(h, x))
    (step,) = space.generators(shift)
    assert np.array_equal(space.act(step, x), np.roll(x, 1, axis=3))
    (exchange,) = space.generators(swap)
    product = exchange * space.generators(p4())[0]
    twice = space.act(exchange, space.act(space.generators(p4())[0], x))
    assert np.array_equal(space.act(product, x), twice)
    assert len(list(space.elements(z2()))) == 16


def test_ambient_of_generators_is_generated_even_where_the_catalogue_has_it() -> None:
    step = np.roll(np.arange(16).reshape(4, 4)[:, ::-1], 1, axis=0).argsort(axis=None)
    glide = Symmetry.from_generators("glide", (4, 4), [step])
    groups = GroupSet(flips(), glide)
    assert groups.contains("flips", "glide")
    assert not groups.ambient.is_catalogue
    assert groups.ambient.order() == flips().order((4, 4))
    space = groups.space((4, 4), channels=1)
    assert space.fibre_size == 1
    assert set(space.elements(glide)) <= set(space.elements(flips()))


def test_symmetric_group_of_a_hundred_points_is_never_enumerated() -> None:
    groups = GroupSet(permutations(100), cyclic(100))
    assert groups.ambient == permutations(100)
    space = groups.space((100,), channels=1)
    x = np.random.default_rng(0).standard_normal((1, 1, 100))
    g, h = space.sample(permutations(100), 2, seed=0)
    assert np.array_equal(space.act(g, space.act(h, x)), space.act(g * h, x))
    assert len(space.generators(permutations(100))) == 2
    with pytest.raises(ValueError, match=r"s100 has more than max_order"):
        Symmetry.from_generators("s100", 100, [g.sites, h.sites], max_order=50).order()


def test_spaces_without_sites_keep_the_fibre() -> None:
    space = GroupSet(z2(), p4()).space((4, 4), channels=3)
    vector = space.with_lattice(())
    assert vector.shape == (12,)
    x = np.random.default_rng(0).standard_normal((2, 12))
    for g in space.elements(p4()):
        expected = np.einsum("ij,bcj->bci", space.fibre_matrix(g), x.reshape(2, 3, 4))
        assert np.array_equal(vector.act(g, x), expected.reshape(2, 12))
    assert len(list(vector.elements(p4()))) == 4
    assert len(list(vector.elements(trivial()))) == 1


def test_lattices() -> None:
    assert Lattice.of(5) == Lattice((5,)) == Lattice.of([5]) == Lattice.of(Lattice((5,)))
    assert Lattice(()).size == 1
    assert Lattice((2, 3)).size == 6
    assert Lattice((2, 3)).dim == 2
    assert repr(Lattice((2, 3))) == "Lattice((2, 3))"
    assert line_reflections().order((5,)) == 10
