"""The layer is the sum of its paths, and exactly equivariant in the strict limit of each member."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from groupella import groups as g
from groupella.groups import FeatureSpace, GroupSet, Symmetry
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import Conv, DenseBasis, FactoredFC, GroupConv
from groupella.nn.pooling import GlobalPool, GroupPool, PolyphasePool, take_phase
from groupella.testing import ConstantOutputWarning, assert_equivariant

SITES = np.arange(16).reshape(4, 4)
OVER = Symmetry.from_generators("over", (4, 4), [SITES.T.argsort(axis=None)])
# Turned by 90 degrees, with a vector at every site.
TURNED = Symmetry.from_generators(
    "turned", (4, 4), [np.rot90(SITES).argsort(axis=None)], fibre=[[[0.0, -1.0], [1.0, 0.0]]]
)
SETS = {
    "nested": (GroupSet(g.z2(), g.p4(), g.p4m(), g.trivial()), (4, 4)),
    "incomparable": (GroupSet(g.z2(), g.p4(), g.flips()), (6, 6)),
    "not commuting": (GroupSet(g.flips(0), g.cm()), (4, 4)),
    "without translations": (GroupSet(g.z2(), g.c4(), g.trivial()), (4, 4)),
    "line": (GroupSet(g.translations(1), g.line_reflections(), g.trivial()), (6,)),
    "voxels": (GroupSet(g.translations(3), g.inversion(translations=True)), (4, 2, 4)),
    "set": (GroupSet(g.permutations(4), g.trivial()), (4,)),
    "vector": (GroupSet(g.z2(), g.p4(), g.trivial()), ()),
    "generators": (GroupSet(g.z2(), OVER, g.flips(), g.trivial()), (4, 4)),
    "generators with a fibre": (GroupSet(g.z2(), TURNED, g.trivial()), (4, 4)),
}


def randomise(layer: nn.Module) -> nn.Module:
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


def spaces(
    groups: GroupSet, lattice: tuple[int, ...], stride: int = 1, fibre: str | None = None
) -> tuple[FeatureSpace, FeatureSpace]:
    out = tuple(s // stride for s in lattice)
    return groups.space(lattice, 2, fibre), groups.space(out, 3, fibre)


@pytest.mark.parametrize("increments", [True, False])
@pytest.mark.parametrize("fibre", [None, "trivial"])
@pytest.mark.parametrize("name", SETS)
def test_strict_limits_are_exactly_equivariant(
    name: str, fibre: str | None, increments: bool
) -> None:
    groups, lattice = SETS[name]
    source, target = spaces(groups, lattice, fibre=fibre)
    layer = randomise(ResidualPathway(source, target, groups, increments=increments))
    for member in groups:
        for dtype in (torch.float32, torch.float64):
            assert_equivariant(
                layer.strict(member.name), source, target, member, dtype=dtype, elements=3
            )


@pytest.mark.parametrize("name", ["nested", "incomparable", "line", "voxels"])
def test_strict_limits_with_pooling(name: str) -> None:
    groups, lattice = SETS[name]
    source, target = spaces(groups, lattice, stride=2)
    layer = randomise(ResidualPathway(source, target, groups, stride=2))
    for member in groups:
        if not member.is_trivial:
            strict = layer.strict(member.name)
            assert_equivariant(
                strict, source, target, member, dtype=torch.float64, up_to_translation=True
            )
            point = Symmetry(member.name, member.dim, False, member.point)
            assert_equivariant(strict, source, target, point, dtype=torch.float64)


def test_forward_is_the_plain_sum() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.trivial())
    source, target = spaces(groups, (4, 4))
    layer = randomise(ResidualPathway(source, target, groups, "F-FC+CONV+GCONV"))
    x = torch.randn(2, *source.shape)
    terms = [path(x) for path in layer.paths.values()]
    bias = layer.bias.repeat_interleave(4, 0).reshape(1, -1, 1, 1)
    offsets = [offset() for offset in layer.offsets.values()]
    assert [offset.shape for offset in offsets] == [(12, 4, 4), (12, 1, 1)]
    torch.testing.assert_close(layer(x), sum(terms) + bias + sum(offsets))


def test_with_a_stride_equivariant_paths_choose_and_free_ones_are_added_after() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.trivial())
    source, target = spaces(groups, (6, 6), stride=2)
    layer = ResidualPathway(source, target, groups, "F-FC+CONV+GCONV", stride=2, offsets=False)
    randomise(layer)
    x = torch.randn(5, *source.shape)
    kept = layer.paths["CONV"](x) + layer.paths["GCONV"](x)
    pool = PolyphasePool(target.with_lattice((6, 6)))
    expected = take_phase(kept, pool.choose(kept)) + layer.paths["F-FC"](x)
    bias = layer.bias.repeat_interleave(4, 0).reshape(1, -1, 1, 1)
    torch.testing.assert_close(layer(x), expected + bias)
    free = layer.only(["F-FC"])
    torch.testing.assert_close(free(x), layer.paths["F-FC"](x) + bias)


def test_paths_of_a_group_set() -> None:
    groups, lattice = SETS["nested"]
    source, target = spaces(groups, lattice)
    plain = ResidualPathway(source, target, groups, increments=False)
    kinds = {name: type(path) for name, path in plain.paths.items()}
    assert kinds == {"z2": Conv, "p4": GroupConv, "p4m": GroupConv, "trivial": FactoredFC}
    assert plain.subspaces == {
        "z2": ("z2", "trivial"),
        "p4": ("z2", "p4", "trivial"),
        "p4m": ("z2", "p4", "p4m", "trivial"),
        "trivial": ("trivial",),
    }
    assert plain.strictest == ("p4m",)
    assert tuple(plain.strict("p4").paths) == ("p4", "p4m")


def test_increments_are_orthogonal_and_span_the_same() -> None:
    groups, lattice = SETS["nested"]
    source, target = spaces(groups, lattice)
    layer = ResidualPathway(source, target, groups)
    bases = {
        name: path.basis.tensor(path.weight.double()).flatten(1)
        for name, path in layer.paths.items()
        if isinstance(path, GroupConv)
    }
    stacked = torch.cat(list(bases.values()))
    torch.testing.assert_close(stacked @ stacked.T, torch.eye(len(stacked), dtype=torch.float64))
    assert len(stacked) == 8 * 8 * 9
    assert {name: len(b) for name, b in bases.items()} == {"z2": 432, "p4": 72, "p4m": 72}


def test_the_common_part_of_incomparable_members_is_a_path() -> None:
    groups, lattice = SETS["incomparable"]
    source, target = spaces(groups, lattice)
    layer = ResidualPathway(source, target, groups)
    assert layer.subspaces["p4&flips"] == ("z2", "p4", "flips")
    assert layer.strictest == ("p4&flips",)
    assert_equivariant(layer.only(["p4&flips"]), source, target, g.p4m(), dtype=torch.float64)
    assert layer.overlapping == ()


def test_subspaces_that_do_not_commute_stay_overlapping_and_it_says_so() -> None:
    groups, lattice = SETS["not commuting"]
    source, target = spaces(groups, lattice)
    layer = ResidualPathway(source, target, groups)
    assert layer.overlapping == (("flips(0)", "cm"),)
    assert "overlapping" in repr(layer)


def test_dependent_increments_are_counted_and_can_be_made_independent() -> None:
    groups = GroupSet(g.flips(), g.flips(0), g.cm(), g.cm(anti=True), g.p4(), g.z2())
    source, target = spaces(groups, (4, 4))
    layer = ResidualPathway(source, target, groups)
    assert layer.dependent == 864 - 576
    assert "dependent=288" in repr(layer)
    free = randomise(ResidualPathway(source, target, groups, increments="independent"))
    assert free.dependent == 0
    pairs = source.channels * target.channels
    assert sum(p.numel() for p in free.paths.parameters()) == 576 * pairs
    for member in groups:
        strict = free.strict(member.name)
        assert_equivariant(strict, source, target, member, dtype=torch.float64)


def test_increments_of_an_unknown_kind() -> None:
    groups, lattice = SETS["nested"]
    with pytest.raises(ValueError, match="increments is True, False or 'independent', got 'no'"):
        ResidualPathway(*spaces(groups, lattice), groups, increments="no")


def test_convolutions_and_dense_maps_share_their_common_part() -> None:
    groups, lattice = SETS["without translations"]
    source, target = spaces(groups, lattice)
    layer = ResidualPathway(source, target, groups)
    kinds = {name: type(path) for name, path in layer.paths.items()}
    assert kinds == {
        "z2": GroupConv,
        "c4": DenseBasis,
        "trivial": FactoredFC,
        "z2&c4": GroupConv,
    }
    assert layer.paths["z2&c4"].weight.shape[2] == 36
    assert layer.strict("c4").subspaces.keys() == {"c4", "z2&c4"}


def test_a_symmetry_by_generators_shares_its_part_with_convolutions() -> None:
    """Of the 9 entries of a kernel 3 + 3 pairs agree; of 256 entries of a map (256 + 16) / 2 do."""
    groups = GroupSet(g.z2(), OVER)
    space = groups.space((4, 4), 1)
    layer = ResidualPathway(space, space, groups)
    sizes = {name: path.weight.numel() for name, path in layer.paths.items()}
    assert sizes == {"z2": 3, "over": 130, "z2&over": 6}


def test_an_empty_increment_is_dropped() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m())
    space = groups.space((4, 4), 2, "trivial")
    layer = ResidualPathway(space, space, groups)
    assert tuple(layer.paths) == ("z2", "p4m")
    assert tuple(layer.strict("p4").paths) == ("p4m",)


def test_a_window_wider_than_the_lattice() -> None:
    groups = GroupSet(g.z2(), g.c4())
    source, target = spaces(groups, (2, 2))
    layer = randomise(ResidualPathway(source, target, groups))
    for member in groups:
        assert_equivariant(layer.strict(member.name), source, target, member, dtype=torch.float64)


@pytest.mark.parametrize("init", ["earn", "balanced"])
@pytest.mark.parametrize(
    "paths", [None, "F-FC", "CONV", "F-FC+CONV", "FC+CONV", "S-FC+S-CONV", "F-FC+CONV+GCONV"]
)
def test_initial_output_variance_is_that_of_a_kaiming_layer(paths: str | None, init: str) -> None:
    groups = GroupSet(g.z2(), g.p4(), g.trivial())
    source, target = groups.space((4, 4), 16), groups.space((4, 4), 16)
    layer = ResidualPathway(source, target, groups, paths, init=init)
    x = torch.randn(64, *source.shape)
    with torch.no_grad():
        variance = float(layer(x).var())
        shares = {name: float(path(x).var()) for name, path in layer.paths.items()}
    assert variance == pytest.approx(2.0, rel=0.25)
    for name, share in shares.items():
        if init == "balanced":
            assert share == pytest.approx(2.0 / len(shares), rel=0.3)
        elif name not in layer.strictest:
            assert share == pytest.approx(2.0 * 0.03**2, rel=0.3)
    held = 300.0 if init == "earn" else 1.0
    assert layer.initial_precisions == {
        name: 1.0 if name in layer.strictest else held for name in layer.paths
    }
    assert math.isclose(sum(s * s for s in layer.scales.values()), 1.0)


def test_the_bias_is_invariant_under_every_member() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.flips())
    target = groups.space((4, 4), 2)
    rho = target.fibre.representation.group
    mixed = rho.regular_representation + rho.irrep(1, 1) + rho.trivial_representation
    for fibre, count in (("regular", 1), ("irrep:1,1", 0), (mixed, 2)):
        out = target.with_fibre(fibre)
        layer = ResidualPathway(target, out, groups, "CONV", offsets=False)
        if count == 0:
            assert layer.bias is None
            continue
        assert layer.bias.shape == (2, count)
        randomise(layer)
        nn.init.zeros_(layer.paths["CONV"].weight)
        with pytest.warns(ConstantOutputWarning, match="is the same"):
            assert_equivariant(layer, target, out, groups, dtype=torch.float64)


def test_a_bias_on_sites_that_are_turned() -> None:
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]).numpy()
    groups = GroupSet(Symmetry.from_generators("turn", (3,), [turn]))
    space = groups.space((3,), 2)
    layer = randomise(ResidualPathway(space, space, groups))
    assert layer.bias.shape == (2, 1)
    assert_equivariant(layer, space, space, groups, dtype=torch.float64)


def test_strict_shares_parameters() -> None:
    groups, lattice = SETS["nested"]
    source, target = spaces(groups, lattice)
    layer = ResidualPathway(source, target, groups)
    strict = layer.strict("p4m")
    assert strict.paths["p4m"] is layer.paths["p4m"]
    assert strict.bias is layer.bias
    assert len(layer.paths) == 4
    assert len(list(strict.parameters())) == 2


class Network(nn.Module):
    """Two pooled blocks, then invariants."""

    def __init__(self, groups: GroupSet, channels: int = 4) -> None:
        super().__init__()
        a, b, c = (groups.space((n, n), channels) for n in (8, 4, 2))
        self.space = a
        self.blocks = nn.ModuleList(
            [ResidualPathway(a, b, groups, stride=2), ResidualPathway(b, c, groups, stride=2)]
        )
        self.head = nn.Sequential(GlobalPool(c, "max"), GroupPool(c.with_lattice(())))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x).relu()
        return self.head(x)


def test_predictions_do_not_depend_on_the_batch() -> None:
    network = Network(GroupSet(g.z2(), g.p4(), g.trivial()))
    x = torch.randn(64, *network.space.shape)
    with torch.no_grad():
        together = network(x)
        alone = torch.cat([network(sample) for sample in x.split(1)])
        shuffled = network(x.flip(0)).flip(0)
    torch.testing.assert_close(alone, together, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(shuffled, together, rtol=1e-6, atol=1e-6)


def test_a_strict_network_is_invariant_sample_by_sample() -> None:
    groups = GroupSet(g.z2(), g.p4m(), g.trivial())
    network = Network(groups).double()
    network.blocks = nn.ModuleList([block.strict("p4m") for block in network.blocks])
    space = network.space
    x = torch.randn(16, *space.shape, dtype=torch.float64)
    elements = space.sample(g.p4m(), 16, seed=3)
    moved = torch.cat(
        [space.act(e, sample) for e, sample in zip(elements, x.split(1), strict=True)]
    )
    with torch.no_grad():
        torch.testing.assert_close(network(moved), network(x), rtol=1e-12, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(
    members=st.lists(
        st.sampled_from([g.z2(), g.p2(), g.p4(), g.p4m(), g.flips(), g.cm(), g.trivial()]),
        min_size=1,
        max_size=3,
        unique_by=lambda s: s.name,
    ),
    half=st.integers(1, 3),
    stride=st.sampled_from([1, 2]),
    kernel=st.sampled_from([1, 3, 5]),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    increments=st.booleans(),
    fibre=st.sampled_from(["regular", "trivial"]),
)
def test_any_combination_has_the_right_shape_and_symmetry(
    members: list[Symmetry],
    half: int,
    stride: int,
    kernel: int,
    channels: tuple[int, int],
    increments: bool,
    fibre: str,
) -> None:
    groups = GroupSet(*members)
    side = 2 * half
    source = groups.space((side, side), channels[0], fibre)
    target = groups.space((side // stride,) * 2, channels[1], fibre)
    layer = ResidualPathway(
        source,
        target,
        groups,
        stride=stride,
        kernel_size=kernel,
        increments=increments,
    ).double()
    randomise(layer)
    x = torch.randn(2, *source.shape, dtype=torch.float64)
    assert layer(x).shape == (2, *target.shape)
    assert set(layer.subspaces) == set(layer.paths)
    for member in members:
        if member.is_trivial:
            continue
        assert_equivariant(
            layer.strict(member.name),
            source,
            target,
            member,
            up_to_translation=stride == 2,
            elements=2,
            batch=2,
        )
