"""Stock layers: their maps, factors and exact cases, with every padding mode, stride and group."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from groupella.testing import CurvatureCase


class TestLinear(CurvatureCase):
    def module(self) -> nn.Module:
        return nn.Linear(4, 5)

    def inputs(self) -> Tensor:
        return torch.randn(3, 4)

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return nn.Linear(4, 5), torch.randn(1, 4)


class TestLinearAtManyPositions(CurvatureCase):
    def module(self) -> nn.Module:
        return nn.Linear(4, 5)

    def inputs(self) -> Tensor:
        return torch.randn(3, 2, 3, 4)


class TestTwoLayers(CurvatureCase):
    def module(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 2, bias=False))

    def inputs(self) -> Tensor:
        return torch.randn(4, 4)

    def exact_case(self) -> tuple[nn.Module, Tensor]:
        return self.module(), torch.randn(1, 4)


CONVS = {
    "circular": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (5, 4)),
    "circular on a tiny torus": (nn.Conv2d(4, 2, 3, padding=1, padding_mode="circular"), (2, 1)),
    "circular groups": (
        nn.Conv2d(4, 6, (3, 1), padding=(1, 0), padding_mode="circular", groups=2),
        (4, 3),
    ),
    "circular even kernel": (nn.Conv2d(4, 3, 2, padding="same", padding_mode="circular"), (4, 5)),
    "circular dilated": (
        nn.Conv2d(4, 3, 3, padding=2, dilation=2, padding_mode="circular"),
        (5, 5),
    ),
    "circular strided": (nn.Conv2d(4, 3, 3, padding=1, stride=2, padding_mode="circular"), (4, 4)),
    "circular more than the same": (
        nn.Conv2d(4, 3, 3, padding=2, padding_mode="circular"),
        (4, 4),
    ),
    "zeros": (nn.Conv2d(4, 6, 3, padding=1), (5, 4)),
    "zeros strided": (nn.Conv2d(4, 6, (3, 2), padding=1, stride=(2, 1), dilation=(1, 2)), (5, 4)),
    "same": (nn.Conv2d(4, 2, (4, 3), padding="same", bias=False), (5, 4)),
    "valid groups": (nn.Conv2d(4, 8, 2, padding="valid", groups=4), (4, 3)),
    "reflect": (nn.Conv2d(4, 3, 3, padding=1, padding_mode="reflect"), (4, 3)),
    "replicate": (nn.Conv2d(4, 3, 3, padding=1, stride=2, padding_mode="replicate"), (4, 3)),
    "sequence": (nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"), (6,)),
    "sequence strided": (nn.Conv1d(4, 3, 4, stride=3), (8,)),
    "voxels": (nn.Conv3d(4, 2, 3, padding=1, padding_mode="circular"), (2, 3, 2)),
    "voxels zeros": (nn.Conv3d(4, 2, (1, 2, 3), padding=(0, 1, 1), groups=2), (2, 3, 2)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("kind", CONVS)
class TestConvolutions(CurvatureCase):
    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind

    def module(self) -> nn.Module:
        return CONVS[self.kind][0]

    def inputs(self) -> Tensor:
        return torch.randn(2, 4, *CONVS[self.kind][1])


@pytest.mark.parametrize("kind", ["valid", "circular", "groups", "sequence"])
class TestConvolutionsWithOnePosition(CurvatureCase):
    """One output site and one datum: the Kronecker product is the GGN block."""

    @pytest.fixture(autouse=True)
    def _choose(self, kind: str) -> None:
        self.kind = kind

    def module(self) -> nn.Module:
        modules: dict[str, nn.Module] = {
            "valid": nn.Conv2d(2, 3, 3),
            "circular": nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"),
            "groups": nn.Conv2d(2, 4, 3, groups=2),
            "sequence": nn.Conv1d(2, 3, 3),
        }
        return modules[self.kind]

    def inputs(self) -> Tensor:
        shapes = {"valid": (3, 3), "circular": (1, 1), "groups": (3, 3), "sequence": (3,)}
        return torch.randn(2, 2, *shapes[self.kind])

    def exact_case(self) -> tuple[nn.Module, Tensor] | None:
        if self.kind == "groups":
            return None
        return self.module(), self.inputs()[:1]
