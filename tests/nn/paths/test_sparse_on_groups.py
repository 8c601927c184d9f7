"""S-GCONV and S-FC/group against sums over the elements of the group, one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from groupella import groups as g
from groupella.bases import kernel_basis
from groupella.groups import FeatureSpace, GroupSet, LatticeElement, Symmetry
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import SparseConv, SparseFC, SparseGroupConv, stationary_part
from groupella.testing import assert_equivariant

OMEGA = 0.7


def bumps(path: nn.Module, shift: Sequence[float], element: LatticeElement, **where: Any) -> Tensor:
    """exp(−ω² d²) at all anchors, which are elements of the group, d² = |t − t_z|² + ½ |R − R_z|².

    On a torus with those `sides`, |t − t_z| is along chords of circles.
    """
    rows = getattr(path, where.get("name", "positions")).detach().numpy()
    d = len(shift)
    turns = rows[:, d:].reshape(-1, d, d)
    assert np.allclose(turns @ turns.swapaxes(1, 2), np.eye(d))
    assert np.allclose(rows, np.rint(rows))
    apart = np.asarray(shift) - rows[:, :d]
    if "sides" in where:
        n = np.asarray(where["sides"])
        apart = np.abs(1 - np.exp(2j * np.pi * apart / n)) * n / (2 * np.pi)
    squared = np.square(apart).sum(1)
    squared += 0.5 * np.square(np.array(element.point) - turns).sum((1, 2))
    return torch.from_numpy(np.exp(-(OMEGA**2) * squared))


def points(space: FeatureSpace, symmetry: Symmetry) -> Iterator[tuple[LatticeElement, int, tuple]]:
    """Elements (R, t) of the group with the fibre element and site to which they move the first.

    On odd tori the array centre is a site, which (R, t) moves to centre + t.
    """
    centre = np.array(space.lattice.shape) // 2
    for element in space.elements(symmetry):
        f = int(space.fibre_matrix(element)[:, 0].argmax())
        site = (centre + element.shift) % np.array(space.lattice.shape)
        yield element, f, tuple(int(i) for i in site)


def ready(path: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for name, parameter in path.double().named_parameters():
        parameter.requires_grad_(False)
        if "omega" in name:
            parameter.fill_(OMEGA)
        elif "positions" not in name:
            nn.init.normal_(parameter)
    return path


@pytest.mark.parametrize(
    ("symmetry", "fibre"),
    [(g.p4(), "regular"), (g.p2(), "regular"), (g.p4(), "trivial"), (g.cm(), "regular")],
    ids=str,
)
def test_s_gconv_is_the_sum_over_the_group(symmetry: Symmetry, fibre: str) -> None:
    """y(g') = mean over the coset of g' of Σ_g s(g⁻¹g') x(g), s a sum of kernels at anchors."""
    shape = (5, 5)
    space = GroupSet(symmetry).space(shape, 1, fibre)
    path = ready(SparseGroupConv(space, space, symmetry, learn_positions=True))
    x = torch.randn(2, *space.shape, dtype=torch.float64)
    every = list(points(space, symmetry))
    expected = torch.zeros_like(x)
    window = {0: 0, 1: 1, 4: -1}
    # All elements of one coset are one entry of y, and of x: the mean of s over both.
    share = space.fibre_size / len(symmetry.point)
    between = {}
    for (a, f, p), (b, e, q) in itertools.product(every, every):
        u = a.inverse() * b
        if u not in between:
            inside = set(u.shift) <= set(window)
            shift = [window[i] for i in u.shift] if inside else []
            between[u] = float(path.weight[0, 0] @ bumps(path, shift, u)) if inside else 0.0
        expected[:, e, q[0], q[1]] += share**2 * between[u] * x[:, f, p[0], p[1]]
    torch.testing.assert_close(path(x), expected, rtol=1e-12, atol=1e-12)


def test_there_are_half_as_many_anchors_as_free_entries() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m())
    for fibre, symmetry in itertools.product(("regular", "trivial"), groups):
        space = groups.space((5, 5), 1, fibre)
        path = SparseGroupConv(space, space, symmetry)
        entries = kernel_basis(space, space, symmetry, 3).dim
        parts = 1
        if fibre == "regular":
            # K acts freely: each pair of its orbits has |K| k² entries.
            parts = (8 // len(symmetry.point)) ** 2 if len(symmetry.point) > 1 else 64
        assert path.weight.shape[2] == parts * -(-(entries // parts) // 2)


def test_with_translations_alone_it_is_s_conv() -> None:
    groups = GroupSet(g.z2(), g.p4())
    space = groups.space((4, 4), 2)
    sparse = ready(SparseGroupConv(space, space, g.z2()))
    plain = ready(SparseConv(space, space))
    # −δ in the place of δ: window and checkerboard are their own mirror images.
    values = sparse.filter()
    assert values.shape == plain.filter().shape
    bumps = plain.functions().mT.reshape(-1, 3, 3)
    flat = values.reshape(-1, 9).mT
    solution = torch.linalg.lstsq(bumps.reshape(-1, 9).mT, flat).solution
    torch.testing.assert_close(bumps.reshape(-1, 9).mT @ solution, flat)


def test_s_fc_over_the_group_is_the_double_sum() -> None:
    symmetry, shape = g.p4(), (3, 3)
    groups = GroupSet(symmetry)
    source, target = groups.space(shape, 2), groups.space(shape, 1)
    path = ready(SparseFC(source, target, over="group", learn_positions=True, paper_biases=True))
    theta = []
    for space, name, values in ((target, "1", path.theta1), (source, "2", path.theta2)):
        factor = torch.zeros(*values.shape[:2], 4, *shape, dtype=torch.float64)
        for element, f, site in points(space, symmetry):
            # Anchors carry the site itself, elements the shift that moves the centre there.
            bump = bumps(path, site, element, name=f"positions{name}", sides=shape)
            factor[:, :, f, site[0], site[1]] = values @ bump
        assert values.shape[2] == 18
        theta.append(factor.reshape(*values.shape[:2], -1))
    x = torch.randn(2, *source.shape, dtype=torch.float64)
    z = torch.einsum("oip,nip->noi", theta[1], x.reshape(2, 2, -1))
    y = torch.einsum("oip,noi->nop", theta[0], z) + path.bias[:, None]
    torch.testing.assert_close(path(x), y.reshape(2, *target.shape), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("make", [SparseFC, SparseGroupConv])
def test_learned_anchors_change_nothing_before_they_move(make: type[nn.Module]) -> None:
    space = GroupSet(g.p4m()).space((4, 4), 1)
    options = {"over": "group"} if make is SparseFC else {"symmetry": g.p4m()}
    fixed = ready(make(space, space, **options))
    learned = ready(make(space, space, **options, learn_positions=True))
    x = torch.randn(2, *space.shape, dtype=torch.float64)
    torch.testing.assert_close(fixed(x), learned(x), rtol=1e-13, atol=1e-13)


def test_stationary_parts_obey_the_ambient_group() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m(), g.trivial())
    for fibre in ("regular", "trivial"):
        space = groups.space((4, 4), 2, fibre)
        for path, expected in (
            (SparseFC(space, space, over="group"), g.p4m()),
            (SparseGroupConv(space, space, g.p4m()), g.p4m()),
            (SparseGroupConv(space, space, g.p4()), g.p4() if fibre == "regular" else g.p4m()),
        ):
            part = stationary_part(ready(path))
            assert part.stationary_symmetry.key == expected.key
            assert_equivariant(part, space, space, expected, dtype=torch.float64)


def dense(path: nn.Module, space: FeatureSpace) -> Tensor:
    with torch.no_grad():
        eye = torch.eye(space.size, dtype=torch.float64).reshape(-1, *space.shape)
        return path(eye).flatten(1).mT


def test_the_dense_matrix_commutes_with_every_element() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m())
    space = groups.space((3, 3), 1)
    layer = ResidualPathway(space, space, groups, "S-FC/group+S-CONV+S-GCONV", bias=False).double()
    assert list(layer.paths) == ["S-FC", "S-CONV", "S-GCONV:p4", "S-GCONV:p4m"]
    for name in ("p4", "p4m"):
        matrix = dense(layer.strict(name), space)
        for element in space.elements(groups[name]):
            rho = torch.from_numpy(space.action(element).matrix().toarray())
            assert float((rho @ matrix - matrix @ rho).abs().max()) < 1e-12
