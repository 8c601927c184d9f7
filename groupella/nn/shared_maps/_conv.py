"""Convolutions: positions are output sites, inputs are patches.

For a circular convolution of stride 1 the covariance of two patch entries depends only on the
difference of their offsets, A[(c,i),(d,j)] = R_cd[o_j − o_i], R_cd[δ] = Σ_{n,p} x_c[p] x_d[p+δ].
R comes from Fourier transforms: about ten times cheaper than gathering the patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import torch
from torch import Tensor
from torch.nn import functional as F

from ._grams import block_gram, channel_gram


@dataclass(frozen=True)
class ConvMap:
    """`torch.nn.ConvNd` for N = 1, 2, 3: x (N, C, *sites) → y (N, C′, *sites′).

    `padding` holds one (before, after) pair per axis. The parameter is (C′, C/groups, *kernel);
    with groups > 1 the map is block-diagonal.
    """

    weight: str
    in_channels: int
    out_channels: int
    sites: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...] = ()
    padding: tuple[tuple[int, int], ...] = ()
    padding_mode: str = "zeros"
    dilation: tuple[int, ...] = ()
    groups: int = 1

    def __post_init__(self) -> None:
        d = len(self.kernel)
        defaults = {"stride": (1,) * d, "dilation": (1,) * d, "padding": ((0, 0),) * d}
        for name, default in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, default)
            if len(getattr(self, name)) != d or len(self.sites) != d:
                raise ValueError(f"ConvMap: kernel, sites and {name} must have one entry per axis.")

    @classmethod
    def circular(
        cls,
        weight: str,
        in_channels: int,
        out_channels: int,
        sites: Sequence[int],
        kernel: Sequence[int],
        groups: int = 1,
    ) -> ConvMap:
        """Stride 1 on a torus, kernels of odd size: as many outputs as sites."""
        return cls.same(weight, in_channels, out_channels, sites, kernel, "circular", groups)

    @classmethod
    def same(
        cls,
        weight: str,
        in_channels: int,
        out_channels: int,
        sites: Sequence[int],
        kernel: Sequence[int],
        padding_mode: str,
        groups: int = 1,
    ) -> ConvMap:
        """Stride 1, kernels of odd size, and padding: as many outputs as sites."""
        return cls(
            weight,
            in_channels,
            out_channels,
            tuple(sites),
            tuple(kernel),
            padding=tuple(((k - 1) // 2, k // 2) for k in kernel),
            padding_mode=padding_mode,
            groups=groups,
        )

    @property
    def out_sites(self) -> tuple[int, ...]:
        """The shape of the output lattice."""
        return tuple(
            (n + sum(p) - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                self.sites, self.padding, self.dilation, self.kernel, self.stride, strict=True
            )
        )

    @property
    def positions(self) -> int:
        return prod(self.out_sites)

    @property
    def on_torus(self) -> bool:
        """Whether the input gram depends on offset differences only."""
        return (
            self.padding_mode == "circular"
            and set(self.stride) == {1}
            and self.out_sites == self.sites
        )

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(self.groups, self.out_channels // self.groups, -1)

    def inputs(self, x: Tensor) -> Tensor:
        patches = self._pad(x)
        d = len(self.kernel)
        for axis in range(d):
            extent = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            patches = patches.unfold(axis + 2, extent, self.stride[axis])
            patches = patches[..., :: self.dilation[axis]]
        per_group = self.in_channels // self.groups
        patches = patches.reshape(x.shape[0], self.groups, per_group, self.positions, -1)
        return patches.transpose(2, 3).flatten(3)

    def outputs(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], self.groups, self.out_channels // self.groups, -1)
        return z.mT

    def input_gram(self, x: Tensor) -> Tensor:
        if self.on_torus:
            return torus_patch_gram(x, self.kernel, self.dilation, self.groups)
        return block_gram(self.inputs(x))

    def output_gram(self, g: Tensor) -> Tensor:
        return channel_gram(g, self.groups)

    def _pad(self, x: Tensor) -> Tensor:
        flat = [p for pair in reversed(self.padding) for p in pair]
        if not any(flat):
            return x
        mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
        return F.pad(x, flat, mode=mode)


def torus_patch_gram(
    x: Tensor, kernel: tuple[int, ...], dilation: tuple[int, ...], groups: int = 1
) -> Tensor:
    """Σ_{n,p} of patch outer products on a torus: x (N, groups·C, *sites) → (groups, C·k, C·k).

    Real and imaginary parts of the spectrum stand side by side in one real matrix per frequency:
    batched real products are much faster than complex ones.
    """
    n, channels, *sites = x.shape
    c, d = channels // groups, len(sites)
    spectrum = torch.fft.rfftn(x, dim=tuple(range(2, 2 + d)))
    by_frequency = spectrum.reshape(n * channels, -1).t().contiguous()
    z = torch.view_as_real(by_frequency).reshape(-1, n, groups, 2 * c).transpose(1, 2)
    p = torch.matmul(z.mT, z).reshape(*spectrum.shape[2:], groups, c, 2, c, 2)
    power = torch.complex(p[..., 0, :, 0] + p[..., 1, :, 1], p[..., 0, :, 1] - p[..., 1, :, 0])
    correlation: Tensor = torch.fft.irfftn(power, s=sites, dim=tuple(range(d)))
    index = _offset_differences(tuple(sites), kernel, dilation).to(x.device)
    k = prod(kernel)
    gathered = correlation.flatten(0, d - 1)[index.flatten()].reshape(k, k, groups, c, c)
    return gathered.permute(2, 3, 0, 4, 1).reshape(groups, c * k, c * k)


@lru_cache(maxsize=128)
def _offset_differences(
    sites: tuple[int, ...], kernel: tuple[int, ...], dilation: tuple[int, ...]
) -> Tensor:
    """(k, k): the flat site index of o_j − o_i for all pairs of kernel offsets."""
    flat = torch.zeros(1, 1, dtype=torch.long)
    for size, k, step in zip(sites, kernel, dilation, strict=True):
        o = torch.arange(k) * step
        difference = (o[None, :] - o[:, None]) % size
        m = flat.shape[0]
        flat = (flat[:, None, :, None] * size + difference[None, :, None, :]).reshape(m * k, m * k)
    return flat
