"""Circular convolution of many channels on a small torus, by its Fourier transform.

With the real, orthonormal transform D (P, P) of the sites, X = D x, a convolution is a product for
each frequency k and its opposite: with x_c, x_s the cosine and sine parts, and the filter's
w_re = Σ_δ w(δ) cos kδ, w_im = Σ_δ w(δ) sin kδ,

    y_c = w_re x_c + w_im x_s,    y_s = w_re x_s − w_im x_c,    y = Dᵀ Y.

Frequencies that are their own opposite have a cosine part only. That takes about 2 multiply-adds
for each pair of channels and site instead of one for each of the k^d taps, and P for each channel
and site to transform. D is orthonormal, so rounding is that of the direct sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import conv1d

FloatArray = npt.NDArray[np.float64]

MOST_SITES = 64
LEAST_GAIN = 1.5  # multiply-adds of the direct sum over those of this one
LEAST_WORK = 1 << 20  # multiply-adds of the direct sum, below which calls cost more than they save
MANY_SITES = 32  # from which torch's convolutions multiply faster than its batched products


@dataclass(frozen=True)
class _Waves:
    """Transforms of a lattice and a window: pairs of frequencies first, then single ones.

    sites: D, (P, P)
    even, odd: cosines and sines of the taps, (pairs, taps)
    single: cosines of the taps, (singles, taps)
    """

    sites: Tensor
    even: Tensor
    odd: Tensor
    single: Tensor


def is_faster(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Whether x (batch, C, *lattice) is convolved with weight (C', C, *window) faster this way."""
    sites = x.shape[2:].numel()
    if groups != 1 or sites > MOST_SITES or x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    c_out, c = weight.shape[:2]
    direct = weight.shape[2:].numel() * c * c_out
    enough = direct * sites * len(x) > LEAST_WORK
    return enough and direct > LEAST_GAIN * (sites * (c + c_out) + 2 * c * c_out)


def is_backward_faster(x: Tensor, weight: Tensor) -> bool:
    """Whether to go back by the transform where one site in 2^d has a gradient, too.

    The direct sums of both gradients are then over one site in 2^d.
    """
    (c_out, c), window = weight.shape[:2], weight.shape[2:]
    direct = 2 * window.numel() * c * c_out >> len(window)
    return x.shape[2:].numel() * (c + c_out) + 4 * c * c_out <= direct


def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The convolution of x, and the transform (batch, P, C) of x, which `backward` needs."""
    waves = _waves(tuple(x.shape[2:]), tuple(weight.shape[2:]))
    spectrum = _transformed(waves.sites, _rows(x))
    y = _back(waves, _multiplied(spectrum, *_filters(waves, weight)), x)
    if bias is not None:
        _rows(y).add_(bias)
    return y, spectrum


def backward(
    g: Tensor, spectrum: Tensor, weight: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of x, weight and bias, where wanted."""
    waves = _waves(tuple(g.shape[2:]), tuple(weight.shape[2:]))
    rows = _rows(g)
    gx = gw = None
    if wanted[0] or wanted[1]:
        transformed = _transformed(waves.sites, rows)
    if wanted[0]:
        back = (w.transpose(1, 2) for w in _filters(waves, weight))
        gx = _back(waves, _multiplied(transformed, *back), g)
    if wanted[1]:
        gw = _filter_gradient(waves, spectrum, transformed).view(-1, *weight.shape[1::-1])
        gw = gw.permute(2, 1, 0).reshape(weight.shape)
    return gx, gw, rows.sum((0, 1)) if wanted[2] else None


def _filters(waves: _Waves, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices of pairs of frequencies, (pairs, 2·C, 2·C'), and of single ones."""
    c_out, c = weight.shape[:2]
    taps = weight.reshape(c_out, c, -1).permute(2, 1, 0).reshape(-1, c * c_out)
    even, odd = ((wave @ taps).view(-1, c, c_out) for wave in (waves.even, waves.odd))
    pairs = taps.new_empty(len(even), 2, c, 2, c_out)
    pairs[:, 0, :, 0] = pairs[:, 1, :, 1] = even
    pairs[:, 1, :, 0] = odd
    torch.neg(odd, out=pairs[:, 0, :, 1])
    return pairs.view(-1, 2 * c, 2 * c_out), (waves.single @ taps).view(-1, c, c_out)


def _multiplied(spectrum: Tensor, pairs: Tensor, single: Tensor) -> Tensor:
    """The transform (batch, P, C) times the matrix of each frequency: (batch, P, C')."""
    out = spectrum.new_empty(*spectrum.shape[:2], single.shape[2])
    for mine, theirs, matrices in zip(
        _split(spectrum, len(pairs)), _split(out, len(pairs)), (pairs, single), strict=True
    ):
        if len(matrices):
            theirs.copy_(torch.bmm(mine, matrices))
    return out


def _filter_gradient(waves: _Waves, spectrum: Tensor, g: Tensor) -> Tensor:
    """(taps, C·C') from the transforms of input and output gradient."""
    c, c_out, count = spectrum.shape[2], g.shape[2], len(waves.even)
    pairs, single = (
        torch.bmm(a.transpose(1, 2), b)
        for a, b in zip(_split(spectrum, count), _split(g, count), strict=True)
    )
    found = waves.single.t() @ single.view(-1, c * c_out)
    if count:
        blocks = pairs.view(-1, 2, c, 2, c_out)
        even, odd = blocks[:, 0, :, 0] + blocks[:, 1, :, 1], blocks[:, 1, :, 0] - blocks[:, 0, :, 1]
        found.addmm_(waves.even.t(), even.view(-1, c * c_out))
        found.addmm_(waves.odd.t(), odd.view(-1, c * c_out))
    return found


def _split(spectrum: Tensor, pairs: int) -> tuple[Tensor, Tensor]:
    """A transform (batch, P, C) by frequency: (pairs, batch, 2·C) and (singles, batch, C)."""
    n, _, c = spectrum.shape
    both = spectrum.narrow(1, 0, 2 * pairs).view(n, pairs, 2 * c)
    return both.transpose(0, 1), spectrum[:, 2 * pairs :].transpose(0, 1)


def _rows(x: Tensor) -> Tensor:
    """(batch, C, *lattice) to (batch, P, C)."""
    return x.flatten(2).transpose(1, 2)


def _transformed(matrix: Tensor, rows: Tensor) -> Tensor:
    """The matrix (P, P) times (batch, P, C)."""
    if len(matrix) < MANY_SITES:
        return torch.matmul(matrix, rows)
    return conv1d(rows, matrix.unsqueeze(2))


def _back(waves: _Waves, spectrum: Tensor, x: Tensor) -> Tensor:
    """Dᵀ times a transform (batch, P, C'): (batch, C', *lattice) on the lattice of x.

    Not a view, which autograd would not let others add to.
    """
    (n, sites, c), lattice = spectrum.shape, x.shape[2:]
    along = [c * lattice[axis + 1 :].numel() for axis in range(len(lattice))]
    rows = _transformed(waves.sites.t(), spectrum).contiguous()
    y = rows.new_empty(0)
    return y.set_(rows.untyped_storage(), 0, (n, c, *lattice), (sites * c, 1, *along))


@lru_cache(maxsize=64)
def _waves(lattice: tuple[int, ...], window: tuple[int, ...]) -> _Waves:
    sides = np.array(lattice)
    sites = np.stack(np.unravel_index(np.arange(sides.prod()), lattice), 1)
    half = np.array(window) // 2
    taps = np.stack(np.unravel_index(np.arange(math.prod(window)), window), 1) - half
    pairs, single = [], []
    for k in product(*(range(n) for n in lattice)):
        opposite = tuple((-a) % n for a, n in zip(k, lattice, strict=True))
        if k < opposite:
            pairs.append(k)
        elif k == opposite:
            single.append(k)

    def angles(frequencies: list[tuple[int, ...]], places: npt.NDArray[np.int64]) -> FloatArray:
        waves = np.array(frequencies).reshape(-1, len(lattice)) / sides
        return np.asarray(2 * np.pi * waves @ places.T)

    both, own = angles(pairs, sites), angles(single, sites)
    paired = np.stack([np.cos(both), np.sin(both)], 1).reshape(-1, len(sites)) * 2**0.5
    rows = np.concatenate([paired, np.cos(own)]) / len(sites) ** 0.5
    both, own = angles(pairs, taps), angles(single, taps)
    found = (rows, np.cos(both), np.sin(both), np.cos(own))
    return _Waves(*(torch.from_numpy(v).float() for v in found))
