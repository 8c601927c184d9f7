"""Steerable kernels: turns of images by angles that no grid has."""

import numpy as np
import pytest

from groupella.bases import equivariant_basis, increments, kernel_basis
from groupella.groups import GroupSet, c4, d4, image_turns, p4, z2
from groupella.groups.gate import load_gspaces, load_nn


def spaces(turns: int, *others, lattice=(12, 12)):
    groups = GroupSet(*others, image_turns(turns, translations=True))
    return groups.space(lattice, 1, "trivial"), groups.space(lattice, 1), groups


def test_quarter_turns_stay_exact_and_subspaces_are_nested():
    scalar, regular, groups = spaces(8, z2(), p4())
    for source in (scalar, regular):
        bases = {s.name: kernel_basis(source, regular, s, 5) for s in groups}
        rows = bases["p8"].matrix.toarray()
        np.testing.assert_allclose(rows @ rows.T, np.eye(len(rows)), atol=1e-12)
        around = bases["p4"].matrix
        np.testing.assert_allclose(rows @ around.T.toarray() @ around.toarray(), rows, atol=1e-10)
        parts = increments(bases)
        assert parts.overlapping == ()
        assert parts["p8"].dim == bases["p8"].dim


def test_dimensions_count_rings_frequencies_and_orbits():
    """1 + 5 + 9 functions on 5×5; times n/m orbits from scalars, n·n/m from regular fibres."""
    scalar, regular, groups = spaces(16)
    for turns in (8, 16):
        symmetry = image_turns(turns, translations=True)
        assert kernel_basis(scalar, regular, symmetry, 5).dim == 15 * 16 // turns
        assert kernel_basis(regular, regular, symmetry, 5).dim == 15 * 16 * 16 // turns
    # Scalars to scalars: only what all turns leave alone, one function per ring.
    assert kernel_basis(scalar, scalar, groups["p16"], 5).dim == 3


@pytest.mark.parametrize("kind", ["trivial", "regular"])
def test_they_are_the_kernels_of_escnn(kind):
    """Filters that escnn expands with the same rings and frequencies lie in our span."""
    enn, gspace = load_nn(), load_gspaces().rot2dOnR2(8)
    first = gspace.trivial_repr if kind == "trivial" else gspace.regular_repr
    conv = enn.R2Conv(
        enn.FieldType(gspace, [first]),
        enn.FieldType(gspace, [gspace.regular_repr]),
        5,
        bias=False,
        rings=[0.0, 1.0, 2.0],
        sigma=[0.6, 0.6, 0.4],
        frequencies_cutoff=lambda r: 2 * r,
    )
    weight, _ = conv.expand_parameters()
    found = weight.detach().double().numpy().reshape(8, -1, 5, 5)
    assert np.abs(found).max() > 0.01
    scalar, regular, groups = spaces(8)
    basis = kernel_basis(scalar if kind == "trivial" else regular, regular, groups["p8"], 5)
    np.testing.assert_allclose(basis.project(found), found, atol=1e-5)


def test_what_has_no_such_kernels_is_refused():
    scalar, regular, groups = spaces(8)
    with pytest.raises(ValueError, match="only convolutions obey it"):
        equivariant_basis(regular, regular, groups["p8"])
    with pytest.raises(ValueError, match="equal sides"):
        kernel_basis(scalar, regular, groups["p8"], (3, 5))
    with pytest.raises(ValueError, match="does not contain them"):
        kernel_basis(scalar, regular, image_turns(8), 5)
    mirrored = GroupSet(d4(), image_turns(8))
    with pytest.raises(ValueError, match="reflections beside turns"):
        mirrored.space((8, 8), 1)
    fourth = groups.space((12, 12), 1, c4_regular(groups))
    with pytest.raises(ValueError, match="'trivial' and 'regular' of 8 turns"):
        kernel_basis(scalar, fourth, groups["p8"], 5)


def c4_regular(groups: GroupSet):
    return GroupSet(c4()).space((12, 12), 1).fibre.representation


def test_maps_of_fibres_without_sites_are_circulant():
    groups = GroupSet(image_turns(8))
    regular = groups.space((), 1)
    assert equivariant_basis(regular, regular, groups["c8"]).dim == 8
