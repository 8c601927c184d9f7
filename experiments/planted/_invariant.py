"""The student of the labelled digits: three layers on one torus and an invariant head."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.nn.layer import ResidualPathway
from groupella.nn.pooling import GroupPool

from ._candidates import CANDIDATES

DEPTH = 3


class InvariantTrunk(nn.Module):
    """x → (layer → ReLU)³ → maximum over the fibre → mean over sites, times √sites → linear head.

    Whatever the labels tell apart, some layer must.
    """

    def __init__(self, channels: int, classes: int, side: int) -> None:
        super().__init__()
        self.side = side
        hidden = CANDIDATES.space((side, side), channels)
        image = CANDIDATES.space((side, side), 1, "trivial")
        spaces = [image] + [hidden] * DEPTH
        self.layers = nn.ModuleList(
            ResidualPathway(before, after, CANDIDATES) for before, after in pairwise(spaces)
        )
        self.pool = GroupPool(hidden)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.relu(layer(x))
        pooled: Tensor = self.pool(x)
        f: Tensor = self.head(self.side * torch.mean(pooled, (2, 3)))
        return f
