"""Whole trunks: shapes, exact invariance in every strict limit, independence of the batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    Symmetry,
    c4,
    flips,
    inversion,
    line_reflections,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    translations,
    trivial,
    z2,
)
from groupella.networks import Trunk, fold, made_from, recipe, trunk
from groupella.nn.normalisation import ChannelNorm
from groupella.testing import assert_equivariant, equivariance_error

SHORT = ((1, 1), (2, 2), (2, 2))


def every_path_on(network: Trunk) -> Trunk:
    """Make free paths as large as the others, so that a test would notice them."""
    for layer in network.layers:
        layer.init = "balanced"
        layer.reset_parameters()
    return network


def moved(space: FeatureSpace, member: Symmetry, x: Tensor, seed: int) -> Tensor:
    """Every sample by an element of its own."""
    elements = space.sample(member, len(x), seed)
    return torch.cat(
        [space.act(g, one) for g, one in zip(elements, torch.split(x, 1), strict=True)]
    )


CASES: dict[str, tuple[GroupSet, str | None, int]] = {
    "CONV": (GroupSet(z2()), "CONV", 16),
    "S-CONV": (GroupSet(z2()), "S-FC+S-CONV", 16),
    "S-GCONV": (GroupSet(z2(), p4()), "S-FC/group+S-CONV+S-GCONV", 16),
    "F-FC+CONV+GCONV": (GroupSet(z2(), p4()), "F-FC+CONV+GCONV/pointwise", 16),
    "separable": (GroupSet(z2(), p4()), "F-FC+CONV+GCONV/separable", 8),
    "increments": (GroupSet(trivial(), z2(), p4(), flips()), None, 8),
    "p4m": (GroupSet(trivial(), z2(), p4m()), None, 8),
    "pmm": (GroupSet(trivial(), p2(), pmm()), None, 12),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_the_strict_limit_of_every_member_is_invariant(case: str, dtype: torch.dtype) -> None:
    groups, paths, size = CASES[case]
    torch.manual_seed(1)
    network = every_path_on(trunk(groups, paths, 1, size, 3, in_channels=1).to(dtype))
    space = network.space_in
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for member in groups:
        if member.is_trivial:
            continue
        strict = network.strict(member.name)
        assert_equivariant(strict, space, None, member, batch=2, elements=6)
        x = torch.randn((12, *space.shape), dtype=dtype)
        with torch.no_grad():
            y, z = strict(x), strict(moved(space, member, x, seed=5))
        assert (y - z).abs().max() <= tolerance * y.abs().max()
        assert y.std(0).min() > 1e-4


def test_a_free_path_is_not_invariant() -> None:
    network = every_path_on(trunk(GroupSet(z2()), "F-FC+CONV", 2, 16, 3))
    found = equivariance_error(network, network.space_in, None, z2())
    assert float(found) > 1e-3
    assert_equivariant(network.strict("z2"), network.space_in, None, z2())


@pytest.mark.parametrize("paths", ["F-FC+CONV+GCONV", "FC+CONV", "S-FC+S-CONV"])
def test_answers_do_not_depend_on_the_batch(paths: str) -> None:
    torch.manual_seed(2)
    network = every_path_on(trunk(GroupSet(z2(), p4()), paths, 2, 16, 5, in_channels=1))
    x = torch.randn(64, 1, 16, 16)
    with torch.no_grad():
        together = network(x)
        alone = torch.cat([network(one) for one in torch.split(x, 1)])
        halves = torch.cat([network(half) for half in torch.split(x.flip(0), 32)]).flip(0)
    scale = together.abs().max()
    assert (together - alone).abs().max() <= 1e-6 * scale
    assert (together - halves).abs().max() <= 1e-6 * scale


def test_strict_layers_are_equivariant_up_to_a_translation() -> None:
    groups = GroupSet(z2(), p4())
    network = every_path_on(trunk(groups, "F-FC+CONV+GCONV", 1, 16, 3).double())
    for layer in network.layers:
        for member in groups:
            strict = layer.strict(member.name)
            assert_equivariant(
                strict, layer.space_in, layer.space_out, member, up_to_translation=layer.stride > 1
            )


@pytest.mark.parametrize(
    ("groups", "size", "sides"),
    [
        (GroupSet(z2()), 32, [32, 16, 16, 8, 8, 4, 2, 1]),
        (GroupSet(z2()), 8, [8, 4, 4, 2, 2, 1, 1, 1]),
        (GroupSet(z2()), 28, [28, 14, 14, 7, 7, 7, 7, 7]),
        (GroupSet(z2()), 48, [48, 24, 24, 12, 12, 6, 3, 3]),
        (GroupSet(translations(1)), 32, [32, 16, 16, 8, 8, 4, 2, 1]),
    ],
)
def test_lattices_of_other_images(groups: GroupSet, size: int, sides: list[int]) -> None:
    network = trunk(groups, "CONV", 1, size, 2, in_channels=1)
    assert [layer.space_out.lattice.shape[0] for layer in network.layers] == sides
    assert network(torch.randn(1, *network.space_in.shape)).shape == (1, 2)


def test_oblong_images() -> None:
    network = trunk(GroupSet(z2(), p2()), "F-FC+CONV+GCONV", 1, (8, 12), 2, blocks=SHORT)
    assert network.layers[-1].space_out.lattice.shape == (2, 3)
    assert network(torch.randn(3, 3, 8, 12)).shape == (3, 2)
    with pytest.raises(ValueError, match="equal sides"):
        trunk(GroupSet(p4()), "GCONV", 1, (8, 12), 2)


def test_sequences_voxels_sets_and_rotations_without_translations() -> None:
    for groups, paths, size in (
        (GroupSet(trivial(), translations(1), line_reflections()), None, 8),
        (GroupSet(translations(3), inversion(translations=True)), "CONV+GCONV", 4),
        (GroupSet(permutations(5)), None, 5),
        (GroupSet(trivial(), c4()), None, 4),
    ):
        network = trunk(groups, paths, 1, size, 2, in_channels=2, blocks=SHORT).double()
        every_path_on(network)
        member = groups.members[-1]
        assert_equivariant(network.strict(member.name), network.space_in, None, member)


def test_irreps_need_another_nonlinearity() -> None:
    groups = GroupSet(p4())
    rep = groups.space((4, 4), 1).fibre.representation
    mixed = rep.group.trivial_representation + rep.group.irrep(1)
    with pytest.raises(ValueError, match="squash"):
        trunk(groups, "GCONV", 1, 8, 2, fibre=mixed, blocks=SHORT, fibre_pooling="norm")
    network = trunk(
        groups,
        "GCONV",
        2,
        8,
        2,
        fibre=mixed,
        blocks=SHORT,
        activation="squash",
        fibre_pooling="norm",
    )
    assert_equivariant(network.double(), network.space_in, None, p4())


# One channel of ReLUs may be dead, which is no fault of its symmetry.
@pytest.mark.filterwarnings("ignore::groupella.testing.ConstantOutputWarning")
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    groups=st.sampled_from(
        [GroupSet(z2()), GroupSet(z2(), p4()), GroupSet(flips(), p4()), GroupSet(z2(), flips(0))]
    ),
    size=st.sampled_from([2, 3, 4, 6, 8]),
    plan=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2)), min_size=1, max_size=3),
    channels=st.integers(1, 2),
    seed=st.integers(0, 1000),
)
def test_any_shape_stride_and_group_is_invariant(
    groups: GroupSet, size: int, plan: list[tuple[int, int]], channels: int, seed: int
) -> None:
    torch.manual_seed(seed)
    network = trunk(groups, None, 1, size, 2, in_channels=channels, blocks=plan, hidden=2).double()
    for member in groups:
        assert_equivariant(
            network.strict(member.name), network.space_in, None, member, seed=seed, elements=3
        )


def test_strict_shares_parameters_and_leaves_the_network_alone() -> None:
    network = trunk(GroupSet(z2()), "F-FC+CONV", 1, 8, 2, blocks=SHORT)
    strict = network.strict("z2")
    assert list(network.layers[0].paths) == ["F-FC", "CONV"]
    assert list(strict.layers[0].paths) == ["CONV"]
    assert strict.layers[0].paths["CONV"].weight is network.layers[0].paths["CONV"].weight
    with pytest.raises(ValueError, match="p4"):
        network.strict("p4")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"alpha": 0}, "alpha must be a positive integer"),
        ({"classes": 2.5}, "classes must be a positive integer"),
        ({"blocks": ()}, "at least one block"),
        ({"blocks": ((1, 0),)}, "positive stride"),
        ({"blocks": [1, 2]}, r"sequence of \(width, stride\) pairs.* got 1 for a pair"),
        ({"blocks": [(1.5, 1)]}, "positive width"),
        ({"image_size": (8, 8, 8)}, "2-dimensional"),
        ({"paths": "F-FC+CONVV"}, "did you mean 'CONV'"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
    ],
)
def test_bad_arguments(options: dict[str, object], match: str) -> None:
    arguments: dict[str, object] = {"alpha": 1, "image_size": 8, "classes": 2, "paths": "CONV"}
    with pytest.raises(ValueError, match=match):
        trunk(GroupSet(z2()), **{**arguments, **options})  # type: ignore[arg-type]


def test_unknown_options_and_groups_of_the_wrong_kind() -> None:
    with pytest.raises(TypeError, match="unknown option 'inits'; did you mean 'init'"):
        trunk(GroupSet(z2()), "CONV", 1, 8, 2, inits="earn")
    with pytest.raises(TypeError, match="unknown option 'stride'; strides are given in blocks"):
        trunk(GroupSet(z2()), "CONV", 1, 8, 2, stride=2)
    with pytest.raises(TypeError, match=r"blocks is a sequence of \(width, stride\) pairs, got 3"):
        trunk(GroupSet(z2()), "CONV", 1, 8, 2, blocks=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"groups is a GroupSet, got a list: GroupSet\(\*list\)"):
        trunk([z2(), p4()], "CONV", 1, 8, 2)  # type: ignore[arg-type]


def test_fibres_without_an_invariant_vector() -> None:
    with pytest.raises(ValueError, match=r"fibre='irrep:1' has no .* 'regular' or 'trivial'"):
        trunk(GroupSet(p4()), None, 1, 8, 2, fibre="irrep:1")
    signed = Symmetry.from_generators("signed", 4, [[1, 0, 3, 2]], fibre=[[[-1.0]]])
    with pytest.raises(ValueError, match=r"comes with signed .* pass fibre='trivial' to trunk"):
        trunk(GroupSet(signed), None, 1, 4, 2)
    trunk(GroupSet(signed), None, 1, 4, 2, fibre="trivial", blocks=SHORT)


def test_bad_inputs() -> None:
    network = trunk(GroupSet(z2()), "CONV", 1, 8, 2, blocks=SHORT)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(batch, 3, 8, 8\)"):
        network(torch.randn(1, 1, 8, 8))
    with pytest.raises(TypeError, match="floating-point"):
        network(torch.zeros(1, 3, 8, 8, dtype=torch.long))


@pytest.mark.parametrize("groups", [GroupSet(trivial(), z2()), GroupSet(z2(), p4())], ids=str)
def test_normalisation_folds_into_strided_layers_exactly(groups: GroupSet) -> None:
    torch.manual_seed(0)
    network = every_path_on(trunk(groups, alpha=2, image_size=8, blocks=SHORT, normalise=True))
    network, x = network.double().train(), 3 + torch.randn(6, 3, 8, 8, dtype=torch.float64)
    for norm in network.norms:
        norm.weight.data.fill_(-1.3)
        norm.bias.data.normal_()
    for _ in range(3):
        network(x)
    folded = fold(network.eval())
    assert not any(isinstance(m, ChannelNorm) for m in folded.modules())
    torch.testing.assert_close(folded(x), network(x), rtol=1e-11, atol=1e-11)
    for name in [member.name for member in groups if not member.is_trivial]:
        assert_equivariant(folded.strict(name), folded.space_in, None, groups[name])
    again = made_from(recipe(folded)).double()
    again.load_state_dict(folded.state_dict())
    assert torch.equal(again(x), folded(x))
