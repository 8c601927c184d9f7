"""A user's own network in units: which spaces it finds, what it refuses, what it keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.evidence.likelihoods import Gaussian
from groupella.groups import FeatureSpace, GroupSet, internal, p4, p4m, permutations, trivial, z2
from groupella.harden import harden
from groupella.networks import trunk, with_units
from groupella.nn.layer import ResidualPathway
from groupella.nn.pooling import GlobalPool
from groupella.nn.standardise import InUnits
from groupella.training import fit

GROUPS = GroupSet(z2(), p4(), trivial())


def turning(space: FeatureSpace) -> FeatureSpace:
    irreps = space.fibre.representation.group.irreps()
    return space.with_fibre(next(rho for rho in irreps if rho.size > 1))


def rotated_vectors() -> FeatureSpace:
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    return GroupSet(permutations(6) * internal("turns", 6, [turn])).space((6,), 2)


SPACES = {
    "scalars": lambda: GROUPS.space((4, 4), 2, "trivial"),
    "regular": lambda: GroupSet(p4m()).space((4, 4), 2),
    "irrep": lambda: turning(GroupSet(p4()).space((4, 4), 2)),
    "vectors": rotated_vectors,
}


def field(space: FeatureSpace, stride: int = 1) -> ResidualPathway:
    torch.manual_seed(0)
    groups = GroupSet(space.ambient)
    return ResidualPathway(space, space.with_channels(1), groups, init="balanced").double()


@pytest.mark.parametrize("name", SPACES)
def test_a_calibrated_network_is_as_equivariant_as_before(name: str) -> None:
    """Of data with offsets: a mean that a group moves must not be subtracted."""
    space = SPACES[name]()
    layer = field(space)
    network = with_units(layer)
    x = 7.0 + 3.0 * torch.randn(20, *space.shape, dtype=torch.float64)
    y = 5.0 + 1e4 * torch.randn(20, *layer.space_out.shape, dtype=torch.float64)
    network.inputs.calibrate([x])
    network.outputs.calibrate([y])
    assert float(network.outputs.std.min()) > 1e3
    with torch.no_grad():
        for g in space.sample(space.ambient, 12):
            moved = layer.space_out.act(g, network(x))
            torch.testing.assert_close(network(space.act(g, x)), moved, rtol=0, atol=1e-8)


def images(n: int = 40) -> tuple[Tensor, Tensor]:
    x = 1e6 * (3.0 + torch.randn(n, 1, 4, 4, dtype=torch.float64))
    return x, 1e-6 * x.flatten(1).mean(1, keepdim=True) + 1.0


def own() -> nn.Sequential:
    torch.manual_seed(0)
    space = GROUPS.space((4, 4), 1, "trivial")
    hidden = GROUPS.space((4, 4), 3)
    layer = ResidualPathway(space, hidden, GROUPS)
    return nn.Sequential(layer, nn.ReLU(), GlobalPool(hidden), nn.Linear(12, 1))


def test_saved_and_hardened_networks_take_raw_data(tmp_path: Path) -> None:
    x, y = images()
    network = with_units(own())
    settings = {"epochs": 3, "burn_in": 1, "update_every": 1, "progress": False}
    fit(network, (x, y), Gaussian(), **settings)
    with torch.no_grad():
        f = network.eval()(x)
        assert 0.5 < float(f.mean() / y.mean()) < 2
        torch.save(network.state_dict(), tmp_path / "network.pt")
        again = with_units(own()).eval()
        again.load_state_dict(torch.load(tmp_path / "network.pt"))
        assert torch.equal(again(x), f)
        torch.testing.assert_close(harden(network)(x), f, rtol=1e-5, atol=1e-5)


def test_outputs_on_sites_share_a_mean() -> None:
    space = GROUPS.space((4, 4), 1, "trivial")
    network = with_units(nn.Sequential(ResidualPathway(space, space, GROUPS), nn.Flatten()))
    network.outputs.calibrate([torch.arange(16.0).expand(5, -1)])
    assert network.outputs.mean.unique().tolist() == [7.5]
    invariant = with_units(own())
    assert invariant.outputs.space is None


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_a_constant_target_has_no_say_in_the_scale_of_the_others(factor: float) -> None:
    y = torch.randn(50, 2, dtype=torch.float64)
    outputs = InUnits(3)
    outputs.calibrate([torch.cat([factor * y, torch.full((50, 1), 7.0)], 1)])
    expected = factor * float(y.var(0, correction=0).mean().sqrt())
    assert outputs.std.tolist() == pytest.approx([expected] * 3)
    assert float(outputs.mean[2]) == 7.0
    outputs.calibrate([torch.zeros(5, 3)])
    assert outputs.std.tolist() == [1.0] * 3


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match="has units already"):
        with_units(with_units(own()))
    with pytest.raises(ValueError, match="has units already"):
        with_units(trunk(GROUPS, "F-FC+CONV", 1, 4, 2, in_channels=1, blocks=[(1, 1)]))
    plain = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    with pytest.raises(ValueError, match="has a space_in"):
        with_units(plain)
    space = GROUPS.space((4, 4), 1, "trivial")
    assert with_units(plain, space).inputs.space_in == space
    with pytest.raises(ValueError, match="has 2 outputs"):
        with_units(plain, space, space)


def test_fit_warns_of_data_whose_size_decides() -> None:
    x, y = images()
    settings = {"epochs": 1, "method": "map", "progress": False}
    with pytest.warns(UserWarning, match="the inputs have a root mean square of 3.1.e.06"):
        fit(own(), (x.float(), (y / 4).float()), Gaussian(), **settings)
    with pytest.warns(UserWarning, match="the targets have a root mean square of 39"):
        fit(own(), ((1e-6 * x).float(), (10 * y).float()), Gaussian(), **settings)
    fit(with_units(own()), (x, 1e5 * y), Gaussian(), **settings)
