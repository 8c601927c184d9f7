"""Increments: what each symmetry adds, against dense projectors and the groups' own joins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg

from groupella.bases import Basis, KernelBasis, equivariant_basis, increments, kernel_basis
from groupella.groups import (
    GroupSet,
    Symmetry,
    cm,
    cmm,
    flips,
    octahedral,
    p2,
    p4,
    p4m,
    pmm,
    translations,
    trivial,
    z2,
)


def kernels(groups: GroupSet, size: int = 3, fibre: object = None) -> dict[str, KernelBasis]:
    space = groups.space((6,) * (groups.ambient.dim or 2), 1, fibre)
    return {member.name: kernel_basis(space, space, member, size) for member in groups}


def maps(groups: GroupSet, shape: tuple[int, ...], fibre: object = None) -> dict[str, Basis]:
    space = groups.space(shape, 1, fibre)
    return {member.name: equivariant_basis(space, space, member) for member in groups}


def projector(rows: np.ndarray) -> np.ndarray:
    """Onto the span of rows that need not be independent."""
    if not len(rows):
        return np.zeros((rows.shape[1], rows.shape[1]))
    span = scipy.linalg.orth(rows.T)
    return span @ span.T


def flat(basis: Basis) -> np.ndarray:
    return basis.tensor.reshape(basis.dim, basis.size)


def assert_exact(bases: dict[str, Basis]) -> None:
    """Parts inside a member span it; each part is orthogonal to every smaller subspace."""
    found = increments(bases)
    for name, basis in found.bases.items():
        gram = flat(basis) @ flat(basis).T
        np.testing.assert_allclose(gram, np.eye(basis.dim), rtol=0, atol=1e-12)
        assert type(basis) is type(next(iter(bases.values())))
        for other in found.inside(name) if name in found.members else ():
            if other != name:
                defect = np.abs(flat(found[other]) @ flat(basis).T).max()
                assert defect <= 1e-12, (name, other)
    for member, basis in bases.items():
        parts = [flat(found[part]) for part in found.inside(member)]
        stacked = np.concatenate(parts) if parts else np.zeros((0, basis.size))
        whole = projector(flat(basis))
        np.testing.assert_allclose(projector(stacked), whole, rtol=0, atol=1e-11)
    overlapping = {
        frozenset((a, b))
        for a, b in itertools.combinations(found.names, 2)
        if np.abs(flat(found[a]) @ flat(found[b]).T).max() > 1e-9
    }
    assert overlapping == {frozenset(pair) for pair in found.overlapping}


def test_the_common_part_of_p4_and_flips_is_p4m() -> None:
    groups = GroupSet(z2(), p4(), flips(0))
    bases = kernels(groups)
    found = increments(bases)
    assert found.names == ("z2", "p4", "flips(0)", "p4&flips(0)")
    space = groups.space((6, 6), 1)
    exact = kernel_basis(space, space, p4m(), 3)
    np.testing.assert_allclose(
        projector(flat(found["p4&flips(0)"])), projector(flat(exact)), rtol=0, atol=1e-12
    )
    assert found["p4"].dim == bases["p4"].dim - exact.dim
    assert found.inside("p4") == ("p4", "p4&flips(0)")
    assert set(found.inside("z2")) == set(found.names)
    assert found.overlapping == ()
    assert_exact(bases)


NESTED = [
    GroupSet(z2(), p4(), p4m()),
    GroupSet(z2(), p4(), flips(0)),
    GroupSet(z2(), flips(0), flips(1)),
    GroupSet(z2(), p2(), flips(0), flips(1)),
    GroupSet(z2(), flips(0), flips(1), p4()),
    GroupSet(z2(), p2(), p4(), pmm(), cmm(), p4m()),
    GroupSet(z2(), pmm(), cm(), p4()),
    GroupSet(flips(0), p2()),
    GroupSet(p4m()),
]


@pytest.mark.parametrize("groups", NESTED, ids=str)
@pytest.mark.parametrize("fibre", [None, "trivial", "irrep:1,1"])
def test_commuting_families_become_orthogonal(groups: GroupSet, fibre: object) -> None:
    if len(groups.ambient.point) != 8 and fibre == "irrep:1,1":
        groups = GroupSet(*groups, p4m())
    bases = kernels(groups, fibre=fibre)
    assert increments(bases).overlapping == ()
    assert_exact(bases)


@pytest.mark.parametrize("groups", NESTED[:4], ids=str)
def test_dense_maps(groups: GroupSet) -> None:
    assert_exact(maps(groups, (3, 3), "trivial"))
    assert_exact(maps(GroupSet(trivial(), *groups), (3, 3), "trivial"))


OVERLAPPING = [
    GroupSet(z2(), flips(0), cm()),
    GroupSet(flips(0), cm()),
    GroupSet(z2(), flips(0), flips(1), cm(), cm(anti=True)),
    GroupSet(z2(), p4(), flips(0), cm()),
]


@pytest.mark.parametrize("groups", OVERLAPPING, ids=str)
def test_non_commuting_members_are_reported_and_still_span(groups: GroupSet) -> None:
    bases = kernels(groups)
    found = increments(bases)
    assert ("flips(0)", "cm") in found.overlapping
    assert_exact(bases)


def test_sums_of_several_smaller_ones_that_overlap() -> None:
    """z2 contains flips(0) and cm, whose increments overlap: it loses their sum, once."""
    bases = kernels(GroupSet(z2(), flips(0), cm()))
    found = increments(bases)
    total = np.concatenate([flat(bases["flips(0)"]), flat(bases["cm"])])
    rank = np.linalg.matrix_rank(total)
    assert found["z2"].dim == bases["z2"].dim - rank
    np.testing.assert_allclose(flat(found["z2"]) @ total.T, 0, atol=1e-12)


def test_bases_without_orbits() -> None:
    """Dense rows (Reynolds, null space) give the same increments as orbits."""
    groups = GroupSet(z2(), p4(), flips(0))
    space = groups.space((6, 6), 1, "irrep:1,1")
    sparse = {m.name: kernel_basis(space, space, m, 3) for m in groups}
    for method in ("reynolds", "nullspace"):
        dense = {m.name: kernel_basis(space, space, m, 3, method) for m in groups}
        assert_exact(dense)
        mixed = {"z2": sparse["z2"], "p4": dense["p4"], "flips(0)": sparse["flips(0)"]}
        assert_exact(mixed)
        first, second = increments(sparse), increments(mixed)
        assert first.names == second.names
        for name in first.names:
            np.testing.assert_allclose(
                projector(flat(first[name])), projector(flat(second[name])), rtol=0, atol=1e-11
            )


def test_voxels() -> None:
    groups = GroupSet(translations(3), octahedral())
    bases = kernels(groups, fibre="trivial")
    found = increments(bases)
    assert {name: basis.dim for name, basis in found.bases.items()} == {"z3": 23, "octahedral": 4}
    assert_exact(bases)


def test_equal_subspaces_count_once_under_the_larger_group() -> None:
    """Scalar 3×3 kernels cannot tell p4 from p4m: the increment of p4 is empty."""
    bases = kernels(GroupSet(z2(), p4(), p4m()), fibre="trivial")
    found = increments(bases)
    assert found.names == ("z2", "p4m")
    assert found.inside("p4") == found.inside("p4m") == ("p4m",)
    assert_exact(bases)


def test_a_zero_subspace_is_dropped() -> None:
    rows = np.eye(3)[:2]
    found = increments({"some": Basis((3, 1), rows), "none": Basis((3, 1), np.zeros((0, 3)))})
    assert found.names == ("some",)
    assert found.inside("none") == ()


def test_three_incomparable_planes() -> None:
    """Coordinate planes of R³ meet in the axes, named after the pairs; nothing else is left."""
    eye = np.eye(3)
    bases = {
        "xy": Basis((3, 1), eye[[0, 1]]),
        "yz": Basis((3, 1), eye[[1, 2]]),
        "xz": Basis((3, 1), eye[[0, 2]]),
    }
    found = increments(bases)
    assert set(found.names) == {"xy&yz", "yz&xz", "xy&xz"}
    assert set(found.inside("xy")) == {"xy&yz", "xy&xz"}
    assert_exact(bases)


def test_large_orbit_bases_stay_sparse() -> None:
    """Regular fields of p4m on 8×8: 262,144 entries a map; parts are blocks, not dense rows."""
    groups = GroupSet(z2(), p4(), flips(0))
    found = increments(maps(groups, (8, 8)))
    assert sum(basis.dim for basis in found.bases.values()) == 4096
    assert found["p4&flips(0)"].dim == 512
    assert found["z2"].matrix.nnz < 20 * 262_144
    sample = found["p4"].expand(np.random.default_rng(0).standard_normal(found["p4"].dim))
    assert np.abs(found["z2"].coefficients(sample)).max() <= 1e-12


def test_bad_input() -> None:
    eye = np.eye(3)
    with pytest.raises(ValueError, match="at least one basis"):
        increments({})
    with pytest.raises(ValueError, match="one shape"):
        increments({"a": Basis((3, 1), eye), "b": Basis((1, 3), eye)})
    with pytest.raises(ValueError, match=r"rows of length 3, got an array of shape \(2, 4\)"):
        Basis((3, 1), np.zeros((2, 4)))
    found = increments({"a": Basis((3, 1), eye)})
    with pytest.raises(KeyError, match="no member 'b'; there are a"):
        found.inside("b")


def test_symmetries_of_one_set_agree_with_the_groups_own_joins() -> None:
    groups = GroupSet(z2(), p4(), flips(0), cm())
    space = groups.space((6, 6), 1)
    found = increments(kernels(groups))
    for name, join in groups.intersections().items():
        if name in found.names:
            exact = kernel_basis(space, space, join, 3)
            parts = np.concatenate([flat(found[part]) for part in found.inside(name)])
            np.testing.assert_allclose(projector(parts), projector(flat(exact)), rtol=0, atol=1e-11)


def test_members_given_by_generators() -> None:
    shift = Symmetry.from_generators("shift", (6,), [np.roll(np.arange(6), -1)])
    turn = Symmetry.from_generators("turn", (6,), [np.arange(6)[::-1].copy()])
    bases = maps(GroupSet(shift, turn), (6,))
    found = increments(bases)
    assert {n: b.dim for n, b in found.bases.items()} == {"shift": 2, "turn": 14, "shift&turn": 4}
    assert_exact(bases)


DEPENDENT = GroupSet(flips(), flips(0), cm(), cm(anti=True), p4(), z2())


def test_linearly_dependent_increments_are_reported() -> None:
    """Their rank by a dense SVD; commuting families have full rank."""
    found = increments(kernels(DEPENDENT))
    stacked = np.concatenate([flat(basis) for basis in found.bases.values()])
    assert len(stacked) == found.rows == 864
    assert np.linalg.matrix_rank(stacked) == found.rank == 576
    assert "864 rows of rank 576" in repr(found)
    assert not found.missing
    commuting = increments(kernels(GroupSet(z2(), p4(), flips())))
    assert commuting.rank == commuting.rows


@pytest.mark.parametrize("dense", [False, True])
def test_dependent_increments_can_be_made_independent(dense: bool) -> None:
    groups = GroupSet(flips(), flips(0), cm(), cm(anti=True), z2()) if dense else DEPENDENT
    whole = maps(groups, (3, 3), "irrep:1,1") if dense else kernels(groups)
    found = increments(whole, independent=True)
    before = increments(whole)
    assert before.rank < before.rows
    stacked = np.concatenate([flat(basis) for basis in found.bases.values()])
    assert np.linalg.matrix_rank(stacked) == found.rank == found.rows == before.rank
    everything = np.concatenate([flat(basis) for basis in whole.values()])
    np.testing.assert_allclose(projector(stacked), projector(everything), rtol=0, atol=1e-10)
    for name, basis in whole.items():
        parts = [flat(found[part]) for part in found.inside(name)]
        spanned = sum(map(len, parts))
        assert basis.dim - spanned == found.missing.get(name, 0)
        rows = np.concatenate([np.zeros((0, basis.size)), *parts])
        np.testing.assert_allclose(rows @ projector(flat(basis)), rows, rtol=0, atol=1e-10)
    assert found.missing


def test_independent_changes_nothing_where_increments_are() -> None:
    whole = kernels(GroupSet(z2(), p4(), flips()))
    one, other = increments(whole), increments(whole, independent=True)
    assert one.names == other.names
    assert not other.missing
    for name in one.names:
        np.testing.assert_array_equal(flat(one[name]), flat(other[name]))
