"""GCONV whose filter is a product of a function of the translation and one of the point part.

pairwise    s(c', c, u) = θ₁(c', c, t) θ₂(c', c, R)
uniform     s(c', c, u) = θ₁(t) θ₂(R) θ₃(c', c)

at u = g⁻¹g' = (t, R), written for a regular fibre. These are the formulas that the paper prints for
its separable and depthwise-separable networks; the counts that it prints beside them are those of
`SeparableGroupConv`, whose θ₁ has one filter per input channel. In general θ₁ runs over a basis of
the equivariant kernels that are diagonal in the fibre, and θ₂ over one of those of a single site:

    z(c', c, f, p) = Σ_δ θ₁(c', c)(f, δ) x(c, f, p + δ)
    y(c', f', p) = Σ_c Σ_f θ₂(c', c)(f', f) z(c', c, f, p)

Both paths multiply their factors to one filter and convolve once. Only where curvature is recorded
are the stages computed one after the other, each a shared linear map: θ₁ and θ₂ of `PairwiseConv`
with blocks as in F-FC, those of `UniformConv` with every channel as a further position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from groupella.bases import kernel_basis
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._constant import Constant
from groupella.nn.shared_maps import (
    BasisMap,
    BiasMap,
    CopiedMap,
    SharedLinearMap,
    record,
    recording,
)

from ._common import GAIN, add_bias, check_convolution, check_input, draw, new_bias
from .conv import torus_conv
from .group_conv import diagonal_kernels


class _Kernels:
    """Kernels (n₁, F, *window) that are diagonal in the fibre, and (n₂, F', F) within a site."""

    def __init__(
        self,
        path: str,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int],
    ) -> None:
        window = check_convolution(path, space_in, space_out, kernel_size, symmetry)
        every = kernel_basis(space_in, space_in, symmetry, window)
        diagonal = diagonal_kernels(space_in, space_in, symmetry, every)
        mixing = kernel_basis(space_in, space_out, symmetry, 1)
        if not mixing.dim:
            raise ValueError(
                f"{path}: only zero is {symmetry}-equivariant from {space_in.fibre} to "
                f"{space_out.fibre} within a site; take another fibre"
            )
        self.window = window
        self._spatial = Constant(np.einsum("bff...->bf...", diagonal.tensor))
        self._mixing = Constant(mixing.tensor.reshape(mixing.dim, *mixing.shape[:2]))
        self.counts = diagonal.dim, mixing.dim

    def spatial(self, theta: Tensor) -> Tensor:
        """(…, n₁) to (…, F, *window)."""
        spatial = self._spatial.like(theta)
        return (theta @ spatial.flatten(1)).reshape(*theta.shape[:-1], *spatial.shape[1:])

    def mixing(self, theta: Tensor) -> Tensor:
        """(…, n₂) to (…, F', F)."""
        mixing = self._mixing.like(theta)
        return (theta @ mixing.flatten(1)).reshape(*theta.shape[:-1], *mixing.shape[1:])

    def bases(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """All kernels as those of a convolution, (n₁, F, F, *window) and (n₂, F', F, *1)."""
        spatial = self._spatial.like(like).movedim(1, -1)
        diagonal = torch.diag_embed(spatial).movedim((-2, -1), (1, 2))
        mixing = self._mixing.like(like)
        return diagonal, mixing.reshape(*mixing.shape, *(1,) * len(self.window))


class PairwiseConv(nn.Module):
    """Factors `spatial` (C, C', n₁) and `weight` (C', C, n₂) of every pair of channels.

    Where curvature is recorded, z has C·C'·F numbers at every site of every sample: choose small
    batches for wide layers.

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    symmetry
        Translations ⋊ a point group that permutes the input fibre (up to signs).
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    paper_biases
        Add one bias per channel, equal on the fibre.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int] = 3,
        *,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        self.kernels = _Kernels("PairwiseConv", space_in, space_out, symmetry, kernel_size)
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        c, c_out = space_in.channels, space_out.channels
        n_spatial, n_mixing = self.kernels.counts
        self.spatial = nn.Parameter(torch.empty(c, c_out, n_spatial))
        self.weight = nn.Parameter(torch.empty(c_out, c, n_mixing))
        self.bias = new_bias(c_out, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        """Draw new weights; θ₁ keeps the variance, so that a small gain affects y and not z."""
        n_spatial, n_mixing = self.kernels.counts
        draw(self.spatial, (n_spatial / self.space_in.fibre_size) ** -0.5)
        power = self.space_in.channels * n_mixing / self.space_out.fibre_size
        draw(self.weight, gain * power**-0.5, self.bias)

    def filter(self) -> Tensor:
        """The expanded filter (C'·F', C·F, *window)."""
        spatial = self.kernels.spatial(self.spatial).transpose(0, 1).flatten(3)
        blocks = torch.einsum("oifp,oigf->ogifp", spatial, self.kernels.mixing(self.weight))
        return _joined(blocks, self.kernels.window)

    def filter_bias(self) -> Tensor | None:
        """The bias of every channel on its fibre, (C'·F',)."""
        return _spread(self.bias, self.space_out)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        if not recording():
            return torus_conv(x, self.filter(), self.filter_bias())
        (c, c_out, _), f = self.spatial.shape, self.space_in.fibre_size
        n, sites = x.shape[0], x.shape[2:]
        filters = self.kernels.spatial(self.spatial).transpose(1, 2)
        filters = filters.reshape(c * f * c_out, 1, *self.kernels.window)
        z = torus_conv(x, filters, groups=c * f).reshape(n, c, f, c_out, -1)
        z = z.transpose(2, 3).reshape(n, c * c_out * f, *sites)
        record(self, "spatial", x, z)
        z = z.reshape(n, c, c_out, f, -1).transpose(1, 2).reshape(n, c_out, c * f, -1)
        mixing = self.kernels.mixing(self.weight).transpose(1, 2).flatten(2)
        y = (mixing @ z).reshape(n, *self.space_out.shape)
        record(self, "weight", z.reshape(n, -1, *sites), y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c, c_out, _ = self.spatial.shape
        sites = self.space_in.lattice.shape
        diagonal, mixing = self.kernels.bases(self.weight)
        found = [
            BasisMap("spatial", diagonal, c, c * c_out, sites, groups=c),
            BasisMap("weight", mixing, c * c_out, c_out, sites, groups=c_out),
        ]
        return _with_bias(found, self.bias)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}"


class UniformConv(nn.Module):
    """Factors `spatial` (n₁,) and `fibre` (n₂,) of all channels, and `weight` (C', C).

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    symmetry
        Translations ⋊ a point group that permutes the input fibre (up to signs).
    kernel_size
        Odd: one number, or one for each axis of the lattice.
    paper_biases
        Add one bias per channel, equal on the fibre.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        kernel_size: int | Sequence[int] = 3,
        *,
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        self.kernels = _Kernels("UniformConv", space_in, space_out, symmetry, kernel_size)
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        n_spatial, n_mixing = self.kernels.counts
        self.spatial = nn.Parameter(torch.empty(n_spatial))
        self.fibre = nn.Parameter(torch.empty(n_mixing))
        self.weight = nn.Parameter(torch.empty(space_out.channels, space_in.channels))
        self.bias = new_bias(space_out.channels, paper_biases)
        self.reset_parameters()

    def reset_parameters(self, gain: float = GAIN) -> None:
        """Draw new weights; θ₁ and θ₂, few numbers, are scaled to keep the variance exactly."""
        factors = ((self.spatial, self.space_in), (self.fibre, self.space_out))
        for theta, space in factors:
            draw(theta, 1.0)
            if not theta.is_meta:
                with torch.no_grad():
                    theta.mul_(space.fibre_size**0.5 / theta.norm())
        draw(self.weight, gain * self.weight.shape[1] ** -0.5, self.bias)

    def filter(self) -> Tensor:
        """The expanded filter (C'·F', C·F, *window)."""
        spatial = self.kernels.spatial(self.spatial).flatten(1)
        one = torch.einsum("fp,gf->gfp", spatial, self.kernels.mixing(self.fibre))
        return _joined(torch.einsum("oi,gfp->ogifp", self.weight, one), self.kernels.window)

    def filter_bias(self) -> Tensor | None:
        """The bias of every channel on its fibre, (C'·F',)."""
        return _spread(self.bias, self.space_out)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        if not recording():
            return torus_conv(x, self.filter(), self.filter_bias())
        c, f = self.space_in.channels, self.space_in.fibre_size
        n, sites = x.shape[0], x.shape[2:]
        filters = self.kernels.spatial(self.spatial).unsqueeze(1)
        z = torus_conv(x.reshape(n * c, f, *sites), filters, groups=f).reshape(n, c * f, *sites)
        record(self, "spatial", x, z)
        turned = self.kernels.mixing(self.fibre) @ z.reshape(n, c, f, -1)
        turned = turned.reshape(n, -1, *sites)
        record(self, "fibre", z, turned)
        y = (self.weight @ turned.reshape(n, c, -1)).reshape(n, *self.space_out.shape)
        record(self, "weight", turned, y)
        return add_bias(self, x, y)

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c_out, c = self.weight.shape
        sites = self.space_in.lattice.shape
        diagonal, mixing = self.kernels.bases(self.weight)
        same = torch.eye(self.space_out.fibre_size).to(mixing)
        same = same.reshape(1, *same.shape, *(1,) * len(sites))
        found: list[SharedLinearMap] = [
            CopiedMap(BasisMap("spatial", diagonal, 1, 1, sites), c),
            CopiedMap(BasisMap("fibre", mixing, 1, 1, sites), c),
            BasisMap("weight", same, c, c_out, sites),
        ]
        return _with_bias(found, self.bias)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}"


def _joined(blocks: Tensor, window: Sequence[int]) -> Tensor:
    """(C', F', C, F, points) to (C'·F', C·F, *window)."""
    c_out, f_out, c, f, _ = blocks.shape
    return blocks.reshape(c_out * f_out, c * f, *window)


def _spread(bias: Tensor | None, space: FeatureSpace) -> Tensor | None:
    return None if bias is None else bias.repeat_interleave(space.fibre_size)


def _with_bias(
    found: Sequence[SharedLinearMap], bias: Tensor | None
) -> Mapping[str, SharedLinearMap]:
    biases = [] if bias is None else [BiasMap.of_channels("bias", len(bias))]
    return {shared.weight: shared for shared in (*found, *biases)}
