"""ChannelNorm is torch's batch normalisation of channels whose fibre counts as sites."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.groups import GroupSet, Symmetry, octahedral, p4, p4m, translations, z2
from groupella.nn.normalisation import ChannelNorm
from groupella.testing import assert_equivariant

BATCH_NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
CASES = [
    pytest.param(translations(1), (5,), id="line"),
    pytest.param(z2(), (4, 3), id="plane"),
    pytest.param(translations(3), (2, 3, 4), id="voxels"),
    pytest.param(p4(), (4, 4), id="p4"),
    pytest.param(p4m(), (4, 4), id="p4m"),
    pytest.param(octahedral(), (2, 2, 2), id="octahedral"),
]


def as_sites(x: Tensor, fibre: int) -> Tensor:
    """(N, C·F, *sites) as (N, C, F·sites), which torch normalises channel by channel."""
    return x.unflatten(1, (-1, fibre)).flatten(2)


def pair(symmetry: Symmetry, lattice: tuple[int, ...]) -> tuple[ChannelNorm, nn.Module]:
    """A ChannelNorm of 3 channels and torch's norm, in float64 with the same parameters."""
    norm = ChannelNorm(GroupSet(symmetry).space(lattice, 3)).double()
    fibre = norm.space_in.fibre_size
    # With one fibre component torch gets the very same tensor, in its own dimension.
    theirs = BATCH_NORM[len(lattice) if fibre == 1 else 1](3).double()
    with torch.no_grad():
        for mine, other in ((norm.weight, theirs.weight), (norm.bias, theirs.bias)):
            mine.normal_()
            other.copy_(mine)
    return norm, theirs


def features(norm: ChannelNorm, batch: int = 6) -> Tensor:
    """Inputs whose channels have different means and scales."""
    x = torch.randn(batch, *norm.space_in.shape, dtype=torch.float64)
    scale = torch.linspace(0.1, 7.0, x.shape[1]).double().view(-1, *[1] * (x.dim() - 2))
    return scale * x + 3 * scale


@pytest.mark.parametrize(("symmetry", "lattice"), CASES)
@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_values_gradients_and_statistics_are_those_of_torch(
    symmetry: Symmetry, lattice: tuple[int, ...], last: bool
) -> None:
    norm, theirs = pair(symmetry, lattice)
    fibre = norm.space_in.fibre_size
    for _ in range(3):
        x = features(norm)
        if last:
            x = x.movedim(1, -1).contiguous().movedim(-1, 1)
        one, other = x.detach().requires_grad_(), x.detach().clone().requires_grad_()
        y = norm(one)
        expected = theirs(other if fibre == 1 else as_sites(other, fibre)).reshape(x.shape)
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        target = torch.randn_like(x)
        mine = torch.autograd.grad((y * target).sum(), [one, norm.weight, norm.bias])
        truth = torch.autograd.grad((expected * target).sum(), [other, theirs.weight, theirs.bias])
        for a, b in zip(mine, truth, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(norm.mean, theirs.running_mean)
        torch.testing.assert_close(norm.variance, theirs.running_var)
    norm.eval(), theirs.eval()
    x = features(norm)
    expected = theirs(x if fibre == 1 else as_sites(x, fibre)).reshape(x.shape)
    torch.testing.assert_close(norm(x), expected, rtol=1e-12, atol=1e-12)
    factor, shift = (v.repeat_interleave(fibre) for v in norm.affine())
    sites = [1] * len(lattice)
    torch.testing.assert_close(x * factor.view(-1, *sites) + shift.view(-1, *sites), expected)


LAYOUTS = {
    "channels first": lambda t: t.contiguous(),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "channels slowest": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
}


@pytest.mark.parametrize("gradient", LAYOUTS)
@pytest.mark.parametrize("values", LAYOUTS)
def test_layouts_may_differ_between_values_and_gradients(values: str, gradient: str) -> None:
    norm, theirs = pair(z2(), (4, 6))
    x, target = LAYOUTS[values](features(norm)), torch.randn(6, 3, 4, 6, dtype=torch.float64)
    one, other = x.detach().requires_grad_(), x.detach().contiguous().requires_grad_()
    shared = ChannelNorm(norm.space_in, shared=True).double()
    layout = LAYOUTS[gradient](target)
    mine = torch.autograd.grad(norm(one), [one, norm.weight, norm.bias], layout)
    truth = torch.autograd.grad(theirs(other), [other, theirs.weight, theirs.bias], target)
    for a, b in zip(mine, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
    mine = torch.autograd.grad(shared(one), [one, shared.weight, shared.bias], layout)
    truth = torch.autograd.grad(one_factor(shared, other), [other, *shared.parameters()], target)
    for a, b in zip(mine, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)


def one_factor(norm: ChannelNorm, x: Tensor) -> Tensor:
    """The definition, for features with one fibre component or more."""
    fibre = norm.space_in.fibre_size
    channels = as_sites(x, fibre)
    mean = channels.mean((0, 2), keepdim=True)
    scale = ((channels - mean).square().mean() + norm.eps).sqrt()
    y = norm.weight * (channels - mean) / scale + norm.bias.view(-1, 1)
    return y.reshape(x.shape)


@pytest.mark.parametrize(("symmetry", "lattice"), CASES)
def test_one_factor_for_all_channels_follows_its_definition(
    symmetry: Symmetry, lattice: tuple[int, ...]
) -> None:
    norm = ChannelNorm(GroupSet(symmetry).space(lattice, 3), shared=True, momentum=1.0).double()
    with torch.no_grad():
        norm.weight.fill_(1.7)
        norm.bias.normal_()
    x, target = features(norm).requires_grad_(), torch.randn(6, *norm.space_in.shape).double()
    y, expected = norm(x), one_factor(norm, x)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    mine, truth = (
        torch.autograd.grad(z, [x, norm.weight, norm.bias], target) for z in (y, expected)
    )
    for a, b in zip(mine, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
    norm.eval()  # with momentum 1 the statistics are those of x; the variance is unbiased
    count = x.numel() // 3
    values, average = (
        t.detach()
        - norm.bias.repeat_interleave(norm.space_in.fibre_size)
        .view(-1, *[1] * len(lattice))
        .detach()
        for t in (norm(x), y)
    )
    torch.testing.assert_close(values, average * ((count - 1) / count) ** 0.5, rtol=1e-5, atol=1e-5)


def test_gradients_of_both_orders_are_those_of_finite_differences() -> None:
    norm = ChannelNorm(GroupSet(p4()).space((2, 2), 2)).double()
    x = torch.randn(3, *norm.space_in.shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(norm, [x])
    assert torch.autograd.gradgradcheck(norm, [x])


def test_one_value_per_channel_has_no_variance() -> None:
    norm = ChannelNorm(GroupSet(z2()).space((1, 1), 3))
    with pytest.raises(ValueError, match="more than one value per channel"):
        norm(torch.randn(1, 3, 1, 1))
    assert norm.eval()(torch.randn(1, 3, 1, 1)).shape == (1, 3, 1, 1)


def test_a_large_mean_does_not_cost_the_variance_its_digits() -> None:
    norm = ChannelNorm(GroupSet(p4()).space((4, 4), 2))
    x = torch.randn(50, *norm.space_in.shape)
    y = norm(x + 1000.0)
    torch.testing.assert_close(y, norm(x), rtol=0, atol=5e-3)


@pytest.mark.parametrize(("symmetry", "lattice"), CASES)
@pytest.mark.parametrize("training", [False, True])
def test_exactly_equivariant(symmetry: Symmetry, lattice: tuple[int, ...], training: bool) -> None:
    norm, _ = pair(symmetry, lattice)
    norm(features(norm))  # statistics that are not 0 and 1
    if training:
        x = features(norm)
        y = norm(x)
        for g in norm.space_in.sample(symmetry, 8, 0):
            moved = norm(norm.space_in.act(g, x))
            expected = norm.space_in.act(g, y)
            torch.testing.assert_close(moved, expected, rtol=1e-12, atol=1e-12)
    assert_equivariant(norm, norm.space_in, norm.space_out, symmetry)


def test_features_that_are_not_permuted_and_another_shape_are_refused() -> None:
    groups = GroupSet(p4m())
    with pytest.raises(ValueError, match="entries that the group permutes"):
        ChannelNorm(groups.space((4, 4), 2, "irrep:1,1"))
    signs = Symmetry.from_generators("signs", (3,), [np.diag([1.0, -1.0, 1.0])])
    with pytest.raises(ValueError, match="entries that the group permutes"):
        ChannelNorm(GroupSet(signs).space((3,), 2))
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        ChannelNorm(groups.space((4, 4), 2))(torch.zeros(1, 8, 4, 4))
