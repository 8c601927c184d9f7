"""Lifting, fibre pooling, global pooling and nonlinearities commute with the group."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from groupella.groups import GroupSet, Symmetry, octahedral, p4, p4m, permutations, z2
from groupella.groups.gate import load_gspaces, load_nn
from groupella.nn.nonlinearity import FibreNorm, Pointwise, nonlinearity
from groupella.nn.pooling import GlobalPool, GroupPool, Lift
from groupella.testing import assert_equivariant

GROUPS = GroupSet(z2(), p4(), p4m())


def test_lift_gives_every_fibre_element_a_copy() -> None:
    space = GROUPS.space((4, 4), 3, "trivial")
    lift = Lift(space)
    x = torch.randn(2, *space.shape)
    copies = lift(x).reshape(2, 3, 8, 4, 4)
    assert torch.equal(copies, x.unsqueeze(2).expand_as(copies))
    assert_equivariant(lift, space, lift.space_out, p4m(), dtype=torch.float64)
    torch.testing.assert_close(GroupPool(lift.space_out, "mean")(lift(x)), x)
    assert lift.space_out == GROUPS.space((4, 4), 3)


def test_lift_needs_scalars_and_an_invariant_vector() -> None:
    with pytest.raises(ValueError, match="trivial fibre"):
        Lift(GROUPS.space((4, 4), 3))
    with pytest.raises(ValueError, match="no invariant vector"):
        Lift(GROUPS.space((4, 4), 3, "trivial"), "irrep:1,1")


@pytest.mark.parametrize("mode", ["max", "mean", "norm"])
def test_group_pool_is_invariant_on_the_fibre(mode: str) -> None:
    space = GROUPS.space((4, 4), 3)
    pool = GroupPool(space, mode)
    assert pool.space_out.shape == (3, 4, 4)
    assert_equivariant(pool, space, pool.space_out, p4m(), dtype=torch.float64)
    x = torch.randn(2, *space.shape)
    fibres = x.reshape(2, 3, 8, 4, 4).numpy()
    expected = {
        "max": fibres.max(2),
        "mean": fibres.mean(2),
        "norm": np.linalg.norm(fibres, axis=2),
    }
    np.testing.assert_allclose(pool(x).numpy(), expected[mode], rtol=1e-5)


def test_group_pool_of_a_turning_fibre_takes_its_norm() -> None:
    space = GROUPS.space((4, 4), 3, "irrep:1,1")
    with pytest.raises(ValueError, match="mode='norm'"):
        GroupPool(space)
    assert_equivariant(
        GroupPool(space, "norm"), space, space.with_fibre("trivial"), p4m(), dtype=torch.float64
    )


@pytest.mark.parametrize("mode", ["mean", "max"])
@pytest.mark.parametrize("symmetry", [p4m(), octahedral()], ids=str)
def test_global_pool_leaves_the_fibre(mode: str, symmetry: Symmetry) -> None:
    space = GroupSet(symmetry).space((4,) * (symmetry.dim or 0), 2)
    pool = GlobalPool(space, mode)
    assert pool.space_out.shape == (2 * space.fibre_size,)
    assert_equivariant(pool, space, pool.space_out, symmetry, dtype=torch.float64)
    vectors = torch.randn(2, *pool.space_out.shape)
    assert torch.equal(GlobalPool(pool.space_out, mode)(vectors), vectors)


def test_global_pool_of_sites_that_are_mixed_is_refused() -> None:
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    groups = GroupSet(Symmetry.from_generators("turn", (2,), [turn]))
    with pytest.raises(ValueError, match="no mean or maximum"):
        GlobalPool(groups.space((2,), 1))
    with pytest.raises(ValueError, match="merely permute"):
        Pointwise(groups.space((2,), 1), "relu")


@pytest.mark.parametrize(("module", "mode"), [(GroupPool, "sum"), (GlobalPool, "sum")])
def test_unknown_modes(module: type[torch.nn.Module], mode: str) -> None:
    with pytest.raises(ValueError, match="mode must be"):
        module(GROUPS.space((4, 4), 3), mode)


@pytest.mark.parametrize("function", ["relu", "elu", "gelu", "silu", "softplus", "sigmoid", "tanh"])
def test_pointwise_functions_on_permuted_fibres(function: str) -> None:
    space = GROUPS.space((4, 4), 2)
    assert_equivariant(nonlinearity(space, function), space, space, p4m())


def test_pointwise_functions_on_other_fibres() -> None:
    signed = GROUPS.space((4, 4), 2, "irrep:1,1")
    with pytest.raises(ValueError, match="squash"):
        nonlinearity(signed, "relu")
    assert_equivariant(nonlinearity(signed, "tanh"), signed, signed, p4m(), dtype=torch.float64)
    for function in ("squash", "norm_swish"):
        module = nonlinearity(signed, function)
        assert_equivariant(module, signed, signed, p4m(), dtype=torch.float64)
    assert nonlinearity(GroupSet(permutations(4)).space((4,), 1), "relu").function == "relu"


def test_squash_is_that_of_escnn() -> None:
    enn = load_nn()
    act = load_gspaces().flipRot2dOnR2(4)
    kind = enn.FieldType(act, 3 * [act.irrep(1, 1)])
    theirs = enn.NormNonLinearity(kind, function="squash", bias=False)
    space = GROUPS.space((4, 4), 3, act.irrep(1, 1))
    x = torch.randn(2, 6, 4, 4)
    ours = FibreNorm(space, "squash")(x)
    torch.testing.assert_close(ours, theirs(enn.GeometricTensor(x, kind)).tensor)


def test_norm_nonlinearity_at_zero() -> None:
    space = GROUPS.space((4, 4), 1, "irrep:1,1")
    x = torch.zeros(1, *space.shape, requires_grad=True)
    for function in ("squash", "norm_swish"):
        (gradient,) = torch.autograd.grad(FibreNorm(space, function)(x).sum(), x)
        assert torch.isfinite(gradient).all()


def test_an_unknown_nonlinearity_names_the_nearest() -> None:
    for make in (nonlinearity, Pointwise, FibreNorm):
        with pytest.raises(ValueError, match="did you mean 'relu'"):
            make(GROUPS.space((4, 4), 1), "relo")
