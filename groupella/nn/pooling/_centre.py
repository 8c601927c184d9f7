"""Centring: an image is rolled to where its centre of mass is the centre of the lattice.

Of x (batch, channels, *lattice) let e(s) be the squared distance of site s from the mean over
sites. The image is rolled by the shift a of the largest

    m(a) = Σ_s e(s) Π_i (1 + cos(2π (s_i − a_i − c_i) / n_i)),    c = (n − 1)/2, the array centre,

the centre of mass on a torus, up to sites. A shifted image has the same rolled one. A point-group
element, which acts about the array centre, takes a to g·a and the rolled image along, so what comes
after need only obey the point group: pooling over fixed blocks does, and with it a network need not
choose among phases in every layer.

Ties go to the better match with a fixed pattern (`_pattern.py`). Shifts that are tied after that
are exchanged by an element of the group that maps the image to itself, and the rolled images differ
by a point-group element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from groupella.groups import FeatureSpace
from groupella.nn._constant import Constant

from ._pattern import matches, pattern_on
from ._phases import take_sites, tied_samples

TIE, FLAT = 1e-9, 1e-20  # relative to the largest score; to the sum of squares of the image


class Centre(nn.Module):
    """Roll each sample so that its centre of mass is at the centre of the lattice.

    Shifts of the input leave the output alone; point-group elements act on both alike.

    Parameters
    ----------
    space
        Scalar channels on a torus, whose ambient group is of the catalogue.

    Raises
    ------
    ValueError
        If the space is of another kind.
    """

    def __init__(self, space: FeatureSpace) -> None:
        super().__init__()
        if not (space.ambient.is_catalogue and space.lattice.dim):
            raise ValueError(f"Centre takes fields of a catalogue group on a lattice, got {space}")
        if space.fibre_size != 1:
            raise ValueError(f"Centre takes channels with a trivial fibre, got {space.fibre}")
        self.space_in = self.space_out = space
        self.pattern = pattern_on(space, between=True)
        self.waves = tuple(map(Constant, waves(space.lattice.shape)))

    def choose(self, x: Tensor) -> Tensor:
        """The shift of each sample, (batch,), numbered with the last axis fastest."""
        self.space_in.check(x)
        with torch.no_grad():
            x = x.detach().double()
            lattice = self.space_in.lattice.shape
            best = nearly_centred(x, lattice, *(wave.like(x) for wave in self.waves))
            tied = tied_samples(best)
            pattern = self.pattern.like(x)
            if tied is None:
                best = best_match(x, best, *pattern)
            elif len(tied):
                best[tied] = best_match(x[tied], best[tied], *pattern)
            return best.to(torch.uint8).argmax(1)

    def forward(self, x: Tensor) -> Tensor:
        index = rolled_sites(self.choose(x), self.space_in.lattice.shape)
        return take_sites(x, index).view(x.shape)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape}"


def waves(lattice: Sequence[int]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """For each axis (1, cos, sin) of 2π (s − c)/n and of 2π a/n, (2, 3, n)."""
    found = []
    for n in lattice:
        angles = 2 * np.pi / n * np.stack([np.arange(n) - (n - 1) / 2, np.arange(n)])
        found.append(np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], 1))
    return found


def nearly_centred(x: Tensor, lattice: Sequence[int], *factors: Tensor) -> Tensor:
    """Return which shifts have the largest score, up to rounding: (batch, sites).

    x (batch, channels, *lattice) in float64; factors: `waves`.
    """
    axes = tuple(range(2, 2 + len(lattice)))
    score = (x - x.mean(axes, keepdim=True)).square().sum(1)
    for axis, wave in enumerate(factors, 1):
        score = (linear(score.movedim(axis, -1), wave[0]) @ wave[1]).movedim(-1, axis)
    score = score.flatten(1)
    slack = FLAT * x.square().flatten(1).sum(1, keepdim=True)
    return score >= score.amax(1, keepdim=True) * (1 - TIE) - slack


def best_match(x: Tensor, best: Tensor, *pattern: Tensor) -> Tensor:
    """Return which of the shifts that are `best` so far (batch, sites) match the pattern best."""
    found = matches(x, *pattern).amax(1).flatten(1)
    found = torch.where(best, found, torch.full_like(found, -torch.inf))
    return found == found.amax(1, keepdim=True)


def rolled_sites(shift: Tensor, lattice: Sequence[int]) -> Tensor:
    """(batch,) to (batch, sites): the flat site that each site of the rolled sample comes from."""
    index = torch.zeros_like(shift).unsqueeze(1)
    for axis, size in enumerate(lattice):
        offset = shift
        for later in lattice[axis + 1 :]:
            offset = torch.div(offset, later, rounding_mode="floor")
        along = (torch.arange(size, device=shift.device) + (offset % size).unsqueeze(1)) % size
        index = (index.unsqueeze(2) * size + along.unsqueeze(1)).flatten(1)
    return index
