"""Separable GCONV: a group convolution factored into a spatial and a fibre stage.

separable            z(c, f, p) = Σ_δ θ₁(c, f⁻¹δ) x(c, f, p + δ)
                     y(c', f', p) = Σ_c Σ_f θ₂(c', c, f⁻¹f') z(c, f, p)
depthwise separable  the same θ₁, then θ₂(c, f⁻¹f') within each channel, then θ₃(c', c)

written for a regular fibre; in general each stage is a basis of the equivariant kernels of its
kind: diagonal in the fibre (θ₁), of one site (θ₂), the identity on fibre and sites (θ₃). Every
stage is a shared linear map of its own. The numbers of parameters are those of the published table:
nine per channel and four per pair of channels for p4 with 3×3 windows. The formulas printed beside
them are those of `product_conv.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from groupella.bases import KernelBasis, kernel_basis
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._expansion import Expansion
from groupella.nn.shared_maps import BasisMap, SharedLinearMap, record

from ._common import GAIN, add_bias, check_convolution, check_input, draw, maps, new_bias
from .conv import torus_conv
from .group_conv import GroupConv, diagonal_kernels


class SeparableGroupConv(nn.Module):
    """The stages `spatial`, `fibre` and, where `depthwise`, `channels`, one after the other.

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    symmetry
        Translations ⋊ a point group that permutes the input fibre (up to signs).
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    depthwise
        Mix fibre elements within channels, and channels in a stage of their own.
    paper_biases
        Add one bias per channel after every stage, as the published code does.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int] = 3,
        *,
        depthwise: bool = False,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        window = check_convolution("SeparableGroupConv", space_in, space_out, kernel_size, symmetry)
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        kernels = kernel_basis(space_in, space_in, symmetry, window)
        spatial = diagonal_kernels(space_in, space_in, symmetry, kernels)
        stages: list[DepthwiseGroupConv | GroupConv] = [
            DepthwiseGroupConv(space_in, space_in, symmetry, spatial, paper_biases)
        ]
        if depthwise:
            turned = space_out.with_channels(space_in.channels)
            mixing = kernel_basis(space_in, turned, symmetry, 1)
            identity = np.eye(space_out.fibre_size) / space_out.fibre_size**0.5
            same = KernelBasis(
                (*identity.shape, *(1,) * len(window)), identity.reshape(1, -1), "identity"
            )
            stages += [
                DepthwiseGroupConv(space_in, turned, symmetry, mixing, paper_biases),
                GroupConv(turned, space_out, symmetry, 1, basis=same, paper_biases=paper_biases),
            ]
        else:
            stages += [GroupConv(space_in, space_out, symmetry, 1, paper_biases=paper_biases)]
        names = ("spatial", "fibre", "channels")
        self.stages = nn.ModuleDict(dict(zip(names, stages, strict=False)))
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        """Draw new weights: the first stages keep the variance, the last one has the gain."""
        for stage in self.stages.values():
            assert isinstance(stage, GroupConv | DepthwiseGroupConv)
            stage.reset_parameters(gain if isinstance(stage, GroupConv) else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        for stage in self.stages.values():
            x = stage(x)
        return x

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        """Empty: all parameters belong to the stages."""
        return {}


class DepthwiseGroupConv(nn.Module):
    """Every channel by itself: coefficients `weight` (C, n_b) of kernels (n_b, F', F, *window)."""

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        basis: KernelBasis,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        if not basis.dim:
            raise ValueError(
                f"SeparableGroupConv: only zero is {symmetry}-equivariant from {space_in.fibre} "
                f"to {space_out.fibre} within a site; take another fibre"
            )
        self.basis = Expansion(basis)
        self.weight = nn.Parameter(torch.empty(space_in.channels, basis.dim))
        self.bias = new_bias(space_in.channels, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        power = self.weight.shape[1] / self.space_out.fibre_size
        draw(self.weight, gain * power**-0.5, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        c = self.space_in.channels
        _, f_out, f, *window = self.basis.shape
        filters = self.basis(self.weight).reshape(c * f_out, f, *window)
        y = torus_conv(x, filters, groups=c)
        record(self, "weight", x, y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c, sites = self.space_in.channels, self.space_in.lattice.shape
        basis = self.basis.tensor(self.weight)
        return maps(BasisMap("weight", basis, c, c, sites, groups=c), self.bias)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, basis={self.basis.shape[0]}"
