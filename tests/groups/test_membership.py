"""Membership in generated groups of any order, against orders and elements that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from groupella.groups import GroupSet, Symmetry, is_inside, permutations
from groupella.groups._chain import Chain

Permutation = NDArray[np.intp]


def cycle(n: int) -> Permutation:
    return np.roll(np.arange(n), -1)


def swap(n: int, i: int = 0, j: int = 1) -> Permutation:
    p = np.arange(n)
    p[[i, j]] = p[[j, i]]
    return p


def wreath(n: int) -> list[Permutation]:
    """S_n ≀ C₂ on the halves {0 … n−1} and {n … 2n−1}."""
    rest = np.arange(n, 2 * n)
    return [
        np.concatenate([cycle(n), rest]),
        np.concatenate([swap(n), rest]),
        np.roll(np.arange(2 * n), n),
    ]


def alternating(n: int) -> list[Permutation]:
    """A 3-cycle and a long cycle of odd length."""
    three = np.arange(n)
    three[:3] = [1, 2, 0]
    long = cycle(n) if n % 2 else np.concatenate([[0], 1 + cycle(n - 1)])
    return [three, long]


def mathieu_12() -> list[Permutation]:
    """M₁₂ of order 95,040: sharply 5-transitive, so orbits on pairs say nothing."""
    shift = np.concatenate([cycle(11), [11]])
    other = np.arange(12)
    for a, b, c, d in ((2, 6, 10, 7), (3, 9, 4, 5)):
        other[[a, b, c, d]] = [b, c, d, a]
    exchange = np.arange(12)
    for a, b in ((0, 11), (1, 10), (2, 5), (3, 7), (4, 8), (6, 9)):
        exchange[[a, b]] = [b, a]
    return [shift, other, exchange]


@pytest.mark.parametrize(
    ("generators", "n", "order"),
    [
        ([cycle(30), swap(30)], 30, math.factorial(30)),
        ([cycle(8), swap(8)], 8, math.factorial(8)),
        ([cycle(1500), swap(1500)], 1500, math.factorial(1500)),
        (alternating(11), 11, math.factorial(11) // 2),
        (alternating(24), 24, math.factorial(24) // 2),
        (alternating(701), 701, math.factorial(701) // 2),
        (wreath(9), 18, 2 * math.factorial(9) ** 2),
        (mathieu_12(), 12, 95_040),
        ([swap(40, 2 * k, 2 * k + 1) for k in range(20)], 40, 2**20),
        ([cycle(60)], 60, 60),
        ([], 4, 1),
    ],
    ids=lambda v: str(v) if isinstance(v, int) and v < 10**6 else "",
)
def test_orders(generators: list[Permutation], n: int, order: int) -> None:
    assert Chain(generators, n).order == order


def test_membership_is_that_of_the_elements() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        n = int(rng.integers(2, 7))
        generators = [rng.permutation(n) for _ in range(rng.integers(1, 3))]
        found = {tuple(range(n))}
        frontier = list(found)
        while frontier:
            products = {tuple(g[list(a)].tolist()) for a in frontier for g in generators} - found
            found |= products
            frontier = list(products)
        chain = Chain(generators, n)
        assert chain.order == len(found)
        for _ in range(20):
            g = rng.permutation(n)
            assert (g in chain) == (tuple(g.tolist()) in found)


def test_sympy_agrees() -> None:
    """On transitive groups with and without blocks, and on intransitive ones."""
    sympy = pytest.importorskip("sympy.combinatorics", reason="sympy comes with torch")
    rng = np.random.default_rng(5)
    for trial in range(12):
        n = 2 * int(rng.integers(4, 12))
        half = np.arange(n)
        half[: n // 2] = rng.permutation(n // 2)
        three = np.arange(n)
        three[[0, 2, 5]] = [2, 5, 0]
        generators = [
            [rng.permutation(n), rng.permutation(n)],
            [half, np.roll(np.arange(n), n // 2)],
            [three, np.roll(three, 1)[np.roll(np.arange(n), -1)]],
        ][trial % 3]
        truth = sympy.PermutationGroup([sympy.Permutation(g.tolist()) for g in generators])
        chain = Chain(generators, n)
        assert chain.order == truth.order()
        for _ in range(6):
            g = np.arange(n)
            for _ in range(9):
                g = g[generators[rng.integers(len(generators))]]
            for h in (g, g[swap(n, 1, 4)]):
                assert (h in chain) == truth.contains(sympy.Permutation(h.tolist()))


@pytest.mark.parametrize("n", [30, 31, 900])
def test_parity_decides_in_the_alternating_group(n: int) -> None:
    chain = Chain(alternating(n), n)
    rng = np.random.default_rng(1)
    for _ in range(5):
        g = rng.permutation(n)
        even = np.linalg.slogdet(np.eye(n)[:, g])[0] > 0
        assert (g in chain) == even


def test_a_wreath_product_on_502_points_keeps_its_halves() -> None:
    """The 502-cycle of alternating halves is not in it; the one that exchanges halves is."""
    pairs = Symmetry.from_generators("pairs", 502, wreath(251))
    long = Symmetry.from_generators("long", 502, [cycle(502)])
    assert not is_inside(long, pairs)
    half = np.concatenate([np.arange(251, 502), cycle(251)])
    assert is_inside(Symmetry.from_generators("half", 502, [half]), pairs)
    groups = GroupSet(pairs, long)
    assert not groups.contains("pairs", "long")
    assert groups.maximal() == ("pairs", "long")


def test_the_alternating_group_is_not_the_symmetric_one() -> None:
    a12 = Symmetry.from_generators("a12", 12, alternating(12))
    groups = GroupSet(permutations(12), a12)
    assert groups.contains("s12", "a12")
    assert not groups.contains("a12", "s12")


@pytest.mark.parametrize("n", [3, 5])
def test_matrix_groups(n: int) -> None:
    """Signed permutations in a turned basis, 2ⁿ · n! elements: by a chain, then by all elements."""
    turn, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((n, n)))
    flip = np.diag([-1.0] + [1.0] * (n - 1))
    maps = [np.eye(n)[:, cycle(n)], np.eye(n)[:, swap(n)], flip]
    signed = Symmetry.from_generators("signed", n, [turn @ m @ turn.T for m in maps])
    inside = np.diag([-1.0, 1.0, -1.0] + [1.0] * (n - 3))[:, cycle(n)]
    axis = np.linalg.qr(np.random.default_rng(1).standard_normal((n, n)))[0][0]
    outside = np.eye(n) - 2 * np.outer(axis, axis)
    for matrix, expected in ((inside, True), (outside, False)):
        one = Symmetry.from_generators("one", n, [turn @ matrix @ turn.T])
        assert is_inside(one, signed) == expected


def two_cycles(length: int) -> list[Permutation]:
    here, there = np.arange(length), np.arange(length, 2 * length)
    return [
        np.concatenate([cycle(length), there]),
        np.concatenate([here, length + cycle(length)]),
    ]


def test_fibre_maps_that_do_not_commute_as_the_sites_do_are_refused() -> None:
    """Two 54-cycles commute; two signed permutations of orders that divide 54 need not."""
    three = np.eye(3)[:, [1, 2, 0]]
    two = np.eye(3)[:, [1, 0, 2]]
    with pytest.raises(ValueError, match="do not belong together"):
        Symmetry.from_generators("bad", 108, two_cycles(54), fibre=[three, two])
    good = Symmetry.from_generators("good", 108, two_cycles(54), fibre=[three, three @ three])
    assert good.fibre_size == 3


@pytest.mark.parametrize("n", [5, 12, 40])
def test_the_sign_of_a_permutation_is_a_fibre_and_its_opposite_is_none(n: int) -> None:
    sign = [np.eye(1) * (-1.0) ** (n - 1), -np.eye(1)]
    Symmetry.from_generators("sign", n, [cycle(n), swap(n)], fibre=sign)
    with pytest.raises(ValueError, match="do not belong together"):
        Symmetry.from_generators("wrong", n, [cycle(n), swap(n)], fibre=[-sign[0], sign[1]])


def test_rotations_as_the_fibre_of_a_cycle_must_have_its_order() -> None:
    def rotation(order: int) -> NDArray[np.float64]:
        c, s = np.cos(2 * np.pi / order), np.sin(2 * np.pi / order)
        return np.array([[c, -s], [s, c]])

    Symmetry.from_generators("turns", 12, [cycle(12)], fibre=[rotation(6)])
    with pytest.raises(ValueError, match="do not belong together"):
        Symmetry.from_generators("turns", 12, [cycle(12)], fibre=[rotation(24)])
