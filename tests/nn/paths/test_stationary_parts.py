"""Sparse paths at ω = 0 are constants on the sites and obey what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from groupella import groups as g
from groupella.groups import GroupSet, Symmetry
from groupella.nn.paths import SparseConv, SparseFC, is_stationary, stationary_part
from groupella.testing import assert_equivariant

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def sign_of_a_site() -> Symmetry:
    """Changes the sign of one site: constants are not fixed."""
    return Symmetry.from_generators("sign", (4,), [np.diag([1.0, -1.0, 1.0, 1.0])])


# (group set, lattice, fibre, what a constant on the sites obeys)
CASES = [
    (GroupSet(g.z2(), g.p4m(), g.trivial()), (4, 4), "trivial", g.p4m()),
    (GroupSet(g.z2(), g.p4m(), g.trivial()), (4, 4), "regular", g.z2()),
    (GroupSet(g.c4(), g.trivial()), (4, 4), "trivial", g.c4()),
    (GroupSet(g.permutations(4), g.trivial()), (4,), "trivial", g.permutations(4)),
    (GroupSet(sign_of_a_site(), g.trivial()), (4,), None, g.trivial()),
]


def drawn(path: nn.Module) -> nn.Module:
    for parameter in path.parameters():
        nn.init.normal_(parameter)
    return stationary_part(path)


@pytest.mark.parametrize(("groups", "lattice", "fibre", "obeyed"), CASES)
def test_constants_obey_what_fixes_them(
    groups: GroupSet, lattice: tuple[int, ...], fibre: str | None, obeyed: Symmetry
) -> None:
    source, target = groups.space(lattice, 2, fibre), groups.space(lattice, 3, fibre)
    made = [SparseFC(source, target), SparseConv(source, target)]
    for path in map(drawn, made):
        assert is_stationary(path)
        for name in groups.names:
            inside = g.is_inside(groups[name], path.stationary_symmetry)
            # A window is not kept by every permutation of the sites.
            expected = g.is_inside(groups[name], obeyed)
            if isinstance(path, SparseConv) and not obeyed.is_catalogue:
                expected = groups[name].is_trivial
            assert inside == expected, (path, name)
            for dtype in TOLERANCE:
                if inside:
                    assert_equivariant(path, source, target, groups[name], dtype=dtype)
                else:
                    with pytest.raises(AssertionError, match="not equivariant"):
                        assert_equivariant(path, source, target, groups[name], dtype=dtype)


def test_an_oblong_window_is_not_kept_by_rotations() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p2())
    space = groups.space((4, 4), 1, "trivial")
    path = SparseConv(space, space, (3, 1))
    assert g.is_inside(g.p2(), path.stationary_symmetry)
    assert not g.is_inside(g.p4(), path.stationary_symmetry)


def test_the_part_shares_weights_and_leaves_the_path_as_it_is() -> None:
    space = GroupSet(g.z2()).space((4, 4), 1)
    path = SparseFC(space, space)
    part = stationary_part(path)
    assert part.theta1 is path.theta1
    assert not is_stationary(path)
    assert path.omega1 == 1
    assert not is_stationary(nn.Linear(2, 2))
