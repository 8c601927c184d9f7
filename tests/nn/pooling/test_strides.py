"""Strides other than 2, and odd sides where the group fixes the centre."""

from __future__ import annotations

import itertools

import pytest
import torch

from groupella.groups import GroupSet, c4, d4, p4, p4m, trivial, z2
from groupella.harden import harden
from groupella.networks import trunk
from groupella.nn.layer import ResidualPathway
from groupella.nn.pooling import PolyphasePool
from groupella.testing import assert_equivariant

CASES = [
    (GroupSet(trivial(), z2(), p4()), "p4", (9, 9), 3),
    (GroupSet(z2(), p4m()), "p4m", (6, 6), 3),
    (GroupSet(trivial(), z2()), "z2", (4, 8), 4),
    (GroupSet(trivial(), c4()), "c4", (9, 9), 2),
    (GroupSet(trivial(), d4()), "d4", (7, 7), 3),
]


@pytest.mark.parametrize(("groups", "name", "sides", "stride"), CASES)
def test_layers_stay_exactly_equivariant(
    groups: GroupSet, name: str, sides: tuple[int, int], stride: int
) -> None:
    before = groups.space(sides, 1, "trivial")
    after = groups.space(tuple(-(-n // stride) for n in sides), 2)
    layer = ResidualPathway(before, after, groups, stride=stride).double()
    assert_equivariant(
        layer.strict(name),
        before,
        after,
        groups[name],
        dtype=torch.float64,
        up_to_translation=groups[name].translations,
    )
    x = torch.randn(3, *before.shape, dtype=torch.float64)
    torch.testing.assert_close(harden(layer)(x), layer(x))


def test_the_phase_of_the_largest_entry_is_taken() -> None:
    """By loops over the nine phases."""
    space = GroupSet(z2()).space((6, 9), 2)
    pool = PolyphasePool(space, stride=3)
    x = torch.randn(5, *space.shape)
    for sample, taken in zip(x, pool(x), strict=True):
        phases = [sample[:, a::3, b::3] for a, b in itertools.product(range(3), repeat=2)]
        assert torch.equal(taken, max(phases, key=lambda phase: float(phase.abs().max())))


def test_sides_that_do_not_fit_are_refused_with_the_remedy() -> None:
    groups = GroupSet(z2(), p4())
    for sides, stride, words in (((9, 9), 2, "must be even"), ((8, 8), 3, "multiple of 3")):
        with pytest.raises(ValueError, match=rf"{words}; got .*groupella.data.Size"):
            PolyphasePool(groups.space(sides, 1), stride=stride)
    space = groups.space((8, 8), 1)
    for wrong in (0, -2, 1.5, True):
        with pytest.raises(ValueError, match="stride is a positive whole number"):
            ResidualPathway(space, space, groups, stride=wrong)  # type: ignore[arg-type]


def test_a_trunk_takes_them() -> None:
    network = trunk(GroupSet(z2(), p4()), alpha=1, image_size=12, blocks=[(1, 3), (2, 2)])
    assert [layer.space_out.lattice.shape for layer in network.layers] == [(4, 4), (2, 2)]
