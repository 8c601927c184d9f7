"""CONV: the same filter at every site of the torus.

    y(c', p) = Σ_c Σ_δ θ(c', c, δ) x(c, p + δ),   δ in a window of odd sides

Channels × fibre count as channels, so the path is equivariant to all translations and to nothing
else. One shared linear map with as many positions as sites.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, translations, trivial
from groupella.nn.circular import circular_conv
from groupella.nn.shared_maps import BiasMap, ConvMap, LinearMap, SharedLinearMap, record

from ._checks import GAIN, check_input, check_same_lattice, check_spaces, kernel_shape


class Conv(nn.Module):
    """A circular convolution with `weight` (C'·F', C·F, *kernel).

    `paper_biases`: one bias per channel (and fibre component), as in the published code.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        kernel_size: int | Sequence[int] = 3,
        *,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("Conv", space_in, space_out)
        check_same_lattice("Conv", space_in, space_out)
        self.space_in, self.space_out = space_in, space_out
        self.symmetry = all_translations(space_in)
        kernel = kernel_shape("Conv", kernel_size, space_in.lattice.dim)
        self.weight = nn.Parameter(torch.empty(space_out.shape[0], space_in.shape[0], *kernel))
        self.bias = nn.Parameter(torch.zeros(space_out.shape[0])) if paper_biases else None
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        nn.init.normal_(self.weight, std=gain * prod(self.weight.shape[1:]) ** -0.5)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def filter(self) -> Tensor:
        """`weight` itself."""
        return self.weight

    def filter_bias(self) -> Tensor | None:
        return self.bias

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        y = torus_conv(x, self.filter())
        record(self, "weight", x, y)
        if self.bias is not None:
            y = y + self.bias.view(-1, *[1] * (x.dim() - 2))
            record(self, "bias", x, y)
        return y

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c = self.weight.shape[:2]
        sites = self.space_in.lattice.shape
        maps: dict[str, SharedLinearMap] = {
            "weight": ConvMap.circular("weight", c, c_out, sites, self.weight.shape[2:])
            if sites
            else LinearMap("weight", c, c_out)
        }
        if self.bias is not None:
            maps["bias"] = BiasMap.of_channels("bias", c_out)
        return maps

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, "
            f"kernel_size={tuple(self.weight.shape[2:])}"
        )


def torus_conv(x: Tensor, weight: Tensor, bias: Tensor | None = None, groups: int = 1) -> Tensor:
    """`circular_conv`, also on the lattice () of a single site without axes."""
    if x.dim() > 2:
        return circular_conv(x, weight, bias, groups)
    return circular_conv(x.unsqueeze(2), weight.unsqueeze(2), bias, groups).squeeze(2)


def all_translations(space: FeatureSpace) -> Symmetry:
    """The translations of the space's lattice; on the lattice () those of its ambient symmetry."""
    dim = space.lattice.dim or space.ambient.dim
    return translations(dim) if dim else trivial()
