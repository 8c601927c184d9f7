"""Every shipped symmetry × fibre × lattice: dimensions by characters, equivariance, agreement.

The characters here are computed from point matrices and displacement counts, with nothing of the
package but the matrices ρ(g) of the fibre: (t, R) fixes the site s if and only if
t = s − (R(s − c) + c).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import pytest

from groupella.bases import Basis, character_dimension, equivariant_basis, kernel_basis
from groupella.groups import (
    Element,
    FeatureSpace,
    GroupSet,
    LatticeElement,
    Symmetry,
    c2,
    c4,
    cm,
    cmm,
    cyclic,
    d2,
    d4,
    diagonal,
    flips,
    inversion,
    line_reflections,
    mirror,
    octahedral,
    octahedral_point,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    translations,
    trivial,
    z2,
)
from groupella.groups._points import escnn_group

LINE = [translations(1), line_reflections(), mirror(0, dim=1)]
PLANE = [
    trivial(),
    z2(),
    p2(),
    p4(),
    p4m(),
    flips(0),
    flips(1),
    pmm(),
    cm(),
    cm(anti=True),
    cmm(),
    c2(),
    c4(),
    d4(),
    d2(),
    d2(diagonal=True),
    mirror(0),
    mirror(1),
    diagonal(),
    diagonal(anti=True),
]
SPACE = [
    translations(3),
    flips(0, dim=3),
    flips(2, dim=3),
    mirror(1, dim=3),
    inversion(),
    inversion(translations=True),
    octahedral(),
    octahedral(mirrors=True),
    octahedral_point(),
    octahedral_point(mirrors=True),
]
PLANE_WITH_TRANSLATIONS = [s for s in PLANE if s.translations]


@lru_cache
def fibres(point: tuple) -> dict[str, object]:
    """trivial, regular, quotients, every irrep, and a mixture."""
    made: dict[str, object] = {"trivial": "trivial", "regular": "regular"}
    if len(point) <= 1:
        return made
    group, _ = escnn_group(point)
    if len(point) == 48:
        quotients = [(2, (False, 1))]
    elif len(point) == 24:
        quotients = [(False, 4), (False, 3)]
    elif group.name.startswith("D"):
        quotients = [(None, 2), (0, 1)]
    else:
        quotients = [2]
    for identifier in quotients:
        made[f"quotient {identifier}"] = group.quotient_representation(identifier)
    irreps = group.irreps()
    made |= {irrep.name: irrep for irrep in irreps}
    made["mixed"] = irreps[-1] + group.trivial_representation + irreps[min(2, len(irreps) - 1)]
    return made


def pairs(
    symmetry: Symmetry, shape: tuple[int, ...]
) -> Iterator[tuple[FeatureSpace, FeatureSpace]]:
    """(in, out): every fibre to itself, from the trivial one and (small groups) to the regular."""
    groups = GroupSet(symmetry)
    made = {name: groups.space(shape, 1, f) for name, f in fibres(symmetry.point).items()}
    chosen = {(name, name) for name in made} | {("trivial", name) for name in made}
    if len(symmetry.point) <= 8:
        chosen |= {(name, "regular") for name in made}
    for first, second in sorted(chosen):
        yield made[first], made[second]


def displacements(point: tuple, shape: tuple[int, ...]) -> np.ndarray:
    """How many sites each translation sends back to where the point matrix took them from."""
    sites = np.indices(shape).reshape(len(shape), -1).T
    centre = (np.array(shape) - 1) / 2
    moved = np.rint((sites - centre) @ np.array(point).T + centre).astype(int)
    counts = np.zeros(shape, dtype=int)
    np.add.at(counts, tuple(((sites - moved) % shape).T), 1)
    return counts


def by_characters(space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry) -> int:
    shape = space_in.lattice.shape
    total, order = 0.0, 0
    for point in symmetry.point_in(len(shape)):
        g = LatticeElement(point, (0,) * len(shape), shape)
        fixed = displacements(point, shape)
        if not symmetry.translations:
            fixed = fixed[(0,) * len(shape)]
        weight = np.trace(space_out.fibre_matrix(g)) * np.trace(space_in.fibre_matrix(g))
        total += float(weight * np.square(fixed).sum())
        order += fixed.size
    assert abs(total / order - round(total / order)) < 1e-9
    return round(total / order)


def assert_orthonormal(basis: Basis) -> None:
    if not isinstance(basis.form, np.ndarray):
        gram = basis.matrix @ basis.matrix.T
        gram.setdiag(gram.diagonal() - 1)
        assert np.abs(gram.data).max(initial=0) <= 1e-12
    else:
        rows = basis.tensor.reshape(basis.dim, basis.size)
        assert np.abs(rows @ rows.T - np.eye(basis.dim)).max(initial=0) <= 1e-12
    random = np.random.default_rng(1).standard_normal(basis.shape)
    once = basis.project(random)
    np.testing.assert_allclose(basis.project(once), once, rtol=0, atol=1e-12)


def assert_commutes(
    basis: Basis, space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry
) -> None:
    """ρ_out(g) B = B ρ_in(g) for every generator: all of a small basis, else random mixtures."""
    if basis.dim * basis.size <= 50_000:
        maps = basis.tensor
    else:
        mixtures = np.random.default_rng(0).standard_normal((3, basis.dim))
        maps = basis.expand(mixtures / np.sqrt(basis.dim))
    for g in space_in.generators(symmetry):
        assert largest_defect(maps, space_in, space_out, g) <= 1e-12


def largest_defect(
    maps: np.ndarray, space_in: FeatureSpace, space_out: FeatureSpace, g: Element
) -> float:
    left, right = space_out.action(g).matrix(), space_in.action(g).matrix()
    count, n_out, n_in = maps.shape
    before = left @ maps.transpose(1, 0, 2).reshape(n_out, count * n_in)
    after = (right.T @ maps.reshape(count * n_out, n_in).T).T.reshape(maps.shape)
    defect = before.reshape(n_out, count, n_in) - after.transpose(1, 0, 2)
    return float(np.abs(defect).max(initial=0))


def assert_same_span(first: Basis, second: Basis) -> None:
    assert first.dim == second.dim
    outside = first.tensor - second.project(first.tensor)
    assert np.abs(outside).max(initial=0) <= 1e-12


def check_everything(symmetry: Symmetry, shape: tuple[int, ...], deep: bool) -> None:
    for space_in, space_out in pairs(symmetry, shape):
        size = space_in.size * space_out.size
        expected = by_characters(space_in, space_out, symmetry)
        if not deep and not (space_in.fibre_permutes and space_out.fibre_permutes):
            # beyond small lattices only orbits are compared: skip what Reynolds would have to do
            generators = space_in.generators(symmetry)
            if any(s.action(g).signed() is None for s in (space_in, space_out) for g in generators):
                continue
        basis = equivariant_basis(space_in, space_out, symmetry)
        assert basis.dim == expected, (symmetry, space_in, space_out)
        assert_orthonormal(basis)
        assert_commutes(basis, space_in, space_out, symmetry)
        if deep and size * basis.dim <= 20_000:
            assert character_dimension(space_in, space_out, symmetry) == expected
            averaged = equivariant_basis(space_in, space_out, symmetry, "reynolds")
            assert_orthonormal(averaged)
            assert_same_span(basis, averaged)
        if deep and size <= 150:
            assert_same_span(basis, equivariant_basis(space_in, space_out, symmetry, "nullspace"))


@pytest.mark.parametrize("symmetry", LINE, ids=str)
@pytest.mark.parametrize("length", [1, 2, 5, 8, 64])
def test_every_map_on_a_line(symmetry: Symmetry, length: int) -> None:
    check_everything(symmetry, (length,), deep=length <= 8)


@pytest.mark.parametrize("symmetry", PLANE, ids=str)
@pytest.mark.parametrize("side", [1, 2, 3, 4])
def test_every_map_on_a_small_image(symmetry: Symmetry, side: int) -> None:
    check_everything(symmetry, (side, side), deep=side <= 3)


@pytest.mark.parametrize("symmetry", PLANE, ids=str)
def test_every_map_on_an_image_of_eight(symmetry: Symmetry) -> None:
    check_everything(symmetry, (8, 8), deep=False)


@pytest.mark.parametrize("symmetry", [z2(), p2(), flips(0), pmm(), mirror(1), d2()], ids=str)
def test_every_map_on_an_oblong_image(symmetry: Symmetry) -> None:
    check_everything(symmetry, (2, 5), deep=True)


@pytest.mark.parametrize("symmetry", SPACE, ids=str)
def test_every_map_on_voxels(symmetry: Symmetry) -> None:
    check_everything(symmetry, (2, 2, 2), deep=len(symmetry.point) <= 8)
    if len(symmetry.point) <= 8:
        check_everything(symmetry, (3, 3, 3), deep=False)


@pytest.mark.parametrize("member", PLANE, ids=str)
def test_members_act_by_restriction_of_the_ambient_fibre(member: Symmetry) -> None:
    """Fibres of D₄ under each of its subgroups."""
    groups = GroupSet(p4m()) if member.name == "p4m" else GroupSet(p4m(), member)
    made = fibres(p4m().point)
    for name in ("regular", "irrep_1,1", "quotient (0, 1)", "mixed"):
        space_in, space_out = (groups.space((3, 3), 1, f) for f in (made[name], "regular"))
        basis = equivariant_basis(space_in, space_out, member)
        assert basis.dim == by_characters(space_in, space_out, member)
        assert_commutes(basis, space_in, space_out, member)


def test_all_methods_agree_near_the_bounds() -> None:
    """Null space at 1,936 pairs; Reynolds at 1.5·10⁶ numbers."""
    groups = GroupSet(cyclic(44))
    space = groups.space((44,), 1)
    orbits = equivariant_basis(space, space, groups.ambient)
    assert orbits.dim == 44
    assert_same_span(orbits, equivariant_basis(space, space, groups.ambient, "nullspace"))
    groups = GroupSet(c4())
    space = groups.space((5, 5), 1, "trivial")
    big = groups.space((5, 5), 1, "regular")
    orbits = equivariant_basis(space, big, c4())
    assert orbits.dim * orbits.size > 1_500_000
    assert_same_span(orbits, equivariant_basis(space, big, c4(), "reynolds"))


@pytest.mark.parametrize(("n", "dimension"), [(1, 1), (2, 2), (7, 2), (100, 2)])
def test_sets(n: int, dimension: int) -> None:
    groups = GroupSet(permutations(n))
    space = groups.space((n,), 1)
    assert equivariant_basis(space, space, groups.ambient).dim == dimension


@pytest.mark.parametrize(
    ("shape_in", "shape_out"), [((4, 4), (2, 2)), ((2, 2), (4, 4)), ((3, 3), ())]
)
@pytest.mark.parametrize("symmetry", [z2(), p4(), p4m(), c4()], ids=str)
def test_maps_between_different_lattices(
    symmetry: Symmetry, shape_in: tuple[int, ...], shape_out: tuple[int, ...]
) -> None:
    groups = GroupSet(symmetry)
    space_in, space_out = groups.space(shape_in, 1), groups.space(shape_out, 1)
    basis = equivariant_basis(space_in, space_out, symmetry)
    home = max(space_in, space_out, key=lambda space: space.lattice.size)
    traces = [
        space_in.action(g).trace() * space_out.action(g).trace() for g in home.elements(symmetry)
    ]
    assert basis.dim == round(sum(traces) / len(traces))
    for g in home.generators(symmetry):
        assert largest_defect(basis.tensor, space_in, space_out, g) <= 1e-12
    assert_same_span(basis, equivariant_basis(space_in, space_out, symmetry, "reynolds"))


def convolve(kernels: np.ndarray, x: np.ndarray) -> np.ndarray:
    """y(p) = Σ_δ W(δ) x(p + δ) on the torus: (n, F', F, *k) and (batch, F, *lattice)."""
    axes = tuple(range(2, x.ndim))
    window = kernels.shape[3:]
    y = 0.0
    for place in itertools.product(*map(range, window)):
        shift = [-(i - (k - 1) // 2) for i, k in zip(place, window, strict=True)]
        moved = np.roll(x, shift, axes)
        y = y + np.einsum("nij,bj...->bni...", kernels[(..., *place)], moved)
    return y


def check_kernels(symmetry: Symmetry, window: tuple[int, ...], shape: tuple[int, ...]) -> None:
    for space_in, space_out in pairs(symmetry, shape):
        basis = kernel_basis(space_in, space_out, symmetry, window)
        total = 0.0
        for point in symmetry.point:
            g = LatticeElement(point, (0,) * len(shape), shape)
            fixed = displacements(point, window)[(0,) * len(shape)]
            total += (
                fixed * np.trace(space_out.fibre_matrix(g)) * np.trace(space_in.fibre_matrix(g))
            )
        assert basis.dim == round(total / len(symmetry.point))
        assert basis.dim == character_dimension(space_in, space_out, symmetry, window)
        assert basis.tensor.shape == (
            basis.dim,
            space_out.fibre_size,
            space_in.fibre_size,
            *window,
        )
        assert_orthonormal(basis)
        kernels = basis.tensor
        if basis.dim > 24:
            mixtures = np.random.default_rng(0).standard_normal((4, basis.dim))
            kernels = basis.expand(mixtures / np.sqrt(basis.dim))
        x = np.random.default_rng(2).standard_normal((1, *space_in.shape))
        y = convolve(kernels, x)[0]
        for g in space_in.generators(symmetry):
            moved = convolve(kernels, space_in.act(g, x))[0]
            np.testing.assert_allclose(moved, space_out.act(g, y), rtol=0, atol=1e-12)
        if basis.size * basis.dim <= 20_000:
            assert_same_span(basis, kernel_basis(space_in, space_out, symmetry, window, "reynolds"))
        if basis.size <= 150:
            assert_same_span(
                basis, kernel_basis(space_in, space_out, symmetry, window, "nullspace")
            )


@pytest.mark.parametrize("symmetry", [translations(1), line_reflections()], ids=str)
@pytest.mark.parametrize("size", [1, 3, 7])
def test_kernels_on_a_line(symmetry: Symmetry, size: int) -> None:
    check_kernels(symmetry, (size,), (8,))


@pytest.mark.parametrize("symmetry", PLANE_WITH_TRANSLATIONS, ids=str)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_kernels_on_images(symmetry: Symmetry, size: int) -> None:
    check_kernels(symmetry, (size, size), (5, 5) if size < 5 else (6, 6))


@pytest.mark.parametrize("symmetry", [flips(0), p2()], ids=str)
def test_oblong_kernels(symmetry: Symmetry) -> None:
    check_kernels(symmetry, (1, 3), (3, 4))


@pytest.mark.parametrize(
    "symmetry",
    [translations(3), flips(1, dim=3), inversion(translations=True), octahedral()],
    ids=str,
)
def test_kernels_on_voxels(symmetry: Symmetry) -> None:
    check_kernels(symmetry, (3, 3, 3), (3, 3, 3))


@pytest.mark.parametrize(
    ("make", "size", "dimension"),
    [(z2, 3, 9), (p4, 3, 36), (p4m, 3, 72), (octahedral, 3, 648), (p4m, 5, 200)],
)
def test_regular_kernels_have_one_parameter_for_each_offset_and_relative_element(
    make: Callable[[], Symmetry], size: int, dimension: int
) -> None:
    symmetry = make()
    space = GroupSet(symmetry).space((8,) * (symmetry.dim or 1), 1)
    assert kernel_basis(space, space, symmetry, size).dim == dimension


def test_a_mixture_is_solved_block_by_block() -> None:
    """Regular ⊕ E ⊕ vectors of the cube: orbits where they permute, averages only around E."""
    group, _ = escnn_group(octahedral().point)
    _, vector, _, doublet, _ = group.irreps()
    mixture = group.regular_representation + doublet + vector
    space = GroupSet(octahedral()).space((4, 4, 4), 1, mixture)
    basis = kernel_basis(space, space, octahedral(), 3)
    assert basis.dim == character_dimension(space, space, octahedral(), 3) == 949
    assert basis.matrix.nnz < 0.02 * basis.dim * basis.size
    assert_orthonormal(basis)
    mixtures = np.random.default_rng(0).standard_normal((2, basis.dim)) / np.sqrt(basis.dim)
    kernels, x = basis.expand(mixtures), np.random.default_rng(2).standard_normal((1, *space.shape))
    y = convolve(kernels, x)[0]
    for g in space.generators(octahedral()):
        moved = convolve(kernels, space.act(g, x))[0]
        np.testing.assert_allclose(moved, space.act(g, y), rtol=0, atol=1e-12)


def test_kernels_are_the_dense_maps_with_that_support() -> None:
    """On a 3×3 torus every p4m-equivariant dense map is a 3×3 convolution."""
    space = GroupSet(p4m()).space((3, 3), 1)
    dense, kernels = equivariant_basis(space, space, p4m()), kernel_basis(space, space, p4m(), 3)
    assert dense.dim == kernels.dim == 72
    identity = np.eye(space.size).reshape(space.size, *space.shape)
    maps = convolve(kernels.tensor, identity)
    flat = np.moveaxis(maps.reshape(space.size, kernels.dim, space.size), 0, -1)
    inside = dense.project(flat)
    np.testing.assert_allclose(inside, flat, rtol=0, atol=1e-12)
