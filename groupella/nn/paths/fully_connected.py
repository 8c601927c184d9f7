"""FC: every input entry to every output entry.

    y(c', p') = Σ_c Σ_p w(c', c, p', p) x(c, p)

with p over sites × fibre. One shared linear map with a single position.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.groups import FeatureSpace, Symmetry, trivial
from groupella.nn.shared_maps import BiasMap, LinearMap, SharedLinearMap, record

from ._checks import GAIN, check_input, check_spaces


class FullyConnected(nn.Module):
    """A dense matrix `weight` (C'·P', C·P), rows and columns in memory order.

    `paper_biases`: one bias per channel and site, as in the published code.
    """

    def __init__(
        self, space_in: FeatureSpace, space_out: FeatureSpace, *, paper_biases: bool = False
    ) -> None:
        super().__init__()
        check_spaces("FullyConnected", space_in, space_out)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry: Symmetry = trivial()
        self.weight = nn.Parameter(torch.empty(space_out.size, space_in.size))
        self.bias = nn.Parameter(torch.zeros(space_out.shape)) if paper_biases else None
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        nn.init.normal_(self.weight, std=gain * self.space_in.size**-0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = F.linear(x.flatten(1), self.weight).view(-1, *self.space_out.shape)
        record(self, "weight", x, y)
        if self.bias is not None:
            y = y + self.bias
            record(self, "bias", x, y)
        return y

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        maps: dict[str, SharedLinearMap] = {
            "weight": LinearMap("weight", self.space_in.size, self.space_out.size)
        }
        if self.bias is not None:
            size = (self.space_out.size,)
            maps["bias"] = BiasMap("bias", view=size, output=size)
        return maps

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}"
