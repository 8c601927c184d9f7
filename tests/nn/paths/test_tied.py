"""TIED: a filter per site, tied along orbits, against loops, the group and the exact curvature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.groups import GroupSet, Symmetry, c4, d4, mirror, p4, trivial, z2
from groupella.harden import harden
from groupella.networks import trunk
from groupella.nn.layer import ResidualPathway, is_tied
from groupella.nn.paths import DenseBasis, TiedFilter
from groupella.nn.shared_maps import FactorTooLargeError
from groupella.testing import CurvatureCase, assert_equivariant
from groupella.training import fit

CASES: list[tuple[Symmetry, tuple[int, int], Any]] = [
    (c4(), (5, 5), "circular"),
    (d4(), (6, 6), "zeros"),
    (d4(), (5, 5), "circular"),
    (mirror(), (5, 6), "zeros"),
]


@pytest.mark.parametrize(("symmetry", "lattice", "padding"), CASES)
@pytest.mark.parametrize("fibre", ["trivial", "regular"])
def test_it_is_exactly_equivariant(
    symmetry: Symmetry, lattice: tuple[int, int], padding: Any, fibre: str
) -> None:
    groups = GroupSet(trivial(), symmetry)
    before, after = groups.space(lattice, 2, fibre), groups.space(lattice, 3)
    path = TiedFilter(before, after, symmetry, padding=padding).double()
    assert_equivariant(path, before, after, GroupSet(symmetry), dtype=torch.float64)
    x = torch.randn(400, *before.shape, dtype=torch.float64)
    assert 1.7 < float(path(x).var().detach()) < 2.3  # He's gain


def test_a_locally_connected_layer_by_loops() -> None:
    groups = GroupSet(trivial())
    before, after = groups.space((4, 5), 2, "trivial"), groups.space((4, 5), 3, "trivial")
    path = TiedFilter(before, after, trivial(), padding="zeros").double()
    units = torch.eye(40, dtype=torch.float64).reshape(40, 2, 4, 5)
    matrix = path(units).detach().permute(1, 2, 3, 0).reshape(3, 4, 5, 2, 4, 5)
    weights = [w.detach().flatten() for w in path.weights]
    found = []
    for i, j, k, m in np.ndindex(4, 5, 4, 5):
        block = matrix[:, i, j, :, k, m]
        if abs(i - k) <= 1 and abs(j - m) <= 1:
            found.append(block.flatten())
        else:
            assert not block.any()
    # Every weight is the entry of one site and one neighbour, once.
    torch.testing.assert_close(torch.cat(found).sort().values, torch.cat(weights).sort().values)


def test_with_equal_filters_it_is_a_convolution() -> None:
    groups = GroupSet(trivial())
    space = groups.space((5, 6), 2, "trivial")
    path = TiedFilter(space, space, trivial()).double()
    filters = torch.randn(2, 2, 3, 3, dtype=torch.float64)
    path.weight.data.zero_()
    x = torch.randn(3, 2, 5, 6, dtype=torch.float64)
    padded = nn.functional.pad(x, (1, 1, 1, 1), mode="circular")
    expected = nn.functional.conv2d(padded, filters)
    # Entries are in ascending order of the sites, which the torus mixes: find each by its site.
    index = path.kinds[0].index[:, 0, :, 0]
    for r, j in np.ndindex(*index.shape):
        (p, q), (k, m) = divmod(r, 6), divmod(int(index[r, j]), 6)
        step = [(k - p + 1) % 5, (m - q + 1) % 6]
        path.weight.data[:, 0, r, j] = filters[:, :, step[0], step[1]]
    torch.testing.assert_close(path(x), expected)


class TestExactCurvature(CurvatureCase):
    """One datum, and no orbit has two sites: each filter's block is the GGN block."""

    def module(self) -> nn.Module:
        space = GroupSet(trivial()).space((2, 3), 2, "trivial")
        return TiedFilter(space, space, trivial(), (1, 3))

    def inputs(self) -> Tensor:
        return torch.randn(2, 2, 2, 3)

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        space = GroupSet(trivial()).space((1, 1), 2, "trivial")
        return TiedFilter(space, space, trivial(), 1), torch.randn(1, 2, 1, 1)


class TestCurvatureOnOrbits(CurvatureCase):
    """Turned filters, those of the centre and those near the border are maps of several kinds."""

    def module(self) -> nn.Module:
        groups = GroupSet(trivial(), c4())
        before, after = groups.space((3, 3), 2, "trivial"), groups.space((3, 3), 1)
        path = TiedFilter(before, after, c4(), padding="zeros", paper_biases=True)
        assert len(path.weights) > 1
        return path

    def inputs(self) -> Tensor:
        return torch.randn(2, 2, 3, 3)


def test_a_layer_takes_it_by_name_and_hardens() -> None:
    groups = GroupSet(trivial(), c4(), d4())
    before, after = groups.space((7, 7), 2, "trivial"), groups.space((7, 7), 2)
    layer = ResidualPathway(before, after, groups, "TIED+F-FC", kernel_size=5, padding="zeros")
    assert list(layer.paths) == ["TIED:c4", "TIED:d4", "F-FC"]
    assert layer.subspaces["TIED:d4"] == ("trivial", "c4", "d4")
    assert layer.paths["TIED:c4"].support == (5, 5)
    assert layer.paths["TIED:c4"].padding == "zeros"
    layer.double()
    for name in ("c4", "d4"):
        strict = layer.strict(name)
        assert_equivariant(strict, before, after, GroupSet(groups[name]), dtype=torch.float64)
    x = torch.randn(3, *before.shape, dtype=torch.float64)
    torch.testing.assert_close(harden(layer)(x), layer(x))


def test_large_lattices_get_it_instead_of_a_dense_basis() -> None:
    groups = GroupSet(trivial(), c4(), p4(), z2())
    small, large = groups.space((4, 4), 1), groups.space((16, 16), 1)
    assert not is_tied(c4(), small, small)
    assert is_tied(c4(), groups.space((4, 4), 5), small)  # 5 channels × 1,024 maps
    assert is_tied(c4(), large, large)
    assert not is_tied(p4(), large, large)
    assert isinstance(ResidualPathway(small, small, groups).paths["c4"], DenseBasis)
    for increments in (True, False):
        layer = ResidualPathway(large, large, groups, increments=increments).double()
        assert isinstance(layer.paths["c4"], TiedFilter)
        assert set(layer.subspaces["p4"]) == {"trivial", "c4", "p4", "z2"}
        assert list(layer.strict("c4").paths) == ["c4", "p4"]
        assert_equivariant(layer.strict("c4"), large, large, GroupSet(c4()), dtype=torch.float64)
        assert_equivariant(layer.strict("p4"), large, large, GroupSet(p4()), dtype=torch.float64)


SMALL = GroupSet(c4()).space((4, 4), 8)


def fail(*_: Any) -> None:
    pytest.fail("it trains")


def test_later_layers_have_evidence_where_the_factor_of_a_dense_basis_is_too_large() -> None:
    torch.manual_seed(0)
    options: dict[str, Any] = {"burn_in": 0, "epochs": 1, "progress": False}
    options |= {"curvature_subset": 4, "curvature_samples": 1, "batch_size": 8}
    data = (torch.randn(8, 1, 8, 8), torch.arange(8) % 2)
    groups = GroupSet(c4())
    network = trunk(groups, alpha=2, image_size=8, in_channels=1, blocks=[(4, 2), (1, 2)])
    assert math.isfinite(fit(network, data, **options).log_evidence)
    dense = nn.Sequential(DenseBasis(SMALL, SMALL.with_channels(1), c4()), nn.Flatten())
    with pytest.raises(FactorTooLargeError, match=r"factor of 8,192 rows .* path TIED"):
        fit(dense, (torch.randn(8, *SMALL.shape), data[1]), on_epoch=fail, **options)
