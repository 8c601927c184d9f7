"""Modules of nothing but torch: what each of groupella's modules is without its group.

Their `forward`s have no checks and no branches on values, so that `torch.fx` can write them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn

from groupella.nn.pooling import (
    Norm,
    best_match,
    break_ties,
    nearly_centred,
    nearly_largest,
    phase_scores,
    rolled_sites,
)

from ._filters import FactoredMatrix, Filter, Gathered, Matrix

_CONVOLUTIONS: dict[int, type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d]] = {
    1: nn.Conv1d,
    2: nn.Conv2d,
    3: nn.Conv3d,
}


def convolution(found: Filter, bias: Tensor | None) -> nn.Module:
    """A stock convolution with its padding; `bias` (C',) is added to the filter's own."""
    c_out, c, *window = found.weight.shape
    total = found.bias if bias is None else found.bias + bias
    has_bias = bias is not None or bool(total.any())
    padding = tuple(k // 2 for k in window)
    made = _CONVOLUTIONS[len(window)](
        c,
        c_out,
        tuple(window),  # type: ignore[arg-type]
        padding=padding,  # type: ignore[arg-type]
        padding_mode=found.padding if any(padding) else "zeros",
        bias=has_bias,
    )
    return _filled(made, found.weight, total)


def matrix(found: Matrix, shape: Sequence[int]) -> nn.Module:
    """Flatten, a stock linear layer, and the shape (channels, *lattice) of the output again."""
    size_out, size_in = found.weight.shape
    linear = nn.Linear(size_in, size_out, bias=bool(found.bias.any()))
    return nn.Sequential(
        nn.Flatten(), _filled(linear, found.weight, found.bias), nn.Unflatten(1, tuple(shape))
    )


def _filled(module: nn.Module, weight: Tensor, bias: Tensor) -> nn.Module:
    module.to(weight.dtype)
    with torch.no_grad():
        module.weight.copy_(weight)  # type: ignore[operator]
        if module.bias is not None:
            module.bias.copy_(bias)  # type: ignore[operator]
    return module


class Factored(nn.Module):
    """θ₁ and θ₂ as two batched matrix products, with the biases that are not zero."""

    def __init__(self, found: FactoredMatrix, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.theta1 = nn.Parameter(found.theta1.contiguous())
        self.theta2 = nn.Parameter(found.theta2.contiguous())
        self.between = _nonzero(found.between)
        self.after = _nonzero(found.after)

    def forward(self, x: Tensor) -> Tensor:
        _, c, p = self.theta2.shape
        inputs = x.reshape(-1, c, p).transpose(0, 1)
        z = torch.bmm(inputs, self.theta2.permute(1, 2, 0))
        if self.between is not None:
            z = z + self.between
        y = torch.bmm(z.permute(2, 1, 0), self.theta1).transpose(0, 1)
        if self.after is not None:
            y = y + self.after
        return y.reshape(-1, *self.shape)


class GatheredPatches(nn.Module):
    """Gathered patches times a matrix for each filter, put to their places; with a bias if any."""

    places: Tensor

    def __init__(self, found: Gathered, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape, (self.channels, self.channels_out) = tuple(shape), found.channels
        self.kinds = len(found.weights)
        self.sizes = [tuple(points.shape) for points in found.points]
        for i in range(self.kinds):
            self.register_parameter(f"weight{i}", nn.Parameter(found.weights[i].contiguous()))
            self.register_buffer(f"index{i}", found.points[i].flatten().clone())
            self.register_buffer(f"values{i}", found.values[i][..., None, None].clone())
            self.register_buffer(f"signs{i}", found.signs[i].unsqueeze(2).clone())
        self.register_buffer("places", found.places.clone())
        spread = found.bias.view(-1, *[1] * len(self.shape))
        self.bias = _nonzero(spread)

    def forward(self, x: Tensor) -> Tensor:
        points = x.reshape(x.shape[0], self.channels, -1).permute(2, 0, 1)
        parts = []
        for i, (filters, orbit, entries, ties) in enumerate(self.sizes):
            weight, index, values, signs = (
                getattr(self, f"{name}{i}") for name in ("weight", "index", "values", "signs")
            )
            taken = points.index_select(0, index)
            taken = taken.reshape(filters, orbit, entries, ties, -1, self.channels)
            rows = (taken * values.to(x)).sum(3).permute(0, 3, 1, 2, 4)
            y = torch.bmm(rows.reshape(filters, -1, entries * self.channels), weight)
            y = y.reshape(filters, -1, orbit, self.channels_out, signs.shape[3])
            parts.append((y * signs.to(x).unsqueeze(1)).permute(1, 3, 0, 2, 4).flatten(2))
        together = torch.cat([*parts, torch.zeros_like(parts[0][:, :, :1])], 2)
        y = together.index_select(2, self.places)
        if self.bias is not None:
            y = y + self.bias.reshape(-1, 1)
        return y.reshape(-1, *self.shape)


def _nonzero(bias: Tensor) -> nn.Parameter | None:
    return nn.Parameter(bias.contiguous()) if bool(bias.any()) else None


class Every(nn.Module):
    """Every stride-th site along each axis, from the first."""

    def __init__(self, stride: int, dim: int) -> None:
        super().__init__()
        steps = [slice(None, None, stride)] * dim
        self.where: tuple[slice, ...] = (slice(None), slice(None), *steps)

    def forward(self, x: Tensor) -> Tensor:
        return x[self.where]


class Exactly(nn.Module):
    """A constant in float64, whatever the precision of the network: it is kept as whole numbers."""

    digits: Tensor
    exponent: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        mantissa, exponent = torch.frexp(value.detach().double())
        self.register_buffer("digits", torch.ldexp(mantissa, torch.tensor(53.0)).long())
        self.register_buffer("exponent", exponent.long() - 53)

    def forward(self) -> Tensor:
        return self.digits.double() * 2.0 ** self.exponent.double()


class Polyphase(nn.Module):
    """Of the s^d phases of each sample, the one of the largest norm; ties as in `choose_phase`."""

    def __init__(
        self,
        channels: int,
        lattice: Sequence[int],
        norm: Norm,
        fibre: int,
        pattern: Sequence[Tensor],
        chain: Sequence[Sequence[int]],
        stride: int = 2,
    ) -> None:
        super().__init__()
        self.channels, self.lattice, self.norm, self.fibre = channels, tuple(lattice), norm, fibre
        self.chain, self.stride = chain, stride
        self.smaller = [n // stride for n in lattice]
        self.pattern = nn.ModuleList(map(Exactly, pattern))

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.choose(x.detach()).view(-1, 1, 1, 1)
        index = chosen.expand(-1, 1, self.channels, prod(self.smaller))
        return self.phases(x).gather(1, index).reshape(-1, self.channels, *self.smaller)

    def phases(self, x: Tensor) -> Tensor:
        """(batch, channels, *lattice) to (batch, phases, channels, sites)."""
        d = len(self.lattice)
        split = [side for n in self.smaller for side in (n, self.stride)]
        phases = x.reshape(-1, self.channels, *split)
        axes = [0, *range(3, 2 * d + 2, 2), 1, *range(2, 2 * d + 2, 2)]
        return phases.permute(axes).reshape(-1, self.stride**d, self.channels, prod(self.smaller))

    def choose(self, x: Tensor) -> Tensor:
        """(batch, channels, *lattice) to (batch,)."""
        scores = phase_scores(x, self.lattice, self.norm, self.fibre, self.stride)
        best = nearly_largest(scores, x)
        factors = [factor() for factor in self.pattern]
        best = break_ties(x, best, self.lattice, *factors, chain=self.chain, stride=self.stride)
        return best.to(torch.uint8).argmax(1)


class Centred(nn.Module):
    """Each sample rolled so that its centre of mass is at the centre; ties as in `Centre`."""

    def __init__(
        self,
        channels: int,
        lattice: Sequence[int],
        waves: Sequence[Tensor],
        pattern: Sequence[Tensor],
    ) -> None:
        super().__init__()
        self.channels, self.lattice = channels, tuple(lattice)
        self.factors = nn.ModuleList(map(Exactly, (*waves, *pattern)))

    def forward(self, x: Tensor) -> Tensor:
        d = len(self.lattice)
        factors = [factor() for factor in self.factors]
        still = x.detach().double()
        best = nearly_centred(still, self.lattice, *factors[:d])
        shift = best_match(still, best, *factors[d:]).to(torch.uint8).argmax(1)
        index = rolled_sites(shift, self.lattice).unsqueeze(1).expand(-1, self.channels, -1)
        return x.flatten(2).gather(2, index).reshape(-1, self.channels, *self.lattice)


class Layer(nn.Module):
    """y = pool(Σ on the input lattice) + Σ straight to the output lattice + bias."""

    def __init__(
        self,
        before: Sequence[nn.Module],
        pool: nn.Module | None,
        after: Sequence[nn.Module],
        bias: Tensor | None,
    ) -> None:
        super().__init__()
        self.before, self.after = nn.ModuleList(before), nn.ModuleList(after)
        self.pool = pool
        self.bias = None if bias is None else nn.Parameter(bias)

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        if len(self.before):
            inner = _sum([path(x) for path in self.before])
            parts.append(inner if self.pool is None else self.pool(inner))
        y = _sum(parts + [path(x) for path in self.after])
        return y if self.bias is None else y + self.bias


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


class Standardised(nn.Module):
    """(x − mean) / std per channel, rounded to the precision of the network only then."""

    like: Tensor

    def __init__(self, mean: Tensor, std: Tensor, dim: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean, self.std = (Exactly(v.view(-1, *[1] * dim)) for v in (mean, std))
        self.register_buffer("like", torch.zeros((), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = (x.double() - self.mean()) / self.std()
        return scaled.type_as(self.like)


class InUnits(nn.Module):
    """std · f + mean."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.clone())
        self.register_buffer("std", std.clone())

    def forward(self, f: Tensor) -> Tensor:
        return self.std.to(f) * f + self.mean.to(f)


class Lifted(nn.Module):
    """Every channel times a fixed vector: (N, C, *lattice) to (N, C·F, *lattice)."""

    vector: Tensor

    def __init__(self, vector: Tensor, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.register_buffer("vector", vector.view(1, 1, -1, *[1] * (len(shape) - 1)))

    def forward(self, x: Tensor) -> Tensor:
        return (x.unsqueeze(2) * self.vector).reshape(-1, *self.shape)


class FibrePooled(nn.Module):
    """Maximum, mean or norm over groups of channels."""

    def __init__(self, shape: Sequence[int], fibre: int, mode: str) -> None:
        super().__init__()
        channels, *lattice = shape
        self.shape, self.mode = (channels // fibre, fibre, *lattice), mode

    def forward(self, x: Tensor) -> Tensor:
        fibres = x.reshape(-1, *self.shape)
        if self.mode == "max":
            return fibres.amax(2)
        return fibres.mean(2) if self.mode == "mean" else fibres.norm(dim=2)


class SitesPooled(nn.Module):
    """Mean or maximum over the lattice."""

    def __init__(self, dim: int, mode: str) -> None:
        super().__init__()
        self.axes, self.mode = tuple(range(2, 2 + dim)), mode

    def forward(self, x: Tensor) -> Tensor:
        if not self.axes:
            return x
        return x.mean(self.axes) if self.mode == "mean" else x.amax(self.axes)


class NormScaled(nn.Module):
    """`groupella.nn.nonlinearity.FibreNorm`: groups of channels times a function of |x|."""

    def __init__(self, shape: Sequence[int], fibre: int, function: str) -> None:
        super().__init__()
        channels, *lattice = shape
        self.outer = tuple(shape)
        self.inner, self.function = (channels // fibre, fibre, *lattice), function

    def forward(self, x: Tensor) -> Tensor:
        fibres = x.reshape(-1, *self.inner)
        squared = fibres.square().sum(2, keepdim=True)
        norm = (squared + 1.2e-38).sqrt()
        factor = 1 / (1 + norm) if self.function == "squash" else torch.sigmoid(norm)
        return (fibres * factor).reshape(-1, *self.outer)
