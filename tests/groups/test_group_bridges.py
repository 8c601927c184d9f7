"""escnn and e2cnn: the same action on their tensors, and the way back."""

from __future__ import annotations

import builtins
import math
import sys
from typing import Any

import numpy as np
import pytest
import torch

from groupella.groups import (
    FeatureSpace,
    GroupSet,
    Symmetry,
    axial,
    c4,
    cm,
    cmm,
    d4,
    flips,
    from_e2cnn,
    from_escnn,
    inversion,
    line_reflections,
    octahedral,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    to_e2cnn,
    to_escnn,
    translations,
    trivial,
    z2,
)
from groupella.groups._points import escnn_group
from groupella.groups.gate import load_group, load_gspaces, load_nn

PLANE = [z2(), p2(), p4(), p4m(), flips(1), flips(0), pmm(), cm(), cm(anti=True), cmm()]
VOXELS = [translations(3), octahedral(), inversion(True), flips(1, dim=3), flips(2, dim=3)]


def elements(space: FeatureSpace) -> list[Any]:
    return [g for g in space.elements(space.ambient) if not any(g.shift)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("symmetry", [*PLANE, *VOXELS, axial(4, 0), axial(2, 0)], ids=str)
def test_escnn_transforms_as_we_act(symmetry: Symmetry) -> None:
    shape = (4,) * (symmetry.dim or 2)
    for fibre in ("regular", "trivial"):
        space = GroupSet(symmetry).space(shape, channels=2, fibre=fibre)
        field_type = to_escnn(space)
        x = torch.randn(1, *space.shape, dtype=torch.float64)
        tensor = load_nn().GeometricTensor(x, field_type)
        _, table = escnn_group(symmetry.point)
        for g in elements(space):
            assert torch.allclose(
                tensor.transform(table[g.point]).tensor, space.act(g, x), atol=1e-12
            )
        assert from_escnn(field_type, shape) == space
        assert from_escnn(field_type).lattice.shape == ()


def test_escnn_field_types_of_every_kind_come_back() -> None:
    gspace = load_gspaces().flipRot2dOnR2(4)
    group = gspace.fibergroup
    quotient = group.quotient_representation((0, 1))
    for fields in (
        [group.irrep(1, 1)] * 3,
        [quotient] * 2,
        [group.irrep(1, 1), group.regular_representation, quotient],
    ):
        field_type = load_nn().FieldType(gspace, fields)
        space = from_escnn(field_type, (5, 5))
        assert space.ambient == p4m()
        assert space.shape[0] == field_type.size
        assert space.channels == (len(fields) if len(set(fields)) == 1 else 1)
        x = torch.randn(2, *space.shape, dtype=torch.float64)
        tensor = load_nn().GeometricTensor(x, field_type)
        _, table = escnn_group(p4m().point)
        for g in elements(space):
            moved = tensor.transform(table[g.point]).tensor
            assert torch.allclose(moved, space.act(g, x), atol=1e-12)
        again = load_nn().GeometricTensor(x, to_escnn(space))
        assert torch.allclose(
            again.transform(group.element((1, 1))).tensor,
            tensor.transform(group.element((1, 1))).tensor,
            atol=1e-12,
        )


def test_escnn_with_another_mirror_axis_is_understood() -> None:
    gspace = load_gspaces().flipRot2dOnR2(4, axis=0.0)
    field_type = load_nn().FieldType(gspace, [gspace.irrep(1, 1), gspace.regular_repr])
    space = from_escnn(field_type, (4, 4))
    assert space.ambient == p4m()
    x = torch.randn(1, *space.shape, dtype=torch.float64)
    tensor = load_nn().GeometricTensor(x, field_type)
    images = [space.act(g, x) for g in elements(space)]
    for e in gspace.fibergroup.elements:
        moved = tensor.transform(e).tensor
        assert sum(torch.allclose(moved, y, atol=1e-12) for y in images) == 1
    ours = load_nn().GeometricTensor(x, to_escnn(space))
    moved = [ours.transform(e).tensor for e in ours.type.fibergroup.elements]
    for y in images:
        assert sum(torch.allclose(m, y, atol=1e-12) for m in moved) == 1


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (GroupSet(line_reflections()).space(4, 1), "escnn has no 1-dimensional spaces"),
        (GroupSet(permutations(4)).space(4, 1), "s4 is defined by generators: escnn"),
        (
            GroupSet(flips(0, dim=3), flips(1, dim=3), flips(2, dim=3)).space((2, 2, 2), 1),
            "escnn has no space on which",
        ),
    ],
)
def test_what_escnn_does_not_know(space: FeatureSpace, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        to_escnn(space)


def test_escnn_spaces_that_need_interpolation_are_refused() -> None:
    gspaces, nn = load_gspaces(), load_nn()
    for gspace in (gspaces.rot2dOnR2(8), gspaces.flip2dOnR2(axis=math.pi / 8)):
        with pytest.raises(ValueError, match="does not move the sites of a lattice exactly"):
            from_escnn(nn.FieldType(gspace, [gspace.trivial_repr]))
    circle = gspaces.rot2dOnR2(-1, maximum_frequency=1)
    with pytest.raises(ValueError, match=r"the continuous group SO\(2\) .* finite subgroup"):
        from_escnn(nn.FieldType(circle, [circle.trivial_repr]))


def test_ambient_without_translations_and_without_dimension() -> None:
    space = GroupSet(d4()).space((4, 4), channels=2)
    assert to_escnn(space).size == 16
    scalars = GroupSet(trivial()).space((4, 4), channels=3)
    assert to_escnn(scalars).gspace.fibergroup.order() == 1
    assert from_escnn(to_escnn(scalars), (4, 4)).ambient == z2()
    assert to_escnn(GroupSet(c4()).space((), 2)).size == 8


def test_every_direct_sum_of_escnn_is_a_fibre() -> None:
    group = load_group().dihedral_group(4)
    mixed = load_group().directsum([group.irrep(1, 1), group.regular_representation], name="mixed")
    space = GroupSet(p4m()).space((4, 4), channels=2, fibre=mixed)
    assert space.fibre_size == 10
    assert not space.fibre_permutes
    assert to_escnn(space).size == 20
    assert (
        GroupSet(p4m()).space((4, 4), 1, "irrep:1,1").fibre
        == GroupSet(p4m()).space((4, 4), 1, group.irrep(1, 1)).fibre
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@pytest.mark.parametrize("symmetry", PLANE, ids=str)
def test_e2cnn_transforms_as_we_act(symmetry: Symmetry) -> None:
    nn = pytest.importorskip("e2cnn.nn", reason="e2cnn works with numpy 1 only")
    _, table = escnn_group(symmetry.point)
    fibres = ["regular", "trivial"]
    if symmetry == p4m():
        fibres += ["irrep:1,1", "irrep:0,2"]
    for fibre in fibres:
        space = GroupSet(symmetry).space((5, 5), channels=2, fibre=fibre)
        field_type = to_e2cnn(space)
        x = torch.randn(2, *space.shape)
        tensor = nn.GeometricTensor(x, field_type)
        for g in elements(space):
            moved = tensor.transform(table[g.point].value).tensor
            assert torch.allclose(moved, space.act(g, x), atol=1e-5)
        assert from_e2cnn(field_type, (5, 5)) == space


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
def test_e2cnn_field_types_come_and_go() -> None:
    nn = pytest.importorskip("e2cnn.nn", reason="e2cnn works with numpy 1 only")
    gspaces = pytest.importorskip("e2cnn.gspaces", reason="e2cnn works with numpy 1 only")
    gspace = gspaces.FlipRot2dOnR2(4)
    fields = [gspace.irrep(1, 1), gspace.regular_repr, gspace.trivial_repr]
    space = from_e2cnn(nn.FieldType(gspace, fields), (4, 4))
    assert space.shape == (11, 4, 4)
    assert space.channels == 1
    assert space.ambient == p4m()
    assert to_e2cnn(space).size == 11
    with pytest.raises(ValueError, match="does not move the sites"):
        from_e2cnn(nn.FieldType(gspaces.Rot2dOnR2(8), [gspaces.Rot2dOnR2(8).trivial_repr]))
    circle = gspaces.Rot2dOnR2(-1, maximum_frequency=2)
    with pytest.raises(ValueError, match="continuous"):
        from_e2cnn(nn.FieldType(circle, [circle.trivial_repr]))
    with pytest.raises(ValueError, match="e2cnn has no 3-dimensional spaces"):
        to_e2cnn(GroupSet(octahedral()).space((3, 3, 3), 1))


def test_missing_e2cnn_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "e2cnn":
            raise ImportError("No module named 'e2cnn'")
        return real(name, *args, **kwargs)

    for name in [n for n in sys.modules if n.split(".")[0] == "e2cnn"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "e2cnn", None)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install e2cnn"):
        to_e2cnn(GroupSet(p4()).space((4, 4), 1))


def test_regular_representations_have_escnns_order_of_elements() -> None:
    for symmetry in (*PLANE, octahedral()):
        group, table = escnn_group(symmetry.point)
        space = GroupSet(symmetry).space((3,) * (symmetry.dim or 2), 1, fibre="regular")
        for g in elements(space):
            expected = np.rint(group.regular_representation(table[g.point]))
            assert np.array_equal(space.fibre_matrix(g), expected)
