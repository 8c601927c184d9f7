"""Every path on every shipped symmetry and fibre, in both precisions, obeys what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import nn

from groupella import groups as g
from groupella.groups import FeatureSpace, GroupSet, Symmetry
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    PairwiseConv,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
    SparseGroupConv,
    UniformConv,
)
from groupella.testing import assert_equivariant

# (symmetry, lattice): even and odd sides, square and oblong, lines, planes and volumes.
SHIPPED: list[tuple[Symmetry, tuple[int, ...]]] = [
    (g.trivial(), (4, 4)),
    (g.translations(1), (6,)),
    (g.z2(), (4, 3)),
    (g.translations(3), (2, 3, 2)),
    (g.p2(), (4, 5)),
    (g.p4(), (4, 4)),
    (g.p4m(), (5, 5)),
    (g.flips(), (3, 4)),
    (g.flips(0), (4, 3)),
    (g.pmm(), (4, 4)),
    (g.cm(), (4, 4)),
    (g.cm(anti=True), (3, 3)),
    (g.cmm(), (4, 4)),
    (g.c2(), (4, 3)),
    (g.c4(), (4, 4)),
    (g.d4(), (3, 3)),
    (g.d2(), (3, 4)),
    (g.d2(diagonal=True), (3, 3)),
    (g.mirror(), (3, 4)),
    (g.diagonal(), (3, 3)),
    (g.diagonal(anti=True), (4, 4)),
    (g.line_reflections(), (6,)),
    (g.octahedral(), (3, 3, 3)),
    (g.octahedral(mirrors=True), (2, 2, 2)),
    (g.octahedral_point(), (2, 2, 2)),
    (g.octahedral_point(mirrors=True), (2, 2, 2)),
    (g.inversion(), (2, 2, 3)),
    (g.inversion(translations=True), (2, 3, 2)),
    (g.flips(0, dim=3), (2, 3, 2)),
    (g.mirror(2, dim=3), (2, 2, 2)),
    (g.permutations(5), (5,)),
    (g.cyclic(6), (6,)),
]
# Without a point group there is the trivial fibre only.
CASES = [
    pytest.param(symmetry, lattice, fibre, id=f"{symmetry}-{fibre}")
    for symmetry, lattice in SHIPPED
    for fibre in (("trivial", "regular", "irrep") if len(symmetry.point) > 1 else ("trivial",))
]


def fibre_of(symmetry: Symmetry, kind: str, lattice: tuple[int, ...]) -> object:
    """The named fibre; "irrep" is the largest one."""
    if kind != "irrep":
        return kind
    regular = GroupSet(symmetry).space(lattice, 1)
    return max(regular.fibre.representation.group.irreps(), key=lambda rho: rho.size)


def paths(source: FeatureSpace, target: FeatureSpace, symmetry: Symmetry) -> Iterator[nn.Module]:
    """All paths that serve the pair of spaces."""
    yield FullyConnected(source, target)
    yield FactoredFC(source, target)
    yield FactoredFC(source, target, over="group")
    yield SparseFC(source, target)
    yield Conv(source, target)
    yield SparseConv(source, target)
    yield DenseBasis(source, target, symmetry)
    if not symmetry.translations:
        return
    yield GroupConv(source, target, symmetry, paper_biases=source.fibre_permutes)
    makers: list[Callable[[], nn.Module]] = [
        lambda: GroupConv(source, target, symmetry, pointwise=True),
        lambda: SeparableGroupConv(source, target, symmetry),
        lambda: SeparableGroupConv(source, target, symmetry, depthwise=True),
        lambda: PairwiseConv(source, target, symmetry),
        lambda: UniformConv(source, target, symmetry),
    ]
    matrices = [source.fibre_matrix(e) for e in source.generators(symmetry)]
    if all(np.array_equal(m, np.rint(np.abs(m))) for m in matrices):
        yield SparseGroupConv(source, target, symmetry, paper_biases=True)
        yield SparseGroupConv(source, target, symmetry, learn_positions=True)
        yield SparseFC(source, target, over="group")
    else:
        with pytest.raises(ValueError, match="need a fibre that"):
            SparseGroupConv(source, target, symmetry)
        with pytest.raises(ValueError, match="need a fibre that"):
            SparseFC(source, target, over="group")
    entries = [np.abs(m) for m in matrices]
    if all(np.array_equal(m, np.rint(m)) for m in entries):
        yield from (make() for make in makers)
        return
    for make in makers:
        with pytest.raises(ValueError, match=r"permutes \(up to signs\)"):
            make()


@pytest.mark.parametrize(("symmetry", "lattice", "fibre"), CASES)
def test_paths_obey_their_symmetry(
    symmetry: Symmetry, lattice: tuple[int, ...], fibre: str
) -> None:
    chosen = fibre_of(symmetry, fibre, lattice)
    space = GroupSet(symmetry).space
    channels = 2 if len(symmetry.point) <= 24 else 1
    source, target = space(lattice, channels, chosen), space(lattice, 1, chosen)
    for path in paths(source, target, symmetry):
        for parameter in path.parameters():
            nn.init.normal_(parameter)
        obeyed = path.symmetry if path.symmetry.dim != source.ambient.dim else symmetry
        if not _inside(source, path.symmetry) or path.symmetry.is_trivial:
            obeyed = g.trivial()
        else:
            obeyed = path.symmetry
        for dtype in (torch.float32, torch.float64):
            assert_equivariant(path, source, target, obeyed, dtype=dtype, batch=2, elements=2)


def _inside(space: FeatureSpace, symmetry: Symmetry) -> bool:
    """A convolution obeys translations also where the set has none: they cannot be tried there."""
    try:
        space.generators(symmetry)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("fibres", [("trivial", "regular"), ("regular", "trivial")])
def test_fibres_may_change_along_a_path(fibres: tuple[str, str]) -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m(), g.flips(0))
    source, target = groups.space((4, 4), 2, fibres[0]), groups.space((4, 4), 3, fibres[1])
    for symmetry in (g.p4(), g.p4m(), g.flips(0)):
        for path in (
            GroupConv(source, target, symmetry),
            SparseGroupConv(source, target, symmetry),
            SeparableGroupConv(source, target, symmetry),
            SeparableGroupConv(source, target, symmetry, depthwise=True),
            PairwiseConv(source, target, symmetry),
            UniformConv(source, target, symmetry),
            DenseBasis(source, target, symmetry),
        ):
            assert_equivariant(path, source, target, symmetry, dtype=torch.float64)


def test_a_path_is_not_equivariant_to_more_than_it_says() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m())
    space = groups.space((4, 4), 2)
    for path, larger in (
        (GroupConv(space, space, g.p4()), g.p4m()),
        (SparseGroupConv(space, space, g.p4()), g.p4m()),
        (PairwiseConv(space, space, g.p4()), g.p4m()),
        (UniformConv(space, space, g.p4()), g.p4m()),
        (SparseFC(space, space, over="group"), g.z2()),
        (Conv(space, space), g.p4()),
        (DenseBasis(space, space, g.c4()), g.z2()),
        (FactoredFC(space, space), g.z2()),
    ):
        with pytest.raises(AssertionError, match="not equivariant"):
            assert_equivariant(path, space, space, larger)


def test_float64_is_exact_after_a_life_in_float32() -> None:
    groups = GroupSet(g.p4m())
    space = groups.space((4, 4), 2, "regular")
    path = GroupConv(space, space, g.p4m()).float()
    path(torch.randn(1, *space.shape))
    assert_equivariant(path.double(), space, space, g.p4m())
