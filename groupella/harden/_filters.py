"""What a path does to its input, as plain weights.

Every path is affine, so its weights can be read off its responses. A path that commutes with all
translations of the torus is a convolution: its response to a single site of each channel holds the
whole filter, whatever the path is made of (stages, bases, anchors, a user's own code). On a small
torus a window that wraps around is folded. Any other path is a matrix, except that factored ones
keep their factors. Responses are computed in float64.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from groupella.bases import Padding
from groupella.nn.circular import add_kernels
from groupella.nn.paths import FactoredFC, FullyConnected, SparseFC, TiedFilter

_ROWS_AT_ONCE = 1024


class Filter(NamedTuple):
    """y = weight ⋆ x + bias; weight (C', C, *odd window), bias (C',).

    On a torus, or with `padding` "zeros" around the image.
    """

    weight: Tensor
    bias: Tensor
    padding: Padding = "circular"


class Matrix(NamedTuple):
    """y = weight x + bias on flattened features."""

    weight: Tensor
    bias: Tensor


class FactoredMatrix(NamedTuple):
    """y(c', p') = Σ_c θ₁(c', c, p') (Σ_p θ₂(c', c, p) x(c, p) + between(c')) + after(c', p')."""

    theta1: Tensor
    theta2: Tensor
    between: Tensor
    after: Tensor


class Gathered(NamedTuple):
    """y[places] = signs · (weight × Σ values · x[points]), filter by filter; see `TiedFilter`.

    Of each kind of filters: weight (filters, entries·C, C'·units), points and values (filters,
    orbit, entries, ties), signs (filters, orbit, units). `places` says where each output is.
    """

    weights: tuple[Tensor, ...]
    points: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    signs: tuple[Tensor, ...]
    places: Tensor
    channels: tuple[int, int]
    bias: Tensor


def plain_weights(path: nn.Module) -> Filter | Matrix | FactoredMatrix | Gathered:
    """The weights of a path in the plainest form that fits, in float64.

    Returns
    -------
    Filter, FactoredMatrix, Gathered or Matrix
        A filter for paths that commute with all translations, factors for F-FC and S-FC, gathered
        patches for TIED, else a matrix.
    """
    exact: Any = copy.deepcopy(path).double()
    with torch.no_grad():
        if isinstance(exact, (FactoredFC, SparseFC)):
            return _factors(exact)
        if isinstance(exact, TiedFilter):
            return _gathered(exact)
        if isinstance(exact, FullyConnected):
            bias = exact.weight.new_zeros(len(exact.weight))
            return Matrix(exact.weight, bias if exact.bias is None else exact.bias.flatten())
        if getattr(exact, "padding", "circular") != "circular":
            weight, bias = exact.filter(), exact.filter_bias()
            zeros = weight.new_zeros(len(weight))
            return Filter(weight, zeros if bias is None else bias, exact.padding)
        if exact.symmetry.translations and exact.space_in.lattice == exact.space_out.lattice:
            return _filter(exact)
        return _matrix(exact)


def add_filters(filters: Sequence[Filter]) -> Filter:
    """The sum of the filters, on the largest window; all have the same padding."""
    bias = torch.stack([f.bias for f in filters]).sum(0)
    return Filter(add_kernels([f.weight for f in filters]), bias, filters[0].padding)


def _filter(path: Any) -> Filter:
    """W(c', c, δ) is the response in channel c', at site −δ, to a one in channel c at site 0."""
    channels, *sides = path.space_in.shape
    constant = path(torch.zeros(1, channels, *sides, dtype=torch.float64))[0]
    answers = []
    for start in range(0, channels, _ROWS_AT_ONCE):
        some = torch.arange(start, min(start + _ROWS_AT_ONCE, channels))
        x = torch.zeros(len(some), channels, prod(sides), dtype=torch.float64)
        x[torch.arange(len(some)), some, 0] = 1.0
        answers.append(path(x.view(-1, channels, *sides)) - constant)
    response = torch.cat(answers).transpose(0, 1)
    halves = [_reach(response, axis + 2) for axis in range(len(sides))]
    window = [2 * h + 1 for h in halves]
    sources, targets = [], []
    for target, offset in enumerate(itertools.product(*(range(-h, h + 1) for h in halves))):
        if any(2 * o == -n for o, n in zip(offset, sides, strict=True)):
            continue  # the same site as +n/2
        opposite = 0
        for o, n in zip(offset, sides, strict=True):
            opposite = opposite * n + -o % n
        sources.append(opposite)
        targets.append(target)
    weight = response.new_zeros(*response.shape[:2], prod(window))
    weight[:, :, targets] = response.flatten(2)[:, :, sources]
    return Filter(weight.view(*weight.shape[:2], *window), constant.flatten(1)[:, 0])


def _reach(response: Tensor, axis: int) -> int:
    """How far from the centre the filter goes along an axis, at most half the torus."""
    size = response.shape[axis]
    others = [a for a in range(response.dim()) if a != axis]
    used = response.abs().amax(others).nonzero().flatten().tolist()
    return max((min(k, size - k) for k in used), default=0)


def _matrix(path: Any) -> Matrix:
    size_in = path.space_in.size
    constant = path(torch.zeros(1, *path.space_in.shape, dtype=torch.float64))
    columns = []
    for start in range(0, size_in, _ROWS_AT_ONCE):
        x = torch.zeros(min(_ROWS_AT_ONCE, size_in - start), size_in, dtype=torch.float64)
        x[torch.arange(len(x)), torch.arange(start, start + len(x))] = 1.0
        columns.append((path(x.view(-1, *path.space_in.shape)) - constant).flatten(1))
    return Matrix(torch.cat(columns).mT.contiguous(), constant.flatten())


def _factors(path: FactoredFC | SparseFC) -> FactoredMatrix:
    theta1: Tensor = path.theta1
    theta2: Tensor = path.theta2
    c_out = len(theta1)
    between: Tensor = theta1.new_zeros(c_out)
    if isinstance(path, SparseFC):
        spread, projection = path.functions()
        theta1, theta2 = theta1 @ spread.mT, theta2 @ projection.mT
        after = between if path.bias is None else path.bias
        after = after.unsqueeze(1).expand(-1, theta1.shape[2])
        return FactoredMatrix(theta1, theta2, between, after)
    if path.channel_bias is not None:
        between = path.channel_bias
    point = path.point_bias if path.point_bias is not None else theta1.new_zeros(theta1.shape[2])
    return FactoredMatrix(theta1, theta2, between, point.expand(c_out, -1))


def _gathered(path: TiedFilter) -> Gathered:
    channels = (path.space_in.channels, path.space_out.channels)
    zeros = path.weights[0].new_zeros(channels[1])
    return Gathered(
        tuple(kind.matrices(w) for kind, w in zip(path.kinds, path.weights, strict=True)),
        tuple(kind.index for kind in path.kinds),
        tuple(kind.values for kind in path.kinds),
        tuple(kind.signs for kind in path.kinds),
        path.places,
        channels,
        zeros if path.bias is None else path.bias,
    )
