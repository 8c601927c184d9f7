"""Turns of images by any angle as groups: names, inclusion, joins, fibres."""

import json

import numpy as np
import pytest

from groupella.groups import (
    GroupSet,
    Symmetry,
    c2,
    c4,
    cyclic,
    image_turns,
    is_inside,
    named_group,
    p4,
    p4m,
    z2,
)


def test_they_are_known_by_name():
    for name, turns in (("c8", 8), ("c16", 16), ("so2", 0), ("p8", 8), ("p16", 16), ("se2", 0)):
        symmetry = named_group(name)
        assert (symmetry.name, symmetry.turns) == (name, turns)
        assert symmetry.translations == (name[0] in "ps" and name != "so2")
        assert symmetry.is_approximate
        assert Symmetry.from_dict(json.loads(json.dumps(symmetry.as_dict()))) == symmetry
    assert not p4().is_approximate


def test_inclusion_is_divisibility_and_all_angles_contain_the_rest():
    inside = [("c4", "c8"), ("c2", "c8"), ("c8", "c16"), ("c16", "so2"), ("so2", "se2")]
    inside += [("p4", "p8"), ("z2", "se2"), ("c8", "p8"), ("p16", "se2")]
    outside = [("c8", "c4"), ("so2", "c16"), ("p4", "so2"), ("c8", "p4m"), ("mirror", "so2")]
    for smaller, larger in inside:
        assert is_inside(named_group(smaller), named_group(larger)), (smaller, larger)
        assert not is_inside(named_group(larger), named_group(smaller))
    for smaller, larger in outside:
        assert not is_inside(named_group(smaller), named_group(larger)), (smaller, larger)
    assert not is_inside(image_turns(8), image_turns(12))


def test_joins_have_the_turns_of_both():
    groups = GroupSet(p4(), image_turns(8), image_turns(12))
    assert groups.join("c8", "c12").turns == 24
    join = groups.join("p4", "c8")
    assert (join.turns, join.translations) == (8, True)
    assert groups.ambient.turns == 24
    assert GroupSet(z2(), image_turns(0)).ambient.name == "se2"


def test_the_regular_fibre_of_turns_is_permuted_by_quarter_turns():
    groups = GroupSet(c2(), c4(), image_turns(8))
    space = groups.space((6, 6), 1)
    assert (space.fibre_size, space.fibre.turns, space.fibre_permutes) == (8, 8, True)
    x = np.random.default_rng(0).standard_normal((2, 8, 6, 6))
    quarter = space.generators(c4())[0]
    expected = np.roll(np.rot90(x, axes=(2, 3)), 2, axis=1)
    np.testing.assert_array_equal(space.act(quarter, x), expected)


def test_bad_turns_are_refused():
    for n in (3, 4, -8, 2.0, True):
        with pytest.raises(ValueError, match="360°/n"):
            image_turns(n)
    with pytest.raises(ValueError, match="need images and quarter turns"):
        Symmetry.catalogue("wrong", 2, True, (), turns=8)
    with pytest.raises(ValueError, match="catalogue, not with cyclic8"):
        GroupSet(
            image_turns(8),
            Symmetry.from_generators("cyclic8", (2, 4), [np.roll(np.arange(8), 1)]),
        )
    assert not is_inside(image_turns(8), cyclic(8))
    assert p4m().turns == 1
