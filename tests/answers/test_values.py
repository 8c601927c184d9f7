"""Symmetries of the values at every site, from arrays to the verdict."""

import numpy as np
import pytest

import groupella
from groupella.data import load
from groupella.groups import GroupSet, Symmetry, generated, internal, permutations, trivial, z2

QUICK = {"epochs": 15, "width": 16, "layers": False}


def colours(rng, n=300):
    """Three channels of noise about 0, 1 and 2 in random order; which is where."""
    order = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)
    return rng.normal(size=(n, 3, 4, 4)) * 0.5 + order[:, :, None, None], order


def test_colours_whose_order_matters_are_not_called_exchangeable():
    x, order = colours(np.random.default_rng(0))
    swaps = internal("colours", (4, 4), [[1, 2, 0], [1, 0, 2]])
    answer = groupella.select(x, order.argmax(1), GroupSet(trivial(), swaps), **QUICK)
    assert answer.verdict != "colours"


def test_a_network_that_obeys_colours_takes_raw_images_in_any_order():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 3, 4, 4)) + 5
    y = x.mean((2, 3)).max(1) > 5.2
    shifts = generated(z2(), (4, 4))
    swaps = internal("colours", (4, 4), [[1, 2, 0], [1, 0, 2]])
    answer = groupella.select(x, y, GroupSet(trivial(), swaps * shifts), **QUICK)
    assert answer.verdict == "colours×z2"
    moved = np.roll(x[:, [1, 2, 0]], 1, axis=3)
    np.testing.assert_allclose(answer.predict_proba(moved), answer.predict_proba(x), atol=1e-5)


@pytest.mark.parametrize(("target", "verdict"), [(np.abs, "s4×sign"), (np.tanh, "s4")])
def test_a_change_of_sign_is_told_from_an_odd_function(target, verdict):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(400, 4)) + 0.3
    y = target(x.sum(1)) + 0.05 * rng.normal(size=400)
    sign = internal("sign", 4, [[[-1.0]]])
    groups = GroupSet(trivial(), permutations(4), sign, permutations(4) * sign)
    answer = groupella.select(x, y, groups, epochs=40, width=16)
    assert answer.verdict == verdict
    if verdict == "s4×sign":
        np.testing.assert_allclose(answer.predict(-x[:, ::-1]), answer.predict(x), atol=1e-4)


def test_what_would_do_nothing_is_refused_before_any_training():
    x, order = colours(np.random.default_rng(0), 40)
    swaps = internal("colours", (4, 4), [[1, 2, 0], [1, 0, 2]])
    with pytest.raises(ValueError, match="colours would do nothing to samples with 2 numbers"):
        groupella.select(x[:, :2], order.argmax(1), swaps)
    with pytest.raises(ValueError, match="colours acts on values"):
        load("digits", groupella.data.Moved(swaps))


def test_matrices_on_sites_are_refused_and_found_as_values_at_one_site():
    rng = np.random.default_rng(3)
    mirror = np.eye(4) - 2 * np.diag([1, 0, 0, 0])
    turned = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    x = rng.normal(size=(400, 4))
    for matrix in (mirror, turned @ mirror @ turned.T):
        with pytest.raises(ValueError, match=r"samples of shape \(4, 1\), and .*internal\('m'"):
            groupella.select(x, x[:, 0] > 0, Symmetry.from_generators("m", 4, [matrix]))
        inside = np.linalg.eigh(matrix)[1]  # of which the first changes its sign
        z = x @ inside
        y = np.abs(z[:, 0]) + z[:, 1] > 0.8
        answer = groupella.select(x[:, :, None], y, internal("m", 1, [matrix]), **QUICK)
        assert answer.verdict == "m"
