"""Images whose phases tie: a strided network is invariant to every element, image by image."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    flips,
    line_reflections,
    octahedral,
    p4,
    p4m,
    pmm,
    z2,
)
from groupella.harden import harden
from groupella.networks import InvariantNet, Trunk, invariant_net, trunk
from groupella.nn.layer import ResidualPathway
from groupella.nn.pooling import PolyphasePool
from groupella.nn.pooling._pattern import matches

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}


def broken(
    network: torch.nn.Module,
    space: FeatureSpace,
    x: Tensor,
    elements: int,
    symmetry: Symmetry | None = None,
) -> list[int]:
    """The images with f(gx) ≠ f(x) for one of some random elements, against the outputs' spread."""
    network = network.to(x.dtype).eval()
    worst = torch.zeros(len(x), dtype=x.dtype)
    with torch.no_grad():
        y = torch.cat([network(part) for part in x.split(100)])
        for g in space.sample(symmetry or space.ambient, elements):
            moved = torch.cat([network(space.act(g, part)) for part in x.split(100)])
            worst = torch.maximum(worst, (moved - y).abs().amax(1))
    spread = y.std(0).mean() if len(y) > 1 else y.abs().mean()
    return (worst > TOLERANCE[x.dtype] * spread).nonzero().flatten().tolist()


def sparse(n: int, sides: tuple[int, int] = (16, 16), density: float = 0.02) -> Tensor:
    uniform = np.random.default_rng(0).random((n, 1, *sides))
    return torch.from_numpy((uniform < density).astype(np.float64))


def symmetric(n: int) -> Tensor:
    """Sparse images that are their own mirror images, turned by half a circle, or shifted."""
    x = sparse(n // 3)
    return torch.cat([x + x.flip(3), x + x.rot90(2, (2, 3)), x + x.roll((8, 8), (2, 3))])


def levels(n: int, count: int) -> Tensor:
    """8-bit values of few levels, on a coarse grid."""
    values = np.random.default_rng(1).integers(0, count, (n, 1, 16, 16)) * (255 // (count - 1))
    return torch.from_numpy(values / 255.0)


KINDS = {
    "sparse": lambda: sparse(300),
    "sparser": lambda: sparse(100, density=0.01),
    "binary": lambda: sparse(60, density=0.5),
    "8-bit": lambda: torch.cat([levels(30, 3), levels(30, 256)]),
    "symmetric": lambda: symmetric(150),
    "padded": lambda: torch.nn.functional.pad(sparse(150, (15, 13)), (1, 2, 0, 1)),
    "constant": lambda: torch.full((2, 1, 16, 16), 0.3, dtype=torch.float64),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=["p4", "p4m"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_image_keeps_its_output(kind: str, symmetry: Symmetry, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = invariant_net(symmetry, (16, 16), 1, 5, width=16)
    assert broken(network, network.space_in, KINDS[kind]().to(dtype), 8) == []


@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=["p4", "p4m"])
def test_strided_layers(symmetry: Symmetry) -> None:
    torch.manual_seed(0)
    blocks = [(1, 1), (1, 2), (2, 2)]
    network = trunk(GroupSet(symmetry), "GCONV", 2, 16, 5, in_channels=1, blocks=blocks)
    assert broken(network, network.space_in, sparse(300), 8) == []


def test_the_strict_limit_of_a_network_with_a_larger_ambient_group() -> None:
    torch.manual_seed(0)
    blocks = [(1, 1), (1, 2), (2, 2)]
    groups = GroupSet(p4(), p4m())
    network = trunk(groups, None, 2, 16, 5, in_channels=1, blocks=blocks, init="balanced")
    strict, x = network.strict("p4"), torch.cat([sparse(100), symmetric(100)])
    assert broken(strict, network.space_in, x, 8, p4()) == []


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize(
    "members", [("p4m", "p4m", "p4"), ("p4m", "p4m", "z2"), ("p4", "p4", "z2")], ids="/".join
)
def test_layers_that_obey_less_above_layers_that_obey_more(
    members: tuple[str, ...], dtype: torch.dtype
) -> None:
    """Where a mirror exchanges the phases of the lower features, upper ones tell them apart."""
    torch.manual_seed(0)
    groups, blocks = GroupSet(z2(), p4(), p4m()), [(1, 1), (1, 2), (2, 2)]
    network = trunk(groups, None, 2, 16, 5, in_channels=1, blocks=blocks, init="balanced")
    layers = zip(network.layers, members, strict=True)
    network.layers = nn.ModuleList(layer.strict(name) for layer, name in layers)  # type: ignore[operator]
    x = torch.cat([sparse(60), symmetric(150)]).to(dtype)
    assert broken(network, network.space_in, x, 8, groups[members[-1]]) == []
    plain = harden(network)
    with torch.no_grad():
        torch.testing.assert_close(plain(x), network(x), rtol=1e-3, atol=1e-4)


def test_members_that_do_not_contain_each_other() -> None:
    """The strict network of one of them knows whose choice it has to make."""
    torch.manual_seed(0)
    groups, blocks = GroupSet(p4(), flips()), [(1, 1), (1, 2), (2, 2)]
    network = trunk(groups, None, 2, 16, 5, in_channels=1, blocks=blocks, init="balanced")
    x = symmetric(150)
    for member in groups:
        strict = network.strict(member.name)
        for layer in strict.layers[:2]:
            assert isinstance(layer, ResidualPathway)
            layer.paths = nn.ModuleDict({"p4&flips": layer.paths["p4&flips"]})
        assert broken(strict, network.space_in, x, 8, member) == []


def test_sides_that_differ() -> None:
    torch.manual_seed(0)
    network = invariant_net(pmm(), (12, 16), 1, 5, width=16)
    assert broken(network, network.space_in, sparse(300, (12, 16)), 8) == []


def strided(symmetry: Symmetry, side: int) -> Trunk:
    """Every phase chosen from features, twice."""
    blocks = [(1, 1), (2, 2), (2, 2)]
    return trunk(GroupSet(symmetry), "GCONV", 2, side, 5, in_channels=1, blocks=blocks)


def centred(symmetry: Symmetry, side: int) -> InvariantNet:
    return invariant_net(symmetry, (side, side), 1, 5, width=16)


@pytest.mark.parametrize("made", [centred, strided])
@pytest.mark.parametrize("symmetry", [flips(), p4(), p4m()], ids=str)
def test_digits(symmetry: Symmetry, made: Callable[[Symmetry, int], nn.Module]) -> None:
    digits = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn")
    x = torch.from_numpy(digits.load_digits().images / 16.0).unsqueeze(1)
    torch.manual_seed(0)
    network = made(symmetry, 8)
    assert broken(network, network.space_in, x, 6) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "dtype"),
    [(centred, torch.float64), (centred, torch.float32), (strided, torch.float64)],
    ids=["centred-float64", "centred-float32", "strided-float64"],
)
@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=["p4", "p4m"])
def test_ten_thousand_sparse_images(
    symmetry: Symmetry, made: Callable[[Symmetry, int], nn.Module], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    network = made(symmetry, 16)
    assert broken(network, network.space_in, sparse(10_000).to(dtype), 4) == []


def space_of(symmetry: Symmetry, lattice: tuple[int, ...], fibre: str) -> FeatureSpace:
    space = GroupSet(symmetry).space(lattice, 2)
    if fibre != "turning":
        return space.with_fibre(fibre)
    irreps = space.fibre.representation.group.irreps()
    return space.with_fibre(next(rho for rho in irreps if rho.size > 1))


@pytest.mark.parametrize(
    ("symmetry", "lattice", "fibre"),
    [
        (p4m(), (4, 4), "regular"),
        (p4m(), (6, 6), "trivial"),
        (p4(), (4, 4), "turning"),
        (pmm(), (4, 6), "regular"),
        (line_reflections(), (8,), "regular"),
        (octahedral(), (4, 4, 4), "turning"),
    ],
    ids=str,
)
def test_the_match_moves_with_the_sample(
    symmetry: Symmetry, lattice: tuple[int, ...], fibre: str
) -> None:
    space = space_of(symmetry, lattice, fibre)
    pattern = PolyphasePool(space).pattern.like(torch.empty((), dtype=torch.float64))
    scalar = space.with_fibre("trivial").with_channels(1)
    x = torch.randn(2, *space.shape, dtype=torch.float64)
    found = matches(x, *pattern).amax(1, keepdim=True)
    for g in space.sample(symmetry, 20):
        assert isinstance(g, LatticeElement)
        moved = matches(space.act(g, x), *pattern).amax(1, keepdim=True)
        torch.testing.assert_close(moved, scalar.act(g, found), rtol=1e-12, atol=1e-12)


def test_the_match_tells_an_image_from_its_mirror_image() -> None:
    space = GroupSet(p4()).space((8, 8), 1, "trivial")
    pattern = PolyphasePool(space).pattern.like(torch.empty((), dtype=torch.float64))
    x = sparse(20, (8, 8), 0.2)
    found, mirrored = (matches(image, *pattern).flatten(1).amax(1) for image in (x, x.flip(3)))
    chiral = torch.tensor([not alike(space, a, a.flip(2)) for a in x])
    assert chiral.sum() > 10
    assert torch.equal((found - mirrored).abs() > 1e-9, chiral)


def alike(space: FeatureSpace, a: Tensor, b: Tensor) -> bool:
    """Whether an element maps a to b."""
    elements = space.elements(space.ambient)
    return any(torch.equal(space.act(g, a.unsqueeze(0))[0], b) for g in elements)
