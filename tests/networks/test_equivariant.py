"""`equivariant_net`: exactly equivariant, paths for the members of a chain, trained by `fit`."""

from __future__ import annotations

import pytest
import torch

from groupella.evidence import Prior
from groupella.evidence.likelihoods import Gaussian
from groupella.groups import (
    SCALAR,
    GroupSet,
    V,
    about_axis,
    lorentz,
    orthogonal,
    permutations,
    rotations,
    trivial,
)
from groupella.networks import EquivariantNet, equivariant_net
from groupella.training import fit

CHAIN = GroupSet(orthogonal(3), rotations(3), about_axis(2), trivial())
INPUTS = CHAIN.space((), 3, SCALAR + V)


def error(network: EquivariantNet, groups: GroupSet, name: str) -> float:
    network = network.double()
    x = torch.randn(6, *network.space_in.shape, dtype=torch.double)
    y = network(x).detach()
    errors = [
        (network(network.space_in.act(g, x)) - network.space_out.act(g, y)).abs().max().item()
        for g in network.space_in.sample(groups[name], 4)
    ]
    return max(errors) / float(y.abs().max())


@pytest.mark.parametrize("name", ["O(3)", "SO(3)", "SO(2)z"])
def test_it_obeys_its_symmetry_and_no_more(name: str) -> None:
    torch.manual_seed(0)
    network = equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V * V), name, channels=3)
    for member in ("O(3)", "SO(3)", "SO(2)z"):
        bound = error(network, CHAIN, member)
        assert bound < 1e-10 if CHAIN.contains(name, member) else bound > 1e-4


def test_every_layer_has_a_path_for_every_member() -> None:
    torch.manual_seed(0)
    network = equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V), channels=2, depth=1)
    assert set(network.head.paths) <= {"O(3)", "SO(3)", "SO(2)z", "trivial"}
    assert set(network.blocks[0].bilinear.paths) == {"O(3)", "SO(3)", "SO(2)z", "trivial"}
    assert error(network, CHAIN, "SO(2)z") > 1e-4


def test_boosts_and_sets_of_vectors() -> None:
    torch.manual_seed(0)
    so13 = GroupSet(lorentz())
    four = so13.space((), 4, V)
    network = equivariant_net(so13, four, so13.space((), 1, SCALAR), "SO(1,3)", channels=3)
    assert error(network, so13, "SO(1,3)") < 1e-9
    cloud = GroupSet(permutations(5) * orthogonal(3, lattice=5))
    points = cloud.space(5, 1, V)
    network = equivariant_net(cloud, points, cloud.space((), 1, V), cloud.names[0], channels=2)
    assert error(network, cloud, cloud.names[0]) < 1e-10


def test_it_trains_and_keeps_its_symmetry() -> None:
    torch.manual_seed(0)
    x = torch.randn(200, 12)
    vectors = x.view(200, 3, 4)[..., 1:]
    y = torch.linalg.cross(vectors[:, 0], vectors[:, 1]) + vectors[:, 2]
    network = equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V), "SO(3)", channels=4, depth=1)
    done = fit(
        network,
        (x, y),
        Gaussian(),
        epochs=40,
        lr=0.02,
        clip=1.0,
        method="map",
        prior=Prior.from_network(network, precisions=1e-6),
        progress=False,
    )
    trained = done.network
    assert isinstance(trained, EquivariantNet)
    unexplained = (trained(x) - y).square().mean() / y.square().mean()
    assert unexplained.item() < 0.1
    assert error(trained, CHAIN, "SO(3)") < 1e-10


def test_what_it_cannot_be_is_refused() -> None:
    cloud = GroupSet(permutations(5) * orthogonal(3, lattice=5))
    with pytest.raises(ValueError, match="outputs without sites"):
        equivariant_net(cloud, cloud.space(5, 1, V), cloud.space(5, 1, V))
    with pytest.raises(ValueError, match="no member"):
        equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V), rotations(4))
    with pytest.raises(ValueError, match="no member 'SO'"):
        equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V), "SO")
    with pytest.raises(ValueError, match="at least 1"):
        equivariant_net(CHAIN, INPUTS, CHAIN.space((), 1, V), depth=0)
