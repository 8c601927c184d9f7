"""CONV: the same filter at every site of the torus, or of an image with zeros around it.

    y(c', p) = Σ_c Σ_δ θ(c', c, δ) x(c, p + δ),   δ in a window of odd sides

Channels × fibre count as channels, so the path is equivariant to all translations and to nothing
else. One shared linear map with as many positions as sites.

With `padding="zeros"` what lies outside of the image is zero. Shifts then commute with the path
only as far as nothing meets the border.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.bases import Padding
from groupella.groups import FeatureSpace, Symmetry, translations, trivial
from groupella.nn.circular import circular_conv
from groupella.nn.shared_maps import ConvMap, LinearMap, SharedLinearMap, record

from ._common import (
    GAIN,
    add_bias,
    check_convolution,
    check_input,
    check_padding,
    draw,
    maps,
    new_bias,
)


class Conv(nn.Module):
    """A circular convolution with `weight` (C'·F', C·F, *kernel).

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    padding
        "circular" or "zeros".
    paper_biases
        Add one bias per channel (and fibre component), as the published code does.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        kernel_size: int | Sequence[int] = 3,
        *,
        padding: Padding = "circular",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        kernel = check_convolution("Conv", space_in, space_out, kernel_size)
        self.padding = check_padding("Conv", padding)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry = all_translations(space_in)
        self.weight = nn.Parameter(torch.empty(space_out.shape[0], space_in.shape[0], *kernel))
        self.bias = new_bias(space_out.shape[0], paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        draw(self.weight, gain * prod(self.weight.shape[1:]) ** -0.5, self.bias)

    def filter(self) -> Tensor:
        """`weight` itself."""
        return self.weight

    def filter_bias(self) -> Tensor | None:
        return self.bias

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = padded_conv(x, self.filter(), self.padding)
        record(self, "weight", x, y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c, *kernel = self.weight.shape
        sites = self.space_in.lattice.shape
        if not sites:
            return maps(LinearMap("weight", c, c_out), self.bias)
        return maps(ConvMap.same("weight", c, c_out, sites, kernel, self.padding), self.bias)

    def extra_repr(self) -> str:
        kernel = tuple(self.weight.shape[2:])
        text = f"{self.space_in.shape} -> {self.space_out.shape}, kernel_size={kernel}"
        return text + (f", padding={self.padding!r}" if self.padding != "circular" else "")


def padded_conv(x: Tensor, weight: Tensor, padding: Padding) -> Tensor:
    """A convolution that keeps the lattice: on the torus, or with zeros around the image."""
    if padding == "circular" or x.dim() == 2:
        return torus_conv(x, weight)
    convolve = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3]
    y: Tensor = convolve(x, weight, padding=tuple(k // 2 for k in weight.shape[2:]))
    return y


def torus_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """`circular_conv`, also on the lattice () of a single site without axes."""
    if x.dim() > 2:
        return circular_conv(x, weight, bias, groups)
    return circular_conv(x.unsqueeze(2), weight.unsqueeze(2), bias, groups).squeeze(2)


def all_translations(space: FeatureSpace) -> Symmetry:
    """The translations of the space's lattice; on the lattice () those of its ambient symmetry."""
    dim = space.lattice.dim or space.ambient.dim
    return translations(dim) if dim else trivial()
