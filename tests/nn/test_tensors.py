"""Gates and products of scalars, vectors and tensors: equivariance, shapes, curvature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from groupella.bases import equivariant_basis
from groupella.curvature import curvature
from groupella.evidence import Prior
from groupella.evidence.likelihoods import Gaussian
from groupella.groups import (
    SCALAR,
    FeatureSpace,
    GroupSet,
    Symmetry,
    V,
    about_axis,
    lorentz,
    orthogonal,
    p4,
    permutations,
    rotations,
    scalings,
    trivial,
    turns,
)
from groupella.nn.layer import ResidualPathway
from groupella.nn.nonlinearity import FibreNorm
from groupella.nn.standardise import InUnits, Standardise
from groupella.nn.tensors import Gated, Products
from groupella.testing import assert_equivariant
from groupella.testing._curvature import ggn_blocks

FIBRE = SCALAR + V + V * V
SYMMETRIES = [
    orthogonal(3),
    lorentz(),
    scalings(2),
    permutations(4) * rotations(3, lattice=4),
]


def space(symmetry: Symmetry, channels: int = 2) -> FeatureSpace:
    assert symmetry.lattice is not None
    return GroupSet(symmetry).space(symmetry.lattice, channels, FIBRE)


@pytest.mark.parametrize("symmetry", SYMMETRIES, ids=str)
@pytest.mark.parametrize("kind", [Gated, Products])
def test_they_commute_with_every_matrix_group(kind: type[nn.Module], symmetry: Symmetry) -> None:
    module = kind(space(symmetry))
    x = torch.randn(5, *module.space_in.shape, dtype=torch.double)
    for g in module.space_in.sample(symmetry, 5):
        moved = module(module.space_in.act(g, x))
        expected = module.space_out.act(g, module(x))
        scale = expected.abs().max()
        torch.testing.assert_close(moved / scale, expected / scale, atol=1e-11, rtol=0)


def test_gates_and_products_by_hand() -> None:
    one = space(orthogonal(3), 1)
    gated = Gated(one)
    assert gated.space_in.fibre_size == 13 + 3
    x = torch.randn(1, 16)
    y = gated(x)
    torch.testing.assert_close(y[0, 0], x[0, 0] * torch.sigmoid(x[0, 13]))
    torch.testing.assert_close(y[0, 1:4], x[0, 1:4] * torch.sigmoid(x[0, 14]))
    torch.testing.assert_close(y[0, 4:13], x[0, 4:13] * torch.sigmoid(x[0, 15]))
    pair = GroupSet(orthogonal(3)).space((), 1, SCALAR + V)
    z = torch.tensor([[2.0, 1.0, 2.0, 3.0]])
    v = z[0, 1:]
    found = Products(pair)(z)[0]
    torch.testing.assert_close(found, torch.cat([z[0, :1] ** 2, 2 * v, torch.outer(v, v).ravel()]))


def test_a_bilinear_layer_has_the_curvature_of_its_linear_map() -> None:
    """One datum and one output: the Kronecker block is the Gauss–Newton matrix itself."""
    torch.manual_seed(0)
    groups = GroupSet(orthogonal(3), rotations(3))
    products = Products(groups.space((), 3, SCALAR + V))
    layer = ResidualPathway(products.space_out, groups.space((), 1, SCALAR), groups, bias=False)
    network = nn.Sequential(products, layer).double()
    x = torch.randn(1, *products.space_in.shape, dtype=torch.double)
    likelihood = Gaussian()
    found = curvature(network, likelihood, (x, torch.zeros(1, 1, dtype=torch.double)))
    exact = ggn_blocks(network, likelihood, x)
    assert exact
    for name, block in exact.items():
        assert float(block.abs().max()) > 0
        torch.testing.assert_close(found[name].to_dense(), block, rtol=0, atol=1e-10)


def test_units_of_vectors_have_no_mean_and_one_scale() -> None:
    groups = GroupSet(orthogonal(3))
    inputs = Standardise(groups.space((), 2, SCALAR + V))
    x = torch.randn(500, 8) * torch.tensor([1.0, 5, 6, 7, 2, 1, 1, 1]) + 3
    inputs.calibrate([x])
    assert_equivariant(inputs, inputs.space_in, inputs.space_in, groups)
    mean = inputs.mean.view(2, 4)
    assert bool((mean[:, 0] != 0).all())
    assert bool((mean[:, 1:] == 0).all())
    torch.testing.assert_close(inputs(x)[:, 1:4].square().mean(), torch.tensor(1.0))
    outputs = InUnits(3, groups.space((), 1, V))
    outputs.calibrate([x[:, 1:4]])
    assert bool((outputs.mean == 0).all())


@pytest.mark.parametrize(
    "symmetry", [orthogonal(3), rotations(3), about_axis(2), turns(4)], ids=str
)
def test_an_invariant_prior_has_a_covariance_that_the_group_keeps(symmetry: Symmetry) -> None:
    groups = GroupSet(orthogonal(3), about_axis(2), trivial())
    pair = groups.space((), 1, V + SCALAR), groups.space((), 1, V)
    bases = [equivariant_basis(*pair, member).tensor.reshape(-1, 12) for member in groups]
    covariance = sum(10.0**k * b.T @ b for k, b in enumerate(bases))
    is_kept = all(
        np.allclose(moved @ covariance @ moved.T, covariance)
        for g in pair[0].sample(symmetry, 4)
        for moved in [np.kron(pair[1].fibre_matrix(g), pair[0].fibre_matrix(g))]
    )
    layer = ResidualPathway(*pair, groups, free="FC")
    if is_kept:
        Prior.from_network(layer, invariant=symmetry)
    else:
        with pytest.raises(ValueError, match=r"not invariant to .* into another group"):
            Prior.from_network(layer, invariant=symmetry)
    assert is_kept == (symmetry.name in ("SO(2)z", "C4z"))


def test_no_prior_is_invariant_to_boosts_but_of_what_obeys_them() -> None:
    groups = GroupSet(lorentz(), trivial())
    layer = ResidualPathway(groups.space((), 1, V), groups.space((), 1, V), groups, free="FC")
    with pytest.raises(ValueError, match="keeps no Gaussian prior; keep only paths that obey"):
        Prior.from_network(layer, invariant=lorentz())
    assert len(Prior.from_network(layer.strict("SO(1,3)"), invariant=lorentz())) == 1


def test_norms_and_other_fibres_are_refused() -> None:
    with pytest.raises(ValueError, match="not compact: it keeps no norm"):
        FibreNorm(GroupSet(lorentz()).space((), 2, V), "norm_swish")
    with pytest.raises(ValueError, match="sum of tensors"):
        Gated(GroupSet(p4()).space((4, 4), 2))
