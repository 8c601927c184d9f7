"""GCONV/pairwise and GCONV/uniform: products on the group, against the sum over its elements."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, GroupSet, LatticeElement, Symmetry, cm, p4, p4m
from groupella.nn.paths import PairwiseConv, UniformConv
from groupella.nn.shared_maps import taping

SHAPE = (5, 5)


def made(kind: type[nn.Module], symmetry: Symmetry, **options: bool) -> tuple[nn.Module, Tensor]:
    groups = GroupSet(symmetry)
    source, target = groups.space(SHAPE, 2), groups.space(SHAPE, 3)
    torch.manual_seed(0)
    path = kind(source, target, symmetry, **options).double().requires_grad_(False)
    for parameter in path.parameters():
        nn.init.normal_(parameter)
    return path, torch.randn(2, *source.shape, dtype=torch.float64)


def on_the_group(path: nn.Module, symmetry: Symmetry) -> Tensor:
    """s(c', c, t, R), read off the filter between the fibre's first element and all others.

    An input at p = p' + δ in the frame of the identity has g⁻¹g' = (−δ, R).
    """
    space = path.space_in
    f = space.fibre_size
    blocks = path.filter().reshape(3, f, 2, f, 3, 3)[:, :, :, 0]
    order = [
        int(space.fibre_matrix(LatticeElement(point, (0, 0), SHAPE))[:, 0].argmax())
        for point in symmetry.point
    ]
    return blocks[:, order].flip(3, 4).permute(0, 2, 3, 4, 1)


def summed(s: Tensor, x: Tensor, space: FeatureSpace, symmetry: Symmetry) -> Tensor:
    """y(c', g') = Σ_c Σ_g s(c', c, g⁻¹g') x(c, g), element by element."""
    number = {point: i for i, point in enumerate(symmetry.point)}
    centre = np.array(SHAPE) // 2
    every = []
    for element in space.elements(symmetry):
        fibre = int(space.fibre_matrix(element)[:, 0].argmax())
        site = tuple(int(i) for i in (centre + element.shift) % 5)
        every.append((element, (fibre, *site)))
    fields = x.reshape(2, 2, space.fibre_size, *SHAPE)
    y = torch.zeros(2, 3, space.fibre_size, *SHAPE, dtype=x.dtype)
    window = {4: 0, 0: 1, 1: 2}
    for g, source in every:
        for h, target in every:
            u = g.inverse() * h
            if set(u.shift) <= set(window):
                t = [window[i] for i in u.shift]
                value = s[:, :, t[0], t[1], number[u.point]]
                y[(..., *target)] += fields[(..., *source)] @ value.T
    return y.reshape(2, -1, *SHAPE)


@pytest.mark.parametrize("kind", [PairwiseConv, UniformConv])
@pytest.mark.parametrize("symmetry", [p4(), cm()], ids=str)
def test_it_is_the_convolution_on_the_group_with_a_product(
    kind: type[nn.Module], symmetry: Symmetry
) -> None:
    path, x = made(kind, symmetry)
    s = on_the_group(path, symmetry)
    torch.testing.assert_close(
        path(x), summed(s, x, path.space_in, symmetry), rtol=1e-12, atol=1e-12
    )
    # θ₁(t) θ₂(R) for every pair of channels: rank one.
    pairs = s.reshape(6, 9, len(symmetry.point))
    assert torch.linalg.matrix_rank(pairs, rtol=1e-10).tolist() == [1] * 6
    together = int(torch.linalg.matrix_rank(pairs.reshape(6, -1), rtol=1e-10))
    assert together == (1 if kind is UniformConv else 6)


@pytest.mark.parametrize("kind", [PairwiseConv, UniformConv])
def test_every_product_has_its_parameters(kind: type[nn.Module]) -> None:
    """The factors reach every θ₁ and θ₂: their values at the identity are free."""
    path, _ = made(kind, p4m())
    spatial = path.kernels.spatial(torch.eye(9, dtype=torch.float64))[:, 0]
    mixing = path.kernels.mixing(torch.eye(8, dtype=torch.float64))[:, :, 0]
    assert torch.linalg.matrix_rank(spatial.flatten(1)) == 9
    assert torch.linalg.matrix_rank(mixing) == 8


def test_parameter_counts_of_the_printed_formulas() -> None:
    groups = GroupSet(p4())
    source, target = groups.space((8, 8), 5), groups.space((8, 8), 7)
    counts = [
        sum(p.numel() for p in kind(source, target, p4()).parameters())
        for kind in (PairwiseConv, UniformConv)
    ]
    assert counts == [(9 + 4) * 5 * 7, 9 + 4 + 5 * 7]


@pytest.mark.parametrize("kind", [PairwiseConv, UniformConv])
def test_stages_and_filter_agree(kind: type[nn.Module]) -> None:
    path, x = made(kind, p4m(), paper_biases=True)
    with taping(lambda *_: None):
        staged = path(x)
    torch.testing.assert_close(staged, path(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [PairwiseConv, UniformConv])
def test_new_weights_give_outputs_of_the_variance_asked_for(kind: type[nn.Module]) -> None:
    groups = GroupSet(p4())
    source, target = groups.space((8, 8), 40), groups.space((8, 8), 40)
    torch.manual_seed(0)
    path = kind(source, target, p4())
    path.reset_parameters(2.0)
    y = path(torch.randn(20, *source.shape))
    assert float(y.detach().std()) == pytest.approx(2.0, rel=0.1)
