"""Every path against the double sum of its formula, written with plain loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella.bases import equivariant_basis, kernel_basis
from groupella.groups import (
    FeatureSpace,
    GroupSet,
    c4,
    line_reflections,
    octahedral,
    p4,
    p4m,
    trivial,
    z2,
)
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
)

PAIRS = {
    "plane": (GroupSet(z2(), p4(), trivial()), (2, 2), (4, 4)),
    "line": (GroupSet(line_reflections(), trivial()), (2,), (4,)),
}


def spaces(kind: str, *, pooled: bool = False) -> tuple[FeatureSpace, FeatureSpace]:
    groups, small, large = PAIRS[kind]
    return groups.space(large, 2), groups.space(small if pooled else large, 3)


def prepared(path: nn.Module) -> Tensor:
    """An input for the path, which becomes float64 with no parameter zero and without gradients."""
    path.double().requires_grad_(False)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in path.named_parameters():
        if "omega" not in name and "positions" not in name:
            nn.init.normal_(parameter, generator=generator)
    shape = path.space_in.shape
    return torch.randn(2, *shape, dtype=torch.float64, generator=generator)


def agree(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("biases", [False, True])
def test_fully_connected(kind: str, biases: bool) -> None:
    source, target = spaces(kind, pooled=True)
    path = FullyConnected(source, target, paper_biases=biases)
    x = prepared(path)
    flat = x.reshape(2, -1)
    y = torch.zeros(2, target.size, dtype=x.dtype)
    for i, j in itertools.product(range(target.size), range(source.size)):
        y[:, i] += path.weight[i, j] * flat[:, j]
    if path.bias is not None:
        y += path.bias.reshape(-1)
    agree(path(x), y)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("over", ["lattice", "group"])
@pytest.mark.parametrize("biases", [False, True])
def test_factored(kind: str, over: str, biases: bool) -> None:
    source, target = spaces(kind, pooled=True)
    path = FactoredFC(source, target, over=over, paper_biases=biases)
    x = prepared(path)
    c_out, c, p_out = path.theta1.shape
    points = x.reshape(2, c, -1)
    y = torch.zeros(2, c_out, p_out, dtype=x.dtype)
    for o, i in itertools.product(range(c_out), range(c)):
        z = sum(path.theta2[o, i, p] * points[:, i, p] for p in range(points.shape[2]))
        if path.channel_bias is not None:
            z = z + path.channel_bias[o]
        for p in range(p_out):
            y[:, o, p] += path.theta1[o, i, p] * z
    if path.point_bias is not None:
        y += path.point_bias
    agree(path(x), y.reshape(2, *target.shape))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("learn", [False, True])
def test_sparse_fully_connected(kind: str, learn: bool) -> None:
    source, target = spaces(kind, pooled=True)
    path = SparseFC(source, target, omega=0.75, learn_positions=learn, paper_biases=True)
    x = prepared(path)
    theta1, theta2 = (
        (anchors @ torch.from_numpy(_bumps(space.lattice.shape, 0.75)).T).detach()
        for anchors, space in ((path.theta1, target), (path.theta2, source))
    )
    assert path.theta2.shape[2] == -(-source.lattice.size // 2)
    y = torch.zeros(2, target.shape[0], target.lattice.size, dtype=x.dtype)
    for o, i, p, q in itertools.product(*map(range, (*theta1.shape, source.lattice.size))):
        y[:, o, p] += theta1[o, i, p] * theta2[o, i, q] * x.flatten(2)[:, i, q]
    agree(path(x), (y + path.bias[:, None]).reshape(2, *target.shape))


def _bumps(shape: Sequence[int], omega: float) -> np.ndarray:
    """exp(−ω² |p − z|²), one by one, for anchors z on a checkerboard."""
    points = list(itertools.product(*map(range, shape)))
    anchors = [p for p in points if sum(p) % 2 == 0]
    return np.array(
        [[math.exp(-((omega * math.dist(p, z)) ** 2)) for z in anchors] for p in points]
    )


def offsets(space: FeatureSpace, size: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Window index, output site and the input site that the window brings to it."""
    lattice = space.lattice.shape
    for d in itertools.product(range(size), repeat=len(lattice)):
        for p in itertools.product(*map(range, lattice)):
            moved = zip(p, d, lattice, strict=True)
            yield d, p, tuple((a + b - size // 2) % n for a, b, n in moved)


def naive_conv(x: Tensor, weight: Tensor, space: FeatureSpace, size: int) -> Tensor:
    y = torch.zeros(x.shape[0], weight.shape[0], *space.lattice.shape, dtype=x.dtype)
    for d, p, q in offsets(space, size):
        y[(..., *p)] += x[(..., *q)] @ weight[(..., *d)].T
    return y


@pytest.mark.parametrize("kind", PAIRS)
def test_convolution(kind: str) -> None:
    source, target = spaces(kind)
    path = Conv(source, target, 3, paper_biases=True)
    x = prepared(path)
    with torch.no_grad():
        y = naive_conv(x, path.weight, source, 3)
        y += path.bias.reshape(-1, *[1] * source.lattice.dim)
        agree(path(x), y)


@pytest.mark.parametrize("kind", PAIRS)
def test_sparse_convolution(kind: str) -> None:
    source, target = spaces(kind)
    path = SparseConv(source, target, 3, omega=0.625, learn_positions=True)
    x = prepared(path)
    dim = source.lattice.dim
    bumps = _bumps((3,) * dim, 0.625)
    assert path.weight.shape[2] == bumps.shape[1] == -(-(3**dim) // 2)
    with torch.no_grad():
        weight = (path.weight @ torch.from_numpy(bumps).T).reshape(
            *path.weight.shape[:2], *(3,) * dim
        )
        agree(path(x), naive_conv(x, weight, source, 3))


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("pointwise", [False, True])
def test_group_convolution_is_the_sum_over_its_basis(kind: str, pointwise: bool) -> None:
    source, target = spaces(kind)
    symmetry = source.ambient
    path = GroupConv(source, target, symmetry, 3, pointwise=pointwise, paper_biases=True)
    x = prepared(path)
    basis = torch.from_numpy(kernel_basis(source, target, symmetry, 3).tensor.copy())
    if pointwise:
        size = source.fibre_size
        on = torch.eye(size, dtype=torch.bool)
        basis = basis[[bool((b[~on] == 0).all()) for b in basis]]
    assert len(basis) == path.weight.shape[2]
    with torch.no_grad():
        weight = torch.einsum("oib,bfg...->ofig...", path.weight, basis)
        weight = weight.reshape(target.shape[0], source.shape[0], *weight.shape[4:])
        y = naive_conv(x, weight, source, 3)
        spread = path.bias.repeat_interleave(target.fibre_size)
        agree(path(x), y + spread.reshape(-1, *[1] * source.lattice.dim))


@pytest.mark.parametrize("symmetry", [c4(), p4(), z2()], ids=str)
def test_dense_basis_is_the_sum_over_its_basis(symmetry: object) -> None:
    groups = GroupSet(p4())
    source, target = groups.space((3, 3), 2), groups.space((3, 3), 1)
    path = DenseBasis(source, target, symmetry)
    x = prepared(path)
    basis = torch.from_numpy(equivariant_basis(source, target, symmetry).tensor.copy())
    with torch.no_grad():
        y = torch.zeros(2, 1, basis.shape[1], dtype=x.dtype)
        for c, b in itertools.product(range(2), range(len(basis))):
            y[:, 0] += path.weight[0, c, b] * (x.reshape(2, 2, -1)[:, c] @ basis[b].T)
        agree(path(x), y.reshape(2, *target.shape))


def test_dense_basis_gathers_where_its_product_would_be_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = GroupSet(p4())
    source, target = groups.space((3, 3), 2), groups.space((3, 3), 3)
    path = DenseBasis(source, target, c4())
    monkeypatch.setattr("groupella.nn._expansion.LARGEST_PRODUCT", 1)
    gathered = DenseBasis(source, target, c4())
    gathered.load_state_dict(path.state_dict())
    torch.testing.assert_close(gathered.matrix(), path.matrix())


@pytest.mark.parametrize("symmetry", [p4(), p4m()], ids=str)
def test_full_group_convolution_is_the_group_theoretic_sum(symmetry: object) -> None:
    """y(g') = Σ_g θ(g⁻¹g') x(g): the filter turns with g, which the published code forgets."""
    groups = GroupSet(symmetry)
    source = groups.space((4, 4), 1)
    theta = torch.randn(source.fibre_size, 3, 3, dtype=torch.float64)
    elements = _fibre_elements(source)
    x = torch.randn(2, *source.shape, dtype=torch.float64)
    expected = torch.zeros_like(x)
    weight = torch.zeros(source.fibre_size, source.fibre_size, 3, 3, dtype=torch.float64)
    for g, f in elements.items():
        for h, e in elements.items():
            # θ(h⁻¹g) lives on the fibre element h⁻¹g, its window turned by h.
            turned = _turn(source, h, theta[elements[_times(_inverse(h), g)]])
            weight[f, e] = turned
    expected = naive_conv(x, weight, source, 3)
    path = GroupConv(source, source, symmetry, 3).double()
    basis = kernel_basis(source, source, symmetry, 3)
    u = basis.coefficients(weight.numpy())
    with torch.no_grad():
        path.weight.copy_(torch.from_numpy(u).reshape(1, 1, -1))
    agree(path.filter().detach(), weight)
    agree(path(x).detach(), expected)


def _fibre_elements(space: FeatureSpace) -> dict[object, int]:
    """Point matrix → the fibre index it moves the identity's to; index 0 may be any element."""
    found = {}
    for g in space.elements(space.ambient):
        if not any(g.shift):
            found[g.point] = int(space.fibre_matrix(g)[:, 0].argmax())
    assert len(set(found.values())) == space.fibre_size
    return found


def _times(a: object, b: object) -> object:
    return tuple(
        tuple(sum(x * y for x, y in zip(r, c, strict=True)) for c in zip(*b, strict=True))
        for r in a
    )


def _inverse(a: object) -> object:
    return tuple(zip(*a, strict=True))


def _turn(space: FeatureSpace, point: object, window: Tensor) -> Tensor:
    g = next(g for g in space.elements(space.ambient) if g.point == point and not any(g.shift))
    moved = torch.from_numpy(space.window_permutation(g, 3).copy())
    turned = torch.empty(9, dtype=window.dtype)
    turned[moved] = window.flatten()
    return turned.reshape(3, 3)


@pytest.mark.parametrize("depthwise", [False, True])
def test_separable_is_a_full_group_convolution_of_lower_rank(depthwise: bool) -> None:
    groups = GroupSet(p4())
    source, target = groups.space((4, 4), 2), groups.space((4, 4), 3)
    path = SeparableGroupConv(source, target, p4(), 3, depthwise=depthwise)
    x = prepared(path)
    with torch.no_grad():
        first, *rest = path.stages.values()
        spatial = first.basis(first.weight)
        spatial = spatial.reshape(2, 4, 4, 3, 3)
        mix = torch.eye(2 * 4, dtype=x.dtype)
        for stage in rest:
            if isinstance(stage, GroupConv):
                step = stage.filter().reshape(target.shape[0], -1)
            else:
                blocks = stage.basis(stage.weight)
                step = torch.block_diag(*blocks.reshape(2, 4, 4))
            mix = step @ mix
        depth = torch.zeros(8, 8, 3, 3, dtype=x.dtype)
        for c in range(2):
            depth[4 * c : 4 * c + 4, 4 * c : 4 * c + 4] = spatial[c]
        weight = torch.einsum("oi,ijkl->ojkl", mix, depth)
        agree(path(x), naive_conv(x, weight, source, 3))
    full = kernel_basis(source, target, p4(), 3)
    blocks = weight.reshape(3, 4, 2, 4, 3, 3).transpose(1, 2).numpy()
    agree(torch.from_numpy(full.project(blocks)), torch.from_numpy(blocks.copy()))


def test_parameter_counts_of_the_published_table() -> None:
    groups = GroupSet(z2(), p4())
    source, target = groups.space((8, 8), 5), groups.space((8, 8), 7)

    def count(path: nn.Module) -> int:
        return sum(p.numel() for p in path.parameters())

    assert count(GroupConv(source, target, p4())) == 36 * 5 * 7
    assert count(GroupConv(source, target, p4(), pointwise=True)) == 9 * 5 * 7
    assert count(SeparableGroupConv(source, target, p4())) == 9 * 5 + 4 * 5 * 7
    assert count(SeparableGroupConv(source, target, p4(), depthwise=True)) == (9 + 4) * 5 + 5 * 7


def test_three_dimensions_and_single_sites() -> None:
    groups = GroupSet(octahedral())
    source = groups.space((3, 3, 3), 1, "trivial")
    path = GroupConv(source, source, octahedral(), 3)
    x = prepared(path)
    with torch.no_grad():
        agree(path(x), naive_conv(x, path.filter(), source, 3))
    vector = GroupSet(z2(), p4()).space((), 3)
    conv = Conv(vector, vector)
    x = prepared(conv)
    agree(conv(x).detach(), (x @ conv.weight.reshape(12, 12).T).detach())
