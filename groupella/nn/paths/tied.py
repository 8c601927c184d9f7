"""TIED: a filter for every orbit of sites, for groups without translations at image size.

    y(c', f', p') = Σ_c Σ_f Σ_δ W(c', c)(f', f; p', δ) x(c, f, p' + δ),   δ in a window of odd sides

The filter depends on the site, and a group that turns or reflects the image about its centre
carries it along: W is free at one site of each orbit (`groupella.bases.tied_filters`). A dense
basis has a weight for every pair of sites, up to the group; this one for every site and offset. The
patches are gathered in the frame of their representative, then every filter is one matrix for all
sites of its orbit: a block-diagonal shared linear map with the orbit as positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from groupella.bases import Padding, Ties, tied_filters
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._constant import Constant
from groupella.nn.shared_maps import BiasMap, BlockMap, SharedLinearMap, record

from ._common import GAIN, add_bias, check_input, check_spaces, draw, new_bias


class TiedFilter(nn.Module):
    """Filters `weight` (C', units, orbits, entries, C), tied along the orbits of a group.

    Sites on mirror lines, at the centre and, with `padding="zeros"`, near the border have fewer
    entries; their filters are further parameters `weight1`, `weight2`, ….

    Parameters
    ----------
    space_in, space_out
        Features on the same lattice.
    symmetry
        A catalogue group without translations, contained in the ambient symmetry of the spaces: c4,
        d4, mirror, …, or the trivial one, which makes this a locally connected layer. It must
        permute the fibres, up to signs.
    support
        Odd sides of the window, at most the lattice's: one number, or one for each axis.
    padding
        "circular": windows go around the torus. "zeros": what lies outside of the image is zero.
        Both are exactly equivariant, since the group fixes the centre.
    paper_biases
        Add one bias per channel, equal on fibre and sites.

    Raises
    ------
    ValueError
        If the group has translations or is given by generators, if it does not permute a fibre, or
        if the window does not fit.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry,
        support: int | Sequence[int] = 3,
        *,
        padding: Padding = "circular",
        paper_biases: bool = False,
    ) -> None:
        super().__init__()
        check_spaces("TiedFilter", space_in, space_out)
        found = tied_filters(space_in, space_out, symmetry, support, padding)
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        self.support, self.padding, self.dim = found.window, padding, found.dim
        self.kinds = tuple(_Kind(ties) for ties in found.ties)
        c_out, c = space_out.channels, space_in.channels
        self.names = tuple(f"weight{i or ''}" for i in range(len(self.kinds)))
        for name, kind in zip(self.names, self.kinds, strict=True):
            shape = (c_out, kind.units, kind.filters, kind.entries, c)
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        order = np.concatenate([ties.outputs.ravel() for ties in found.ties])
        # An output that every filter leaves at zero is read from behind the last.
        places = np.full(found.shape[0], len(order))
        places[order] = np.arange(len(order))
        self.places = torch.from_numpy(places)
        self._is_onto = len(order) == found.shape[0]
        self.bias = new_bias(c_out, paper_biases)
        self.reset_parameters()

    @property
    def weights(self) -> tuple[nn.Parameter, ...]:
        """All filters, by kind."""
        return tuple(getattr(self, name) for name in self.names)

    def reset_parameters(self, gain: float = GAIN) -> None:
        for kind, weight in zip(self.kinds, self.weights, strict=True):
            power = self.space_in.channels * kind.power
            draw(weight, gain * power**-0.5, self.bias)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        n, c = x.shape[0], self.space_in.channels
        points = x.reshape(n, c, -1).permute(2, 0, 1)
        parts = []
        for name, kind in zip(self.names, self.kinds, strict=True):
            patches = kind.patches(points)
            y = kind.product(patches, getattr(self, name))
            record(self, name, patches, y)
            parts.append(kind.signed(y.reshape(*y.shape[:3], -1, kind.units)))
        flat = [part.permute(0, 3, 1, 2, 4).flatten(2) for part in parts]
        if not self._is_onto:
            flat.append(flat[0].new_zeros(*flat[0].shape[:2], 1))
        together = torch.cat(flat, 2) if len(flat) > 1 else flat[0]
        y = together.index_select(2, self.places.to(x.device))
        return add_bias(self, x, y.reshape(n, *self.space_out.shape))

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        c = self.space_in.channels
        found: dict[str, SharedLinearMap] = {}
        for name, kind, weight in zip(self.names, self.kinds, self.weights, strict=True):
            d_out = prod(weight.shape[:2])
            found[name] = BlockMap(
                name, kind.filters, kind.entries * c, d_out, axes="obi", places=kind.orbit
            )
        if self.bias is not None:
            found["bias"] = BiasMap.of_channels("bias", len(self.bias))
        return found

    def extra_repr(self) -> str:
        return (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.symmetry}, "
            f"support={self.support}, padding={self.padding!r}, basis={self.dim}"
        )


class _Kind:
    """The filters of one kind as tensors."""

    def __init__(self, ties: Ties) -> None:
        self.filters, self.orbit = ties.filters, ties.orbit
        self.entries, self.units = ties.entries, ties.units
        self.index = torch.from_numpy(np.array(ties.index))
        self.values, self.signs = torch.from_numpy(ties.values), torch.from_numpy(ties.signs)
        plain = ties.index.shape[3] == 1 and bool((ties.values == 1).all())
        self._values = None if plain else Constant(ties.values)
        self._signs = Constant(ties.signs) if bool((ties.signs < 0).any()) else None
        # Of an input of unit second moment, the sum of the second moments of the entries.
        self.power = float(np.square(ties.values).sum((2, 3)).mean())

    def patches(self, points: Tensor) -> Tensor:
        """(V, N, C) to (N, filters, orbit, entries·C)."""
        taken = points[self.index.to(points.device).flatten()]
        taken = taken.reshape(*self.index.shape, *points.shape[1:])
        if self._values is not None:
            taken = (taken * self._values.like(points)[..., None, None]).sum(3)
        else:
            taken = taken.squeeze(3)
        return taken.permute(3, 0, 1, 2, 4).flatten(3)

    def product(self, patches: Tensor, weight: Tensor) -> Tensor:
        """Patches and (C', units, filters, entries, C) to (N, filters, orbit, C'·units)."""
        n, filters, orbit, size = patches.shape
        rows = patches.transpose(0, 1).reshape(filters, n * orbit, size)
        y = torch.bmm(rows, self.matrices(weight))
        return y.reshape(filters, n, orbit, -1).transpose(0, 1)

    def matrices(self, weight: Tensor) -> Tensor:
        """(C', units, filters, entries, C) to (filters, entries·C, C'·units)."""
        return weight.permute(2, 3, 4, 0, 1).reshape(self.filters, -1, prod(weight.shape[:2]))

    def signed(self, y: Tensor) -> Tensor:
        """(N, filters, orbit, C', units), each times its sign."""
        return y if self._signs is None else y * self._signs.like(y).unsqueeze(2)
