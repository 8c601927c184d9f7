"""Images whose phases tie: a strided network is invariant to every element, image by image."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    line_reflections,
    octahedral,
    p4,
    p4m,
    pmm,
)
from groupella.networks import invariant_net, trunk
from groupella.nn.pooling import PolyphasePool
from groupella.nn.pooling._pattern import match

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
        y = network(x)
        for g in space.sample(symmetry or space.ambient, elements):
            worst = torch.maximum(worst, (network(space.act(g, x)) - y).abs().amax(1))
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


def test_sides_that_differ() -> None:
    torch.manual_seed(0)
    network = invariant_net(pmm(), (12, 16), 1, 5, width=16)
    assert broken(network, network.space_in, sparse(300, (12, 16)), 8) == []


@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=["p4", "p4m"])
def test_digits(symmetry: Symmetry) -> None:
    digits = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn")
    x = torch.from_numpy(digits.load_digits().images / 16.0).unsqueeze(1)
    torch.manual_seed(0)
    network = invariant_net(symmetry, (8, 8), 1, 5, width=16)
    assert broken(network, network.space_in, x, 6) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=["p4", "p4m"])
def test_ten_thousand_sparse_images(symmetry: Symmetry, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    network = invariant_net(symmetry, (16, 16), 1, 5, width=16)
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
    found = match(x, *pattern).unsqueeze(1)
    for g in space.sample(symmetry, 20):
        assert isinstance(g, LatticeElement)
        moved = match(space.act(g, x), *pattern).unsqueeze(1)
        torch.testing.assert_close(moved, scalar.act(g, found), rtol=1e-12, atol=1e-12)


def test_the_match_tells_an_image_from_its_mirror_image() -> None:
    space = GroupSet(p4()).space((8, 8), 1, "trivial")
    pattern = PolyphasePool(space).pattern.like(torch.empty((), dtype=torch.float64))
    x = sparse(20, (8, 8), 0.2)
    found, mirrored = (match(image, *pattern).flatten(1).amax(1) for image in (x, x.flip(3)))
    chiral = torch.tensor([not alike(space, a, a.flip(2)) for a in x])
    assert chiral.sum() > 10
    assert torch.equal((found - mirrored).abs() > 1e-9, chiral)


def alike(space: FeatureSpace, a: Tensor, b: Tensor) -> bool:
    """Whether an element maps a to b."""
    elements = space.elements(space.ambient)
    return any(torch.equal(space.act(g, a.unsqueeze(0))[0], b) for g in elements)
