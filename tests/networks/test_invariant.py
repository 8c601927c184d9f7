"""Networks that are exactly invariant to one symmetry, with normalisation and folded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupella.groups import (
    GroupSet,
    Symmetry,
    c4,
    d4,
    flips,
    line_reflections,
    mirror,
    octahedral,
    p4,
    p4m,
    permutations,
    translations,
    trivial,
    z2,
)
from groupella.networks import InvariantNet, fold, invariant_net
from groupella.nn.normalisation import ChannelNorm
from groupella.nn.paths import DenseBasis
from groupella.nn.shared_maps import LARGEST_INPUT
from groupella.testing import equivariance_error
from groupella.training import curvature_cost

SITES = np.arange(36).reshape(6, 6)
GLIDE = Symmetry.from_generators(
    "glide", (6, 6), [np.roll(SITES[:, ::-1], 3, 0).ravel(), np.roll(SITES, 2, 1).ravel()]
)
SIGNS = Symmetry.from_generators("signs", (3,), [np.diag([-1.0, -1.0, 1.0])])
CASES: dict[str, tuple[Callable[[], Symmetry], tuple[int, ...], dict[str, Any]]] = {
    "z2": (z2, (8, 8), {}),
    "p4": (p4, (8, 8), {}),
    "p4m": (p4m, (16, 16), {}),
    "p4m-odd": (p4m, (5, 5), {}),
    "flips": (flips, (8, 12), {}),
    "c4": (c4, (8, 8), {}),
    "d4": (d4, (8, 8), {}),
    "mirror": (mirror, (8, 6), {}),
    "trivial": (trivial, (8, 8), {}),
    "plain": (trivial, (8, 8), {"convolutions": False}),
    "line": (lambda: translations(1), (16,), {}),
    "line-reflections": (line_reflections, (8,), {}),
    "voxels": (lambda: translations(3), (4, 4, 4), {}),
    "octahedral": (octahedral, (2, 2, 2), {}),
    "sets": (lambda: permutations(6), (6,), {}),
    "glide": (lambda: GLIDE, (6, 6), {}),
    "signs": (lambda: SIGNS, (3,), {}),
    "vectors": (trivial, (), {}),
    "plain-sets": (trivial, (6,), {"convolutions": False}),
}


def trained(name: str, dtype: torch.dtype = torch.float64) -> tuple[InvariantNet, Tensor]:
    """A network with random parameters and statistics, and generic inputs for it."""
    make, lattice, options = CASES[name]
    network = invariant_net(make(), lattice, 2, 3, width=8, **options).to(dtype)
    x = 1.0 + torch.randn(8, 2, *lattice, dtype=dtype)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, ChannelNorm):
                module.weight.normal_(1.0, 0.5)  # a few are negative
                module.bias.normal_()
            bias = getattr(module, "bias", None)
            if isinstance(bias, Tensor):
                bias.normal_()
        for _ in range(3):
            network.train()(x + torch.randn_like(x))
    return network.eval(), x


@pytest.mark.parametrize("name", CASES)
@torch.no_grad()
def test_folding_keeps_the_function_and_leaves_no_normalisation(name: str) -> None:
    network, x = trained(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    folded = fold(network)
    assert not any(isinstance(m, ChannelNorm) for m in folded.modules())
    torch.testing.assert_close(folded(x), network(x), rtol=1e-12, atol=1e-12)
    assert float(network(x).std(0).min()) > 1e-5  # not a constant
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), key
    torch.testing.assert_close(fold(folded)(x), folded(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)], ids=["f64", "f32"]
)
def test_the_network_is_exactly_invariant_and_folded_too(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    network, x = trained(name, dtype)
    symmetry = network.symmetry
    space = GroupSet(symmetry).space(symmetry.check_lattice(x.shape[2:]), 2, "trivial")
    for one in (network, fold(network)):
        found = equivariance_error(one, space, None, symmetry, inputs=x)
        assert float(found) < tolerance


@pytest.mark.parametrize(
    ("name", "larger"),
    [("z2", p4), ("p4", p4m), ("c4", d4), ("c4", p4), ("mirror", d4), ("trivial", mirror)],
)
def test_the_network_obeys_no_more_than_it_should(
    name: str, larger: Callable[[], Symmetry]
) -> None:
    make, _, options = CASES[name]
    network = invariant_net(make(), (8, 8), 2, 3, width=8, **options).double().eval()
    space = GroupSet(larger()).space((8, 8), 2, "trivial")
    assert float(equivariance_error(network, space, None, larger())) > 1e-3


def test_a_network_without_convolutions_sees_the_order_of_a_set() -> None:
    network, x = trained("plain-sets")
    space = GroupSet(permutations(6)).space((6,), 2, "trivial")
    assert float(equivariance_error(network, space, None, permutations(6), inputs=x)) > 1e-3


@pytest.mark.parametrize("name", CASES)
def test_every_parameter_learns(name: str) -> None:
    network, x = trained(name)
    # Away from its running statistics a network gives every parameter a gradient somewhere.
    network.train()(x).square().sum().backward()
    dead = [n for n, p in network.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # A bias before normalisation has no effect; `fold` uses it.
    assert all(n.startswith("layers.") and n.endswith("bias") for n in dead), dead


def test_networks_of_all_symmetries_have_about_the_same_width() -> None:
    widths = {}
    for make in (trivial, z2, p4, p4m, flips, c4):
        network = invariant_net(make(), (16, 16), 1, 10)
        widths[make().name] = [layer.space_out.shape[0] for layer in network.layers]
    assert set(map(tuple, widths.values())) == {(32, 64, 128)}


def test_a_lattice_that_the_symmetry_does_not_act_on_is_refused() -> None:
    with pytest.raises(ValueError, match="4×6"):
        invariant_net(p4(), (4, 6), 1, 2)
    with pytest.raises(ValueError, match=r"\(4,\)|5"):
        invariant_net(permutations(5), (4,), 1, 2)


def test_a_group_that_mixes_sites_is_refused() -> None:
    normal = np.array([1.0, 2.0, 2.0]) / 3
    reflection = np.eye(3) - 2 * np.outer(normal, normal)
    with pytest.raises(ValueError, match="mixes sites"):
        invariant_net(Symmetry.from_generators("reflection", (3,), [reflection]), (3,), 2, 3)


@pytest.mark.parametrize(
    ("make", "layers", "depth", "lattice"),
    [
        (z2, p4m, 3, (16, 16)),
        (z2, p4, 1, (8, 8)),
        (flips, p4m, 2, (8, 8)),
        (p4, p4m, 3, (8, 8)),
        (trivial, p4, 2, (8, 8)),
        (lambda: translations(1), line_reflections, 2, (16,)),
    ],
)
def test_first_layers_can_obey_more_than_the_outputs(
    make: Callable[[], Symmetry],
    layers: Callable[[], Symmetry],
    depth: int,
    lattice: tuple[int, ...],
) -> None:
    symmetry, strict = make(), layers()
    network = invariant_net(symmetry, lattice, 1, 4, width=16, layers=strict, depth=depth)
    network = network.double().eval()
    x = torch.randn(3, 1, *lattice, dtype=torch.double)
    space = GroupSet(strict).space(lattice, 1, "trivial")
    if not symmetry.is_trivial:
        exact = equivariance_error(network, space, None, symmetry, inputs=x)
        assert float(exact) < 1e-12
    assert float(equivariance_error(network, space, None, strict, inputs=x)) > 1e-3
    for number, layer in enumerate(network.layers):
        error = equivariance_error(layer, layer.space_in, layer.space_out, strict)
        assert (float(error) < 1e-12) == (number < depth)


@pytest.mark.parametrize(
    ("symmetry", "options", "match"),
    [
        (p4(), {"layers": flips()}, "contains p4"),
        (p4(), {"layers": d4()}, "with translations"),
        (c4(), {"layers": p4()}, "translations or nothing"),
        (z2(), {"layers": p4(), "depth": 9}, "between 1 and 3"),
        (z2(), {"depth": 1}, "name that group"),
    ],
)
def test_layers_that_cannot_obey_more_are_refused(
    symmetry: Symmetry, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        invariant_net(symmetry, (8, 8), 1, 2, **options)


def test_a_small_group_on_many_sites_still_has_curvature() -> None:
    """512 maps of one channel to itself: with 27 channels the factors would have 13,824 rows."""
    sites = np.arange(64).reshape(8, 8)
    rows = Symmetry.from_generators("rows", (8, 8), [np.roll(sites, 1, axis=1).ravel()])
    network = invariant_net(rows, (8, 8), 1, 3)
    paths = [m for m in network.modules() if isinstance(m, DenseBasis)]
    assert len(paths) == 3
    for path in paths:
        path.shared_maps()  # raises above 4,096 rows


@pytest.mark.parametrize("make", [trivial, z2, p4])
def test_networks_of_the_usual_width_have_factors_of_their_curvature(
    make: Callable[[], Symmetry],
) -> None:
    network = invariant_net(make(), (16, 16), 1, 10, layers=p4m(), depth=1)
    assert curvature_cost(network).rows <= LARGEST_INPUT
