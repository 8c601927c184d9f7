"""What symmetries do to the numbers at each site of a sample."""

import numpy as np
import pytest
import torch

from groupella.groups import (
    GroupSet,
    Symmetry,
    feature_fibre,
    generated,
    internal,
    on_values,
    permutations,
    trivial,
    value_space,
    z2,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


SIGN = internal("sign", 4, [[[-1.0]]])
COLOURS = internal("colours", (4, 4), [[1, 2, 0], [1, 0, 2]])
SHIFTS = generated(z2(), (4, 4))


def moved(symmetry, x):
    """x under every generator of the symmetry."""
    space = value_space(GroupSet(symmetry), x.shape[2:], x.shape[1])
    return [space.act(g, torch.tensor(x)).numpy() for g in space.generators(symmetry)]


def test_a_sign_turns_samples_over(rng):
    groups = on_values(GroupSet(trivial(), permutations(4) * SIGN, SIGN), (4,), 2)
    x = rng.normal(size=(3, 2, 4))
    np.testing.assert_array_equal(moved(groups["sign"], x)[0], -x)
    np.testing.assert_array_equal(moved(groups["s4×sign"], x)[-1], -x)
    assert groups.contains("s4×sign", "sign")


def test_colours_are_exchanged_and_shifts_leave_them(rng):
    groups = on_values(GroupSet(COLOURS * SHIFTS, COLOURS, SHIFTS), (4, 4), 6)
    x = rng.normal(size=(3, 6, 4, 4))
    np.testing.assert_array_equal(moved(groups["colours"], x)[0], x[:, [2, 0, 1, 5, 3, 4]])
    np.testing.assert_array_equal(moved(groups["z2"], x)[0], np.roll(x, 1, 2))


def test_a_symmetry_that_would_do_nothing_is_refused():
    with pytest.raises(ValueError, match="colours would do nothing to samples with 2 numbers"):
        on_values(GroupSet(COLOURS), (4, 4), 2)


def test_symmetries_that_share_a_fibre_act_on_the_same_colours():
    cycle = internal("cycle", (4, 4), [[1, 2, 0]], fibre="colours")
    groups = on_values(GroupSet(COLOURS, cycle), (4, 4), 3)
    assert groups.contains("colours", "cycle")
    with pytest.raises(ValueError, match="one fibre name"):
        on_values(GroupSet(COLOURS, internal("cycle", (4, 4), [[1, 2, 0]])), (4, 4), 3)


def test_scalars_are_moved_by_a_group_that_also_turns_vectors():
    turn = Symmetry.from_generators("turn", 4, [[1, 2, 3, 0]], fibre=[[[0, -1], [1, 0]]])
    groups = GroupSet(turn)
    assert on_values(groups, (4,), 1) is groups
    assert value_space(on_values(groups, (4,), 2), (4,), 2).fibre_size == 2


@pytest.mark.parametrize("sides", [4, 8])
def test_features_are_permuted_and_contain_the_values(sides, rng):
    angle = 2 * np.pi / sides
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    groups = on_values(GroupSet(internal("turn", 3, [turn])), (3,), 2)
    (member,) = groups
    fibre = groups.space(3, 1, feature_fibre(member))
    (g,) = fibre.generators(member)
    assert fibre.fibre_size == sides
    assert fibre.fibre_permutes
    power = np.linalg.matrix_power(fibre.fibre_matrix(g), sides)
    np.testing.assert_array_equal(power, np.eye(sides))


def test_what_acts_already_stays():
    groups = on_values(GroupSet(SIGN), (4,), 1)
    assert on_values(groups, (4,), 1) is groups
