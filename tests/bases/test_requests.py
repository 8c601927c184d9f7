"""What is asked of the two functions: the example of the guide, and clear refusals."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from groupella.bases import Basis, KernelBasis, equivariant_basis, increments, kernel_basis
from groupella.groups import (
    GroupSet,
    Symmetry,
    c4,
    cyclic,
    flips,
    octahedral,
    p4,
    p4m,
    permutations,
    trivial,
    z2,
)


def test_the_example() -> None:
    groups = GroupSet(z2(), p4(), flips(axis=0))
    space = groups.space(lattice=(8, 8), channels=1)
    kernels = kernel_basis(space, space, p4(), size=3)
    small = groups.space((4, 4), channels=1)
    maps = equivariant_basis(small, small, p4())
    assert isinstance(kernels, KernelBasis)
    assert (kernels.dim, len(kernels), kernels.window) == (144, 144, (3, 3))
    assert kernels.tensor.shape == (144, 8, 8, 3, 3)
    assert kernels.tensor.dtype == np.float64
    assert (maps.dim, maps.tensor.shape) == (256, (256, 128, 128))
    assert repr(maps) == "Basis(dim=256, shape=(128, 128), method='orbits')"


def test_channels_do_not_matter() -> None:
    groups = GroupSet(p4())
    one, many = groups.space((4, 4), 1), groups.space((4, 4), 5)
    assert equivariant_basis(many, one, p4()).shape == (64, 64)


def test_gather_expands_like_the_matrix() -> None:
    """W = u[labels] · values where representations permute, with signs and forced zeros."""
    groups = GroupSet(p4m())
    plain, signed = groups.space((4, 4), 1), groups.space((4, 4), 1, "irrep:1,1")
    for space_in, space_out in [(plain, plain), (plain, signed), (signed, signed)]:
        for basis in (
            kernel_basis(space_in, space_out, p4m(), 3),
            equivariant_basis(space_in, space_out, p4m()),
        ):
            assert basis.gather is not None
            labels, values = basis.gather
            u = np.random.default_rng(0).standard_normal((2, basis.dim))
            np.testing.assert_allclose(u[:, labels] * values, basis.expand(u), atol=1e-14)
            np.testing.assert_allclose(basis.coefficients(basis.expand(u)), u, atol=1e-13)
    dense = kernel_basis(plain, plain, p4m(), 1, "reynolds")
    assert dense.gather is None


def test_copies_share_a_basis_and_pickles_keep_it() -> None:
    space = GroupSet(p4m()).space((4, 4), 1)
    basis = kernel_basis(space, space, p4m(), 3)
    assert copy.deepcopy(basis) is basis
    parts = increments({"p4m": basis, "p4": kernel_basis(space, space, p4(), 3)})
    again = pickle.loads(pickle.dumps(parts))
    assert again.members == parts.members
    for name in parts.names:
        np.testing.assert_array_equal(again[name].tensor, parts[name].tensor)


def test_shapes_are_checked() -> None:
    basis = Basis((2, 2), np.eye(4)[:3])
    with pytest.raises(ValueError, match=r"coefficients must have shape \(…, 3\), got \(4,\)"):
        basis.expand(np.zeros(4))
    with pytest.raises(ValueError, match=r"maps must have shape \(…, \(2, 2\)\), got \(4, 4\)"):
        basis.coefficients(np.zeros((4, 4)))


@pytest.mark.parametrize("size", [2, 0, -1, (3, 4), (3,), (3, 3, 3)])
def test_kernel_sizes_are_odd_and_one_a_dimension(size: object) -> None:
    space = GroupSet(p4()).space((8, 8), 1)
    with pytest.raises(ValueError, match=r"a kernel size is one odd number, or 2 of them, got"):
        kernel_basis(space, space, p4(), size)


def test_a_rotation_needs_a_square_window() -> None:
    space = GroupSet(p4()).space((8, 8), 1)
    with pytest.raises(ValueError, match=r"exchanges axes of different length"):
        kernel_basis(space, space, p4(), (3, 5))


@pytest.mark.parametrize("symmetry", [c4(), trivial()], ids=str)
def test_kernels_need_translations(symmetry: Symmetry) -> None:
    space = GroupSet(p4m(), symmetry).space((8, 8), 1)
    with pytest.raises(ValueError, match=f"convolutions obey all translations, and {symmetry}"):
        kernel_basis(space, space, symmetry, 3)


def test_kernels_need_a_catalogue_symmetry_and_lattices_of_its_dimension() -> None:
    groups = GroupSet(cyclic(6))
    space = groups.space((6,), 1)
    with pytest.raises(ValueError, match="does not contain them"):
        kernel_basis(space, space, groups.ambient, 3)
    image = GroupSet(p4()).space((8, 8), 1)
    with pytest.raises(ValueError, match="the lattices have 2 and 0 dimensions"):
        kernel_basis(image, GroupSet(p4()).space((), 1), p4(), 3)
    with pytest.raises(ValueError, match="kernels of octahedral are 3-dimensional"):
        kernel_basis(image, image, octahedral(), 3)


def test_a_symmetry_outside_the_ambient_group_is_refused() -> None:
    space = GroupSet(p4()).space((8, 8), 1)
    with pytest.raises(ValueError, match=r"^p4m is .* of p4, the ambient"):
        equivariant_basis(space, space, p4m())
    with pytest.raises(ValueError, match=r"^p4m is .* of p4, the ambient"):
        kernel_basis(space, space, p4m(), 3)


def test_spaces_of_different_sets_are_refused() -> None:
    image, line = GroupSet(p4()).space((2, 2), 1), GroupSet(cyclic(4)).space((4,), 1)
    with pytest.raises(ValueError, match="different sets of groups"):
        equivariant_basis(image, line, p4())


def test_wrong_types_are_named() -> None:
    space = GroupSet(p4()).space((4, 4), 1)
    with pytest.raises(TypeError, match="expected a Symmetry, got 'p4'"):
        kernel_basis(space, space, "p4", 3)
    with pytest.raises(TypeError, match="expected a FeatureSpace, got 3"):
        kernel_basis(3, space, p4(), 3)
    with pytest.raises(TypeError, match="expected a FeatureSpace, got 3"):
        equivariant_basis(space, 3, p4())


def test_methods_that_do_not_apply_say_so() -> None:
    space = GroupSet(p4()).space((4, 4), 1)
    with pytest.raises(ValueError, match="method must be one of"):
        equivariant_basis(space, space, p4(), "svd")
    with pytest.raises(ValueError, match="4096 index pairs are more than 4000"):
        equivariant_basis(space, space, p4(), "nullspace")
    turned = GroupSet(octahedral()).space((2, 2, 2), 1, "irrep:2")
    with pytest.raises(ValueError, match="needs \\(signed\\) permutation representations"):
        equivariant_basis(turned, turned, octahedral(), "orbits")
    assert equivariant_basis(turned, turned, octahedral()).method == "reynolds"
    large = GroupSet(z2()).space((32, 32), 1)
    with pytest.raises(ValueError, match="Reynolds averaging would need 1024 × 1048576 numbers"):
        equivariant_basis(large, large, z2(), "reynolds")


def test_a_large_set_is_never_enumerated() -> None:
    generators = permutations(100).site_generators
    symmetry = Symmetry.from_generators(
        "s100", (100,), [g.sites for g in generators], max_order=1000
    )
    space = GroupSet(symmetry).space((100,), 1)
    basis = equivariant_basis(space, space, symmetry)
    assert basis.dim == 2
    with pytest.raises(ValueError, match="max_order"):
        equivariant_basis(space, space, symmetry, "reynolds")
