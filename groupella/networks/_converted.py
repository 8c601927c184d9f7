"""Residual-pathway layers in the place of ordinary ones: same inputs, same outputs.

A layer acts on a torus. A convolution with another border is one on a larger torus: pad the input
as the layer did, convolve, and cut off what wrapped around. A stride keeps every s-th site. Patches
(kernel = stride) become channels, tokens become sites, a flattened map gets its sites back.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.nn.layer import ResidualPathway


class PathwayConv(nn.Module):
    """In the place of a convolution: pad, `layer` on the padded torus, keep a window of it.

    Parameters
    ----------
    layer
        The layer on the padded lattice.
    padding
        (before, after) for every axis.
    mode
        "zeros", "circular", "reflect" or "replicate".
    window
        What to keep of every axis.
    """

    def __init__(
        self,
        layer: ResidualPathway,
        padding: Sequence[tuple[int, int]],
        mode: str,
        window: Sequence[slice],
    ) -> None:
        super().__init__()
        self.layer = layer
        self.padding = [p for pair in reversed(padding) for p in pair]
        self.mode = "constant" if mode == "zeros" else mode
        self.window: tuple[EllipsisType | slice, ...] = (..., *window)

    def forward(self, x: Tensor) -> Tensor:
        if any(self.padding):
            x = F.pad(x, self.padding, mode=self.mode)
        y: Tensor = self.layer(x)
        return y[self.window]


class PathwaySites(nn.Module):
    """In the place of a convolution with kernel 1: keep every s-th site, then `layer`."""

    def __init__(self, layer: ResidualPathway, stride: Sequence[int]) -> None:
        super().__init__()
        self.layer = layer
        self.steps: tuple[EllipsisType | slice, ...] = (
            ...,
            *(slice(None, None, s) for s in stride),
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x[self.steps])
        return y


class PathwayPatches(nn.Module):
    """In the place of a convolution with kernel = stride: patches become channels of one site."""

    def __init__(self, layer: ResidualPathway, patch: Sequence[int]) -> None:
        super().__init__()
        self.layer, self.patch = layer, tuple(patch)
        self.shape = layer.space_in.shape

    def forward(self, x: Tensor) -> Tensor:
        c, *sides = self.shape
        for axis, (m, p) in enumerate(zip(sides, self.patch, strict=True), start=2):
            x = x.narrow(axis, 0, m * p)
        split = [v for pair in zip(sides, self.patch, strict=True) for v in pair]
        d = len(sides)
        inside, outside = range(3, 3 + 2 * d, 2), range(2, 2 + 2 * d, 2)
        x = x.reshape(-1, c // prod(self.patch), *split).permute(0, 1, *inside, *outside)
        y: Tensor = self.layer(x.reshape(-1, *self.shape))
        return y


class PathwayTokens(nn.Module):
    """In the place of a linear layer on tokens: the tokens are the sites of a lattice.

    x is (N, tokens, D), or (N, *lattice, D) unless `flat`.
    """

    def __init__(self, layer: ResidualPathway, flat: bool) -> None:
        super().__init__()
        self.layer, self.flat = layer, flat
        self.shape = layer.space_in.shape

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.movedim(-1, 1).reshape(-1, *self.shape))
        return (y.flatten(2) if self.flat else y).movedim(1, -1)


class PathwayMoreTokens(nn.Module):
    """In the place of a linear layer on tokens of which some are no sites, such as a class token.

    x is (N, before + sites + after, D). `layer` acts on the sites, `others` on the rest; it starts
    with the weights of the linear layer.
    """

    def __init__(self, layer: ResidualPathway, others: nn.Linear, more: tuple[int, int]) -> None:
        super().__init__()
        self.tokens, self.others = PathwayTokens(layer, True), others
        self.before, self.after = more

    def forward(self, x: Tensor) -> Tensor:
        end = x.shape[1] - self.after
        sites: Tensor = self.tokens(x[:, self.before : end])
        rest: Tensor = self.others(torch.cat([x[:, : self.before], x[:, end:]], 1))
        return torch.cat([rest[:, : self.before], sites, rest[:, self.before :]], 1)


class PathwayFlat(nn.Module):
    """In the place of a linear layer on a flattened map: (N, C·sites) → (N, C')."""

    def __init__(self, layer: ResidualPathway) -> None:
        super().__init__()
        self.layer, self.shape = layer, layer.space_in.shape

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x.reshape(-1, *self.shape))
        return y
