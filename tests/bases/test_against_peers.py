"""Every kernel that escnn and e2cnn can build lies in the span of ours."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from groupella.bases import KernelBasis, kernel_basis
from groupella.groups import FeatureSpace, GroupSet, Symmetry, flips, p4, p4m
from groupella.groups.gate import load_gspaces, load_nn


def gspace(gspaces: ModuleType, symmetry: Symmetry) -> Any:
    escnn = hasattr(gspaces, "rot2dOnR2")
    if symmetry.name == "p4":
        return gspaces.rot2dOnR2(4) if escnn else gspaces.Rot2dOnR2(4)
    if symmetry.name == "p4m":
        return gspaces.flipRot2dOnR2(4) if escnn else gspaces.FlipRot2dOnR2(4)
    axis = 0.0 if symmetry == flips(0) else np.pi / 2
    return gspaces.flip2dOnR2(axis=axis) if escnn else gspaces.Flip2dOnR2(axis=axis)


def sampled_kernels(nn: ModuleType, space: Any, rep_in: Any, rep_out: Any, size: int) -> np.ndarray:
    """All basis kernels of a peer's convolution, (n, fibre_out, fibre_in, k, k)."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        type_in, type_out = nn.FieldType(space, [rep_in]), nn.FieldType(space, [rep_out])
        layer = nn.R2Conv(type_in, type_out, size, bias=False, initialize=False)
        filters = []
        with torch.no_grad():
            for weights in torch.eye(layer.weights.numel()):
                filters.append(layer.basisexpansion(weights).numpy().astype(np.float64))
    shape = (len(filters), rep_out.size, rep_in.size, size, size)
    return np.stack(filters).reshape(shape)


def residual(kernels: np.ndarray, basis: KernelBasis) -> float:
    norms = np.linalg.norm(kernels.reshape(len(kernels), -1), axis=1)
    outside = (kernels - basis.project(kernels)).reshape(len(kernels), -1)
    return float((np.linalg.norm(outside, axis=1) / norms).max())


def compare(
    nn: ModuleType, gspaces: ModuleType, symmetry: Symmetry, size: int, names: bool
) -> None:
    peer = gspace(gspaces, symmetry)
    groups = GroupSet(symmetry)
    ours: dict[str, FeatureSpace] = {
        "trivial": groups.space((6, 6), 1, "trivial"),
        "regular": groups.space((6, 6), 1, "regular"),
    }
    theirs = {"trivial": peer.trivial_repr, "regular": peer.regular_repr}
    if names:
        for irrep in peer.fibergroup.irreps():
            ours[irrep.name], theirs[irrep.name] = groups.space((6, 6), 1, irrep), irrep
    for name_in, name_out in [(a, b) for a in ours for b in ours if "regular" in (a, b) or a == b]:
        kernels = sampled_kernels(nn, peer, theirs[name_in], theirs[name_out], size)
        basis = kernel_basis(ours[name_in], ours[name_out], symmetry, size)
        rank = np.linalg.matrix_rank(kernels.reshape(len(kernels), -1), tol=1e-4)
        assert rank <= basis.dim
        assert residual(kernels, basis) <= 1e-5, (symmetry, name_in, name_out)


@pytest.mark.parametrize("symmetry", [p4(), p4m(), flips(0), flips(1)], ids=str)
@pytest.mark.parametrize("size", [3, 5])
def test_kernels_of_escnn_are_among_ours(symmetry: Symmetry, size: int) -> None:
    compare(load_nn(), load_gspaces(), symmetry, size, names=size == 3)


@pytest.mark.parametrize("symmetry", [p4(), p4m(), flips(0), flips(1)], ids=str)
@pytest.mark.parametrize("size", [3, 5])
def test_kernels_of_e2cnn_are_among_ours(symmetry: Symmetry, size: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn = pytest.importorskip("e2cnn.nn", reason="e2cnn works with numpy 1 only")
        gspaces = pytest.importorskip("e2cnn.gspaces", reason="e2cnn works with numpy 1 only")
    compare(nn, gspaces, symmetry, size, names=False)


def test_escnn_spans_two_thirds_of_the_kernels() -> None:
    """What an exact basis buys: 48 of 72 dimensions for p4m regular fields and 3×3 kernels."""
    peer = gspace(load_gspaces(), p4m())
    kernels = sampled_kernels(load_nn(), peer, peer.regular_repr, peer.regular_repr, 3)
    space = GroupSet(p4m()).space((6, 6), 1)
    assert len(kernels) == 48
    assert kernel_basis(space, space, p4m(), 3).dim == 72
