"""Bad spaces and bad tensors: an error that says what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from groupella.groups import GroupSet, c4, octahedral, p4, p4m, permutations, z2
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    PairwiseConv,
    Path,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
    SparseGroupConv,
    UniformConv,
)

GROUPS = GroupSet(z2(), p4())
SPACE = GROUPS.space((4, 4), 2)
HALF = GROUPS.space((2, 2), 2)
OTHER = GroupSet(z2(), p4m()).space((4, 4), 2)
TURNED = GROUPS.space((4, 4), 2, "irrep:1")

ALL: list[Callable[..., nn.Module]] = [
    FullyConnected,
    FactoredFC,
    SparseFC,
    Conv,
    SparseConv,
    lambda a, b: GroupConv(a, b, z2()),
    lambda a, b: SeparableGroupConv(a, b, z2()),
    lambda a, b: SparseFC(a, b, over="group"),
    lambda a, b: SparseGroupConv(a, b, z2()),
    lambda a, b: PairwiseConv(a, b, z2()),
    lambda a, b: UniformConv(a, b, z2()),
    lambda a, b: DenseBasis(a, b, z2()),
]


@pytest.mark.parametrize("make", ALL)
def test_every_path_is_a_path_and_checks_its_input(make: Callable[..., nn.Module]) -> None:
    path = make(SPACE, SPACE)
    assert isinstance(path, Path)
    with pytest.raises(ValueError, match=r"expected a tensor of shape \(batch, 8, 4, 4\)"):
        path(torch.zeros(1, 6, 4, 4))
    with pytest.raises(TypeError, match="floating-point"):
        path(torch.zeros(1, 8, 4, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match="torch tensor"):
        path([[0.0]])
    assert path(torch.zeros(0, 8, 4, 4)).shape == (0, 8, 4, 4)


@pytest.mark.parametrize("make", ALL)
def test_spaces_of_different_groups(make: Callable[..., nn.Module]) -> None:
    with pytest.raises(ValueError, match="different ambient symmetries"):
        make(SPACE, OTHER)
    with pytest.raises(TypeError, match="must be a FeatureSpace"):
        make(SPACE, (8, 4, 4))


@pytest.mark.parametrize("make", [Conv, SparseConv, ALL[5], ALL[6]])
def test_convolutions_keep_the_lattice(make: Callable[..., nn.Module]) -> None:
    with pytest.raises(ValueError, match="stride=2"):
        make(SPACE, HALF)


@pytest.mark.parametrize("size", [2, (3, 2), (3,), 0, -1])
def test_kernel_sizes(size: object) -> None:
    for make in (
        lambda: Conv(SPACE, SPACE, size),
        lambda: SparseConv(SPACE, SPACE, size),
        lambda: SparseGroupConv(SPACE, SPACE, p4(), size),
        lambda: GroupConv(SPACE, SPACE, p4(), size),
        lambda: SeparableGroupConv(SPACE, SPACE, p4(), size),
    ):
        with pytest.raises(ValueError, match="kernel_size must be odd"):
            make()


def test_a_path_that_cannot_serve_a_space_says_why() -> None:
    with pytest.raises(ValueError, match="equal fibres"):
        GroupConv(SPACE.with_fibre("trivial"), SPACE, p4(), pointwise=True)
    with pytest.raises(ValueError, match="ambient"):
        GroupConv(SPACE, SPACE, p4m())
    with pytest.raises(ValueError, match="use DenseBasis"):
        GroupConv(SPACE, SPACE, c4())
    with pytest.raises(ValueError, match="only zero is p4-equivariant"):
        GroupConv(TURNED, TURNED.with_fibre("trivial"), p4(), 1)
    with pytest.raises(ValueError, match="only zero is"):
        SeparableGroupConv(TURNED, TURNED.with_fibre("trivial"), p4(), depthwise=True)
    odd = SPACE.with_fibre("irrep:2")
    for make in (PairwiseConv, UniformConv):
        with pytest.raises(ValueError, match="within a site"):
            make(odd, odd.with_fibre("trivial"), p4())
    cube = GroupSet(octahedral()).space((4, 4, 4), 1)
    irreps = cube.fibre.representation.group.irreps()
    cube = cube.with_fibre(next(rho for rho in irreps if rho.size == 2))
    with pytest.raises(ValueError, match="use the full group convolution"):
        GroupConv(cube, cube, octahedral(), pointwise=True)
    with pytest.raises(ValueError, match="over must be"):
        FactoredFC(SPACE, SPACE, over="sites")
    with pytest.raises(ValueError, match="omega"):
        SparseFC(SPACE, SPACE, omega=float("nan"))
    for make in (SparseConv, lambda a, b: SparseGroupConv(a, b, p4())):
        with pytest.raises(ValueError, match="at least one axis"):
            make(SPACE.with_lattice(()), SPACE.with_lattice(()))
    with pytest.raises(ValueError, match="a fibre that p4 permutes"):
        SparseGroupConv(TURNED, TURNED, p4())
    line = GroupSet(permutations(4)).space((4,), 1)
    with pytest.raises(ValueError, match="is given by generators"):
        SparseFC(line, line, over="group")
    cube = GroupSet(octahedral(mirrors=True)).space((8, 8, 8), 1)
    with pytest.raises(ValueError, match="24576 points × 12288 anchors"):
        SparseFC(cube, cube, over="group")
    with pytest.raises(ValueError, match="over must be"):
        SparseFC(SPACE, SPACE, over="sites")
    large = GroupSet(permutations(300)).space((300,), 32)
    with pytest.raises(ValueError, match="whole matrix"):
        DenseBasis(large, large, permutations(300))


def test_paths_survive_pickling_and_copying() -> None:
    import copy
    import io

    path = GroupConv(SPACE, SPACE, p4())
    x = torch.randn(2, *SPACE.shape)
    torch.testing.assert_close(copy.deepcopy(path)(x), path(x))
    stored = io.BytesIO()
    torch.save(path, stored)
    stored.seek(0)
    torch.testing.assert_close(torch.load(stored, weights_only=False)(x), path(x))
