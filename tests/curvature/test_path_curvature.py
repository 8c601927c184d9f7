"""Every path: its maps, factors and exact cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from groupella.curvature import curvature
from groupella.evidence.likelihoods import Categorical
from groupella.groups import FeatureSpace, GroupSet, c4, p4, translations
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
    TiedFilter,
    UniformConv,
)
from groupella.nn.shared_maps import BlockMap
from groupella.testing import CurvatureCase
from groupella.testing._curvature import Readout, ggn_blocks

Build = Callable[[FeatureSpace, FeatureSpace], nn.Module]

GROUPS = GroupSet(p4(), translations(2))

PATHS: dict[str, Build] = {
    "FC": lambda a, b: FullyConnected(a, b, paper_biases=True),
    "F-FC": lambda a, b: FactoredFC(a, b, paper_biases=True),
    "F-FC summed": lambda a, b: FactoredFC(a, b, sharing="sum"),
    "F-FC by block": lambda a, b: FactoredFC(a, b, sharing="block"),
    "F-FC over the group": lambda a, b: FactoredFC(a, b, over="group"),
    "S-FC": lambda a, b: SparseFC(a, b, paper_biases=True),
    "CONV": lambda a, b: Conv(a, b, paper_biases=True),
    "S-CONV": lambda a, b: SparseConv(a, b, paper_biases=True),
    "GCONV p4": lambda a, b: GroupConv(a, b, p4(), paper_biases=True),
    "GCONV z2": lambda a, b: GroupConv(a, b, translations(2)),
    "GCONV pointwise": lambda a, b: GroupConv(a, b, p4(), pointwise=True),
    "GCONV separable": lambda a, b: SeparableGroupConv(a, b, p4(), paper_biases=True),
    "GCONV depthwise": lambda a, b: SeparableGroupConv(a, b, p4(), depthwise=True),
    "GCONV pairwise": lambda a, b: PairwiseConv(a, b, p4(), paper_biases=True),
    "GCONV uniform": lambda a, b: UniformConv(a, b, p4(), paper_biases=True),
    "S-FC over the group": lambda a, b: SparseFC(a, b, over="group", paper_biases=True),
    "S-GCONV p4": lambda a, b: SparseGroupConv(a, b, p4(), paper_biases=True),
    "S-GCONV z2": lambda a, b: SparseGroupConv(a, b, translations(2)),
    "dense basis": lambda a, b: DenseBasis(a, b, p4(), paper_biases=True),
    "CONV with zeros": lambda a, b: Conv(a, b, padding="zeros"),
    "GCONV with zeros": lambda a, b: GroupConv(a, b, p4(), padding="zeros", paper_biases=True),
    "TIED": lambda a, b: TiedFilter(a, b, c4(), paper_biases=True),
    "TIED with zeros": lambda a, b: TiedFilter(a, b, c4(), padding="zeros"),
}


@pytest.mark.parametrize("name", PATHS)
class TestPaths(CurvatureCase):
    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.build = PATHS[name]

    def module(self) -> nn.Module:
        return self.build(GROUPS.space((3, 3), 2), GROUPS.space((3, 3), 1))

    def inputs(self) -> Tensor:
        return torch.randn(2, *GROUPS.space((3, 3), 2).shape)


@pytest.mark.parametrize("name", ["S-FC", "S-CONV", "S-FC over the group", "S-GCONV p4"])
def test_lengthscales_and_biases_are_exact_everywhere(name: str) -> None:
    """Many data and positions: the tangent block is the GGN block all the same."""
    space = GROUPS.space((3, 3), 2)
    x = torch.randn(4, *space.shape, dtype=torch.float64)
    network = Readout(PATHS[name](space, space).double(), x)
    blocks = curvature(network, Categorical(), (x, x))
    exact = ggn_blocks(network, Categorical(), x)
    small = [n for n in exact if "omega" in n or "bias" in n]
    assert len(small) >= 2
    for parameter in small:
        torch.testing.assert_close(
            blocks[parameter].to_dense(), exact[parameter], rtol=0, atol=1e-10
        )


def test_large_blocks_share_their_output_factor() -> None:
    space = GroupSet(translations(2)).space((24, 24), 2, fibre="trivial")
    maps = FactoredFC(space, space, sharing="auto").shared_maps()
    assert maps["theta1"].positions == 2
    assert maps["theta2"].positions == 1
    with pytest.raises(ValueError, match="sharing is"):
        BlockMap("weight", 2, 3, 4, sharing="other")  # type: ignore[arg-type]


EXACT: dict[str, Build] = {
    "FC": PATHS["FC"],
    "F-FC": PATHS["F-FC by block"],
    "F-FC summed": lambda a, b: FactoredFC(a, b, sharing="sum"),
    "S-FC": PATHS["S-FC"],
    "CONV": PATHS["CONV"],
    "S-CONV": PATHS["S-CONV"],
    "GCONV": PATHS["GCONV p4"],
    "S-FC over the group": PATHS["S-FC over the group"],
    "S-GCONV": PATHS["S-GCONV p4"],
    "GCONV pairwise": PATHS["GCONV pairwise"],
    "GCONV uniform": PATHS["GCONV uniform"],
    "dense basis": PATHS["dense basis"],
}


@pytest.mark.parametrize("name", EXACT)
class TestPathsWithOnePosition(CurvatureCase):
    """One channel where blocks are channels, one site where positions are sites."""

    @pytest.fixture(autouse=True)
    def _choose(self, name: str) -> None:
        self.build = EXACT[name]
        on_sites = name not in ("FC", "F-FC", "F-FC summed", "S-FC", "S-FC over the group")
        lattice = (1, 1) if on_sites else (3, 2)
        by_channel = name in ("GCONV pairwise", "GCONV uniform")
        channels = 3 if (on_sites and not by_channel) or name == "FC" else 1
        group = GROUPS if on_sites else GroupSet(translations(2))
        self.space = group.space(lattice, channels, fibre="trivial")
        if name == "S-FC over the group":
            self.space = GROUPS.space((2, 2), 1, fibre="regular")

    def module(self) -> nn.Module:
        return self.build(self.space, self.space)

    def inputs(self) -> Tensor:
        return torch.randn(2, *self.space.shape)

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return self.module(), self.inputs()[:1]
