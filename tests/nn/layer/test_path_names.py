"""Names, objects and bad input of a residual-pathway layer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from groupella import groups as g
from groupella.groups import FeatureSpace, GroupSet
from groupella.nn.layer import PATHS, ResidualPathway
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    PairwiseConv,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
    SparseGroupConv,
    UniformConv,
)

GROUPS = GroupSet(g.z2(), g.p4(), g.trivial())
SPACE = GROUPS.space((4, 4), 2)
HALF = GROUPS.space((2, 2), 2)


def layer(paths: object, groups: GroupSet = GROUPS, **options: object) -> ResidualPathway:
    space = groups.space((4, 4), 2)
    return ResidualPathway(space, space, groups, paths, **options)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("FC", FullyConnected),
        ("F-FC", FactoredFC),
        ("S-FC", SparseFC),
        ("CONV", Conv),
        ("S-CONV", SparseConv),
        ("GCONV", GroupConv),
        ("GCONV/pointwise", GroupConv),
        ("GCONV/separable", SeparableGroupConv),
        ("GCONV/depthwise", SeparableGroupConv),
        ("GCONV:p4/full", GroupConv),
        ("GCONV/pairwise", PairwiseConv),
        ("GCONV:p4/uniform", UniformConv),
        ("S-GCONV", SparseGroupConv),
        ("S-GCONV:p4", SparseGroupConv),
        ("S-FC/group", SparseFC),
    ],
)
def test_every_name_of_the_paper(name: str, kind: type[nn.Module]) -> None:
    made = layer(name)
    ((key, path),) = made.paths.items()
    assert isinstance(path, kind)
    assert key == name.split("/")[0]
    assert name.split("/")[0].split(":")[0] in PATHS


def test_names_with_several_members() -> None:
    groups = GroupSet(g.z2(), g.p4(), g.p4m(), g.c4(), g.trivial())
    made = layer("F-FC/group + GCONV + DENSE", groups)
    assert tuple(made.paths) == ("F-FC", "GCONV:p4", "GCONV:p4m", "DENSE")
    assert made.paths["F-FC"].over == "group"
    assert isinstance(made.paths["DENSE"], DenseBasis)
    assert made.subspaces["GCONV:p4"] == ("z2", "p4", "c4", "trivial")
    assert made.subspaces["DENSE"] == ("c4", "trivial")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("F-CF", "unknown path 'F-CF'; did you mean 'F-FC'"),
        ("conv", "did you mean 'CONV'"),
        ("GCOMV", "did you mean 'GCONV'"),
        ("", "unknown path ''"),
        ("CONV+", "unknown path ''"),
        ("CONV+CONV", "occurs twice"),
        ("GCONV/pointwize", "did you mean 'pointwise'"),
        ("CONV/full", "It has no variants"),
        ("GCONV:p4n", "did you mean 'p4'"),
        ("CONV:p4", "takes no member"),
        ("FC:p4", "a free path is one of"),
        ("DENSE", "needs a member without translations"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer(name)


def test_the_free_path_of_the_trivial_member() -> None:
    for free, kind in (("FC", FullyConnected), ("S-FC", SparseFC), ("F-FC", FactoredFC)):
        assert isinstance(layer(None, free=free).paths["trivial"], kind)
    assert layer(None, free="F-FC/group").paths["trivial"].over == "group"
    with pytest.raises(ValueError, match="a free path is one of"):
        layer(None, free="CONV")


def test_objects_and_functions_as_paths() -> None:
    made = ResidualPathway(
        SPACE,
        HALF,
        GROUPS,
        {
            "mine": Conv(SPACE, SPACE, 5),
            "turning": lambda a, b: GroupConv(a, b, g.p4(), 1),
            "straight": FactoredFC(SPACE, HALF, over="group"),
        },
        stride=2,
    )
    assert made(torch.randn(2, *SPACE.shape)).shape == (2, *HALF.shape)
    assert made.subspaces == {
        "mine": ("z2", "trivial"),
        "turning": ("z2", "p4", "trivial"),
        "straight": ("trivial",),
    }
    assert made.strictest == ("turning",)


def test_paths_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="this layer needs one from"):
        layer({"wrong": Conv(HALF, HALF)})
    with pytest.raises(TypeError, match=r"must be an nn\.Module with space_in"):
        layer({"wrong": nn.Conv2d(8, 8, 3)})
    with pytest.raises(TypeError, match="paths is None, a string"):
        layer(3)
    with pytest.raises(ValueError, match="at least one path"):
        layer({})


def test_spaces_that_do_not_fit() -> None:
    other = GroupSet(g.p4m()).space((4, 4), 2)
    with pytest.raises(ValueError, match=r"make both spaces with groups.space"):
        ResidualPathway(SPACE, other, GROUPS)
    with pytest.raises(ValueError, match=r"stride=1 the lattice \(4, 4\) becomes \(4, 4\)"):
        ResidualPathway(SPACE, HALF, GROUPS)
    with pytest.raises(ValueError, match=r"becomes \(2, 2\), but space_out has \(4, 4\)"):
        ResidualPathway(SPACE, SPACE, GROUPS, stride=2)
    with pytest.raises(ValueError, match="stride is a positive whole number"):
        ResidualPathway(SPACE, SPACE, GROUPS, stride=0)
    with pytest.raises(ValueError, match="init is 'earn' or 'balanced'"):
        layer("CONV", init="kaiming")
    with pytest.raises(ValueError, match="norm is 'inf', 'l1' or 'l2', got 'zzz'"):
        layer("CONV", norm="zzz")
    turns = GroupSet(g.z2(), g.p4())
    space = turns.space((4, 4), 1)
    for paths in (None, "CONV"):
        with pytest.raises(ValueError, match="unknown path 'FFC'; did you mean 'F-FC'"):
            ResidualPathway(space, space, turns, paths, free="FFC")
    with pytest.raises(TypeError, match=r"groups is a GroupSet, got a list: GroupSet\(\*list\)"):
        ResidualPathway(SPACE, SPACE, list(GROUPS))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"got a Symmetry: GroupSet\(p4\)"):
        ResidualPathway(SPACE, SPACE, g.p4())  # type: ignore[arg-type]
    odd = GROUPS.space((5, 5), 2)
    with pytest.raises(ValueError, match="must be even"):
        ResidualPathway(odd, odd, GROUPS, stride=2)


def test_input_that_does_not_fit() -> None:
    made = layer("CONV")
    with pytest.raises(ValueError, match="expected a tensor of shape"):
        made(torch.zeros(1, 2, 4, 4))
    with pytest.raises(TypeError, match="floating-point"):
        made(torch.zeros(1, *SPACE.shape, dtype=torch.int32))
    with pytest.raises(
        TypeError, match=r"parameters of torch.float32, got an input of torch.float64: convert"
    ):
        made(torch.zeros(1, *SPACE.shape, dtype=torch.float64))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made(torch.zeros(1, *SPACE.shape, dtype=torch.bfloat16))
    with pytest.raises(ValueError, match=r"no member 'p6' in .*; did you mean 'p4'"):
        made.strict("p6")
    with pytest.raises(ValueError, match="no path of this layer lies in"):
        made.strict("p4")
    with pytest.raises(ValueError, match="paths of this layer are CONV"):
        made.only(["GCONV"])


def test_published_biases_replace_that_of_the_layer() -> None:
    made = ResidualPathway(
        SPACE, HALF, GROUPS, "FC+F-FC+S-FC+CONV+GCONV", stride=2, paper_biases=True
    )
    assert made.bias is None
    names = {n for n, _ in made.named_parameters() if "bias" in n}
    assert names == {
        "paths.FC.bias",
        "paths.F-FC.channel_bias",
        "paths.F-FC.point_bias",
        "paths.S-FC.bias",
        "paths.CONV.bias",
        "paths.GCONV.bias",
    }


def test_a_users_path_is_one_class() -> None:
    from collections.abc import Mapping

    from groupella.nn.shared_maps import LinearMap, SharedLinearMap, record

    class Diagonal(nn.Module):
        def __init__(self, space_in: FeatureSpace, space_out: FeatureSpace) -> None:
            super().__init__()
            self.space_in, self.space_out, self.symmetry = space_in, space_out, g.trivial()
            self.weight = nn.Parameter(torch.empty(space_out.size, space_in.size))

        def reset_parameters(self, gain: float) -> None:
            nn.init.normal_(self.weight, std=gain * self.space_in.size**-0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = nn.functional.linear(x.flatten(1), self.weight).view(-1, *self.space_out.shape)
            record(self, "weight", x, y)
            return y

        def shared_maps(self) -> Mapping[str, SharedLinearMap]:
            return {"weight": LinearMap("weight", self.space_in.size, self.space_out.size)}

    made = layer({"mine": Diagonal, "conv": Conv})
    assert made.subspaces["mine"] == ("trivial",)
    assert made(torch.randn(2, *SPACE.shape)).shape == (2, *SPACE.shape)
