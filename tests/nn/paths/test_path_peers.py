"""GroupConv against the convolutions of escnn and e2cnn with the same filter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from groupella.bases import kernel_basis
from groupella.groups import GroupSet, Symmetry, p4, p4m
from groupella.groups.gate import load_gspaces, load_nn
from groupella.nn.paths import GroupConv


def with_their_filter(
    symmetry: Symmetry, fibres: tuple[str, str], expanded: torch.Tensor
) -> tuple[GroupConv, float]:
    """Our path with their filter projected onto our basis, and how much of it that loses."""
    groups = GroupSet(symmetry)
    source, target = groups.space((6, 6), 2, fibres[0]), groups.space((6, 6), 3, fibres[1])
    path = GroupConv(source, target, symmetry).double()
    blocks = expanded.double().reshape(3, target.fibre_size, 2, source.fibre_size, 3, 3)
    blocks = blocks.transpose(1, 2).numpy()
    basis = kernel_basis(source, target, symmetry, 3)
    u = basis.coefficients(blocks)
    with torch.no_grad():
        path.weight.copy_(torch.from_numpy(u))
    lost = np.abs(basis.expand(u) - blocks).max() / np.abs(blocks).max()
    return path, float(lost)


def compare(
    library: str, symmetry: Symmetry, fibres: tuple[str, str], space: Any, enn: Any
) -> None:
    """Their convolution on their geometric tensor, ours on the plain one."""
    named = {"regular": space.regular_repr, "trivial": space.trivial_repr}
    source, target = (
        enn.FieldType(space, n * [named[f]]) for n, f in zip((2, 3), fibres, strict=True)
    )
    theirs = enn.R2Conv(source, target, 3, padding=1, padding_mode="circular", bias=False)
    theirs.eval()
    path, lost = with_their_filter(symmetry, fibres, theirs.filter.detach())
    # Their basis is sampled in single precision.
    assert lost < 1e-5, f"{library}'s filter is not in our space"
    x = torch.randn(4, source.size, 6, 6)
    with torch.no_grad():
        expected = theirs(enn.GeometricTensor(x, source)).tensor
        torch.testing.assert_close(path(x.double()).float(), expected, rtol=1e-4, atol=1e-5)


CASES = pytest.mark.parametrize(
    ("symmetry", "fibres"),
    [
        (symmetry, fibres)
        for symmetry in (p4(), p4m())
        for fibres in (("regular", "regular"), ("trivial", "regular"), ("regular", "trivial"))
    ],
    ids=str,
)


@CASES
def test_equals_escnn(symmetry: Symmetry, fibres: tuple[str, str]) -> None:
    gspaces = load_gspaces()
    space = gspaces.rot2dOnR2 if len(symmetry.point) == 4 else gspaces.flipRot2dOnR2
    compare("escnn", symmetry, fibres, space(4), load_nn())


# e2cnn is no longer maintained: it indexes with bytes and uses names that numpy deprecates.
@pytest.mark.filterwarnings(
    "ignore:.*torch.uint8 is now deprecated:UserWarning",
    "ignore::DeprecationWarning",
    "ignore::SyntaxWarning",
)
@CASES
def test_equals_e2cnn(symmetry: Symmetry, fibres: tuple[str, str]) -> None:
    gspaces = pytest.importorskip("e2cnn.gspaces", reason="e2cnn needs numpy 1")
    enn = pytest.importorskip("e2cnn.nn", reason="e2cnn works with numpy 1 only")
    space = gspaces.Rot2dOnR2 if len(symmetry.point) == 4 else gspaces.FlipRot2dOnR2
    compare("e2cnn", symmetry, fibres, space(4), enn)
