"""After `rescale`, output channel c is factor[c] · y[c] + shift[c], whatever the paths are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from groupella.groups import GroupSet, Symmetry, c4, p4, p4m, permutations, trivial, z2
from groupella.nn.layer import ResidualPathway, rescale
from groupella.nn.paths import Conv, FactoredFC

GROUPS = GroupSet(z2(), p4(), c4(), trivial())
SPACE = GROUPS.space((4, 4), 2)
TARGET = GROUPS.space((4, 4), 3)

PATHS: list[Any] = [
    "FC",
    "F-FC",
    "F-FC/group",
    "S-FC",
    "CONV",
    "S-CONV",
    "S-GCONV:p4",
    "S-FC/group",
    "GCONV",
    "GCONV/pointwise",
    "GCONV/separable",
    "GCONV/depthwise",
    "GCONV/pairwise",
    "GCONV/uniform",
    "DENSE",
    "TIED",
    "FC+S-CONV+GCONV:p4/separable+DENSE:c4",
    None,
]


def randomised(layer: ResidualPathway) -> ResidualPathway:
    """In float64, with no parameter zero."""
    layer.double()
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if "omega" not in name and "positions" not in name:
                parameter.normal_()
    return layer


def expected(y: Tensor, factor: Tensor, shift: Tensor) -> Tensor:
    """One channel at a time."""
    channels = y.unflatten(1, (len(factor), -1))
    done = [f * channels[:, i] + s for i, (f, s) in enumerate(zip(factor, shift, strict=True))]
    return torch.stack(done, 1).flatten(1, 2)


def check(layer: ResidualPathway) -> None:
    x = torch.randn(3, *layer.space_in.shape, dtype=torch.float64)
    count = layer.space_out.channels
    factor, shift = torch.randn(2, count, dtype=torch.float64)
    with torch.no_grad():
        wanted = expected(layer(x), factor, shift)
        rescale(layer, factor, shift)
        found = layer(x)
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("paths", PATHS, ids=lambda paths: paths or "members")
@pytest.mark.parametrize("increments", [True, False])
def test_every_kind_of_path(paths: str | None, increments: bool) -> None:
    check(randomised(ResidualPathway(SPACE, TARGET, GROUPS, paths, increments=increments)))


@pytest.mark.parametrize(
    ("symmetry", "lattice"),
    [
        pytest.param(permutations(4), (4,), id="sets"),
        pytest.param(
            Symmetry.from_generators("turned over", (3, 3), [np.arange(9).reshape(3, 3).T.ravel()]),
            (3, 3),
            id="generators",
        ),
        pytest.param(p4m(), (4, 4), id="p4m"),
    ],
)
def test_every_kind_of_group(symmetry: Symmetry, lattice: tuple[int, ...]) -> None:
    groups = GroupSet(symmetry, trivial())
    check(randomised(ResidualPathway(groups.space(lattice, 2), groups.space(lattice, 3), groups)))


def test_paths_with_biases_of_their_own() -> None:
    given = {"mine": Conv(SPACE, TARGET, paper_biases=True)}
    check(randomised(ResidualPathway(SPACE, TARGET, GROUPS, given)))


@pytest.mark.parametrize("paths", ["CONV", "F-FC+CONV", "FC+CONV"])
def test_equal_factors_keep_the_phase_of_a_stride(paths: str) -> None:
    target = GROUPS.space((2, 2), 3)
    layer = randomised(ResidualPathway(SPACE, target, GROUPS, paths, stride=2))
    x, shift = torch.randn(5, *SPACE.shape, dtype=torch.float64), torch.randn(3).double()
    before = layer(x).unflatten(1, (3, -1))
    rescale(layer, torch.full((3,), -1.3, dtype=torch.float64), shift)
    expected = (-1.3 * before + shift.view(3, *[1] * 3)).flatten(1, 2)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)


def partly() -> Any:
    """A fibre with an invariant vector that is not constant."""
    group = SPACE.fibre.representation.group
    return group.trivial_representation + group.irrep(1)


REFUSED = [
    pytest.param(lambda: ResidualPathway(SPACE, TARGET, GROUPS, bias=False), "bias", id="no bias"),
    pytest.param(
        lambda: ResidualPathway(SPACE, TARGET, GROUPS, "F-FC", paper_biases=True),
        "bias of its own",
        id="paper biases",
    ),
    pytest.param(
        lambda: ResidualPathway(
            SPACE,
            TARGET,
            GROUPS,
            {"a": Conv(SPACE, TARGET), "b": FactoredFC(SPACE, TARGET, paper_biases=True)},
        ),
        "bias that channels share",
        id="shared bias",
    ),
    pytest.param(
        lambda: ResidualPathway(SPACE, GROUPS.space((2, 2), 3), GROUPS, "CONV", stride=2),
        "stride",
        id="the factors would choose another phase",
    ),
    pytest.param(
        lambda: ResidualPathway(SPACE, GROUPS.space((4, 4), 3, "irrep:1"), GROUPS, "FC"),
        "bias",
        id="no invariant vector",
    ),
    pytest.param(
        lambda: ResidualPathway(SPACE, SPACE.with_channels(3).with_fibre(partly()), GROUPS, "FC"),
        "constants are not invariant",
        id="a part of the fibre has no invariant vector",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_cannot_be_rescaled_is_refused_and_not_touched(make: Any, message: str) -> None:
    layer = randomised(make())
    before = {name: p.clone() for name, p in layer.named_parameters()}
    factor, shift = torch.randn(2, 3, dtype=torch.float64)
    with pytest.raises(ValueError, match=message):
        rescale(layer, factor, shift)
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, before[name]), name
