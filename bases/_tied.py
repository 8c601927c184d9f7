"""Filters with local support, one for every orbit of sites: maps that obey a small point group.

    W((f', p'), (f, p)) = 0 unless p lies in the window about p',     W g = g W for all g in K

The group without translations moves a site p' along an orbit. The filter there can be chosen freely
at one site of the orbit, the representative, and is carried to the others: W(gp') = ρ'(g) W(p')
with its window turned by g. Only where some g leaves the representative in place, on a mirror line
or at the centre, must the filter itself obey these g; entries are then tied to each other.

Where K permutes fibre and sites up to signs, every filter entry is a number of its own or tied to
others up to signs, so nothing is solved for: time and memory are those of the filters, and never of
all pairs of sites. The entries are scaled so that all basis maps have the norm √|K|: isotropic, and
an entry that is tied to nothing is the filter's entry itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from groupella.groups import FeatureSpace, Symmetry

from ._arrays import FloatArray, IntArray

Padding = Literal["circular", "zeros"]


@dataclass(frozen=True, eq=False)
class Ties:
    """Filters of one kind: with the same number of entries, and orbits of the same length.

    Points are numbers of fibre × sites of one channel. For filter r, number s of its orbit, and
    unit u of the output, in one of the channels:

        y[outputs[r, s, u]] = signs[r, s, u] Σ_j weight[u, r, j] z[r, s, j]
        z[r, s, j] = Σ_i values[r, s, j, i] x[index[r, s, j, i]]
    """

    index: IntArray
    values: FloatArray
    outputs: IntArray
    signs: FloatArray

    @property
    def filters(self) -> int:
        return int(self.index.shape[0])

    @property
    def orbit(self) -> int:
        """The number of places of each filter."""
        return int(self.index.shape[1])

    @property
    def entries(self) -> int:
        """Free entries of a filter, for one input channel and one unit."""
        return int(self.index.shape[2])

    @property
    def units(self) -> int:
        """Output components of a channel that see the same inputs."""
        return int(self.outputs.shape[2])

    @property
    def dim(self) -> int:
        return self.filters * self.units * self.entries


@dataclass(frozen=True, eq=False)
class TiedFilters:
    """All filters on a window that obey a group; see `tied_filters`.

    Parameters
    ----------
    ties
        The filters, by kind.
    shape
        (V_out, V_in), V = fibre × sites of one channel.
    window
        The sides of the support.
    """

    ties: tuple[Ties, ...]
    shape: tuple[int, int]
    window: tuple[int, ...]

    @property
    def dim(self) -> int:
        """The number of basis maps for one pair of channels."""
        return sum(tie.dim for tie in self.ties)


def tied_filters(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    support: int | Sequence[int],
    padding: Padding = "circular",
) -> TiedFilters:
    """All maps of the support that commute with a group without translations.

    Parameters
    ----------
    space_in, space_out
        Feature spaces of one group set, on one lattice.
    symmetry
        A catalogue group without translations, contained in their ambient symmetry. It must permute
        both fibres, up to signs.
    support
        The odd sides of the window: one number, or one for each axis; at most the lattice's.
    padding
        "circular": windows go around the torus. "zeros": they end at the border.

    Raises
    ------
    ValueError
        If the group has translations or is given by generators, if it does not permute a fibre, or
        if the window does not fit.
    """
    lattice = space_in.lattice
    if space_out.lattice != lattice:
        raise ValueError(
            f"tied filters keep the lattice, got {lattice.shape} to {space_out.lattice.shape}"
        )
    if not symmetry.is_catalogue or symmetry.translations:
        what = "has translations" if symmetry.translations else "is given by generators"
        raise ValueError(
            f"tied filters are for catalogue groups without translations, and {symmetry} {what}; "
            f"use {'a group convolution' if symmetry.translations else 'a dense basis'}"
        )
    if padding not in get_args(Padding):
        raise ValueError(f"padding must be 'circular' or 'zeros', got {padding!r}")
    window = _window(support, lattice.shape)
    elements = list(space_in.elements(symmetry))
    for g in elements:
        space_in.window_permutation(g, window)  # raises if g exchanges unequal sides
    before, after = (_actions(space, elements) for space in (space_in, space_out))
    places = np.stack([np.asarray(space_in.action(g).permutation) for g in elements])
    maker = _Maker(lattice.shape, window, padding, space_in.fibre_size, before, after)
    stays = places == np.arange(lattice.size)
    free = stays.sum(0) == 1
    first = places.min(0) == np.arange(lattice.size)
    made = [maker.free(np.flatnonzero(free & first), space_out.fibre_size)]
    fixed = np.flatnonzero(~free)
    points = (np.arange(space_out.fibre_size)[:, None] * lattice.size + fixed).ravel()
    made.append(maker.fixed(points[after[0][:, points].min(0) == points]))
    ties = tuple(tie for some in made for tie in some)
    return TiedFilters(ties, (space_out.fibre_size * lattice.size, before[0].shape[1]), window)


@dataclass(frozen=True, eq=False)
class _Maker:
    """What all filters share: `before` and `after` are (moved, signs) of every element."""

    lattice: tuple[int, ...]
    window: tuple[int, ...]
    padding: Padding
    fibre: int
    before: tuple[IntArray, FloatArray]
    after: tuple[IntArray, FloatArray]

    def free(self, sites: IntArray, fibre_out: int) -> Iterator[Ties]:
        """Filters at sites that no element leaves in place: the whole output fibre sees them."""
        entries, there = self._entries(sites)
        size = prod(self.lattice)
        points = np.arange(fibre_out) * size + sites[:, None]
        for count in np.unique(there.sum(1)):
            chosen = np.flatnonzero(there.sum(1) == count)
            inputs = entries[chosen][there[chosen]].reshape(len(chosen), count)
            outputs = points[chosen]
            yield Ties(
                self.before[0][:, inputs].transpose(1, 0, 2)[..., None],
                self.before[1][:, inputs].transpose(1, 0, 2)[..., None],
                self.after[0][:, outputs].transpose(1, 0, 2),
                self.after[1][:, outputs].transpose(1, 0, 2),
            )

    def fixed(self, points: IntArray) -> Iterator[Ties]:
        """Filters of single output points at other sites; entries that an element ties are one."""
        size = prod(self.lattice)
        kinds: dict[tuple[int, int, int], list[Ties]] = {}
        for point in points:
            entries, there = self._entries(np.array([point % size]))
            tie = self._tied(int(point), entries[there])
            if tie is not None:
                kinds.setdefault((tie.entries, tie.orbit, tie.index.shape[3]), []).append(tie)
        for ties in kinds.values():
            names = ("index", "values", "outputs", "signs")
            yield Ties(*(np.concatenate([getattr(t, n) for t in ties]) for n in names))

    def _tied(self, point: int, entries: IntArray) -> Ties | None:
        """The filter of one output point, averaged over the elements that leave it in place."""
        (moved, signs), (moved_out, signs_out) = self.before, self.after
        order = len(moved)
        stay = np.flatnonzero(moved_out[:, point] == point)
        place = np.searchsorted(entries, moved[np.ix_(stay, entries)])
        sign = signs[np.ix_(stay, entries)] * signs_out[stay, point][:, None]
        sums = np.zeros((len(entries), len(entries)))
        columns = np.broadcast_to(np.arange(len(entries)), place.shape)
        np.add.at(sums, (place, columns), sign)
        # Column e is the sum of the images of entry e: zero if they cancel, else its orbit.
        alive = np.flatnonzero((sums != 0).any(0))
        leaders = [e for e in alive if np.flatnonzero(sums[:, e])[0] == e]
        if not leaders:
            return None
        images, carriers = np.unique(moved_out[:, point], return_index=True)
        most = max(int((sums[:, e] != 0).sum()) for e in leaders)
        index = np.zeros((len(images), len(leaders), most), dtype=np.int64)
        values = np.zeros(index.shape)
        for j, e in enumerate(leaders):
            members = np.flatnonzero(sums[:, e])
            m = len(members)
            scale = np.sqrt(order / (len(images) * m)) * np.sign(sums[members, e])
            index[:, j, :m] = moved[np.ix_(carriers, entries[members])]
            values[:, j, :m] = signs[np.ix_(carriers, entries[members])] * scale
        outputs = images[None, :, None]
        return Ties(index[None], values[None], outputs, signs_out[carriers, point][None, :, None])

    def _entries(self, sites: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The input points (sites, fibre·window) in the window of each site, and which exist.

        In ascending order for each site.
        """
        place = np.stack(np.unravel_index(sites, self.lattice), -1)
        half = np.array([k // 2 for k in self.window])
        steps = np.indices(self.window).reshape(len(self.window), -1).T - half
        target = place[:, None] + steps
        inside = ((target >= 0) & (target < np.array(self.lattice))).all(-1)
        flat = np.ravel_multi_index(tuple(np.moveaxis(target, -1, 0)), self.lattice, mode="wrap")
        there = inside if self.padding == "zeros" else np.ones_like(inside)
        points = np.arange(self.fibre)[:, None] * prod(self.lattice) + flat[:, None]
        exist = np.broadcast_to(there[:, None], points.shape)
        flat, exist = (a.reshape(len(sites), self.fibre * len(steps)) for a in (points, exist))
        order = np.argsort(flat, axis=1)
        return np.take_along_axis(flat, order, 1), np.take_along_axis(exist, order, 1)


def _actions(space: FeatureSpace, elements: Sequence[object]) -> tuple[IntArray, FloatArray]:
    """Where each element moves each point of a channel, and with which sign: (K, V) both."""
    moved, signs = [], []
    for g in elements:
        found = space.action(g).signed()  # type: ignore[arg-type]
        if found is None:
            raise ValueError(
                f"tied filters need a fibre that the group permutes (up to signs), and "
                f"{space.fibre} is not; take the regular one"
            )
        moved.append(found[0].astype(np.int64))
        signs.append(found[1])
    return np.stack(moved), np.stack(signs)


def _window(support: int | Sequence[int], lattice: tuple[int, ...]) -> tuple[int, ...]:
    window = (support,) * len(lattice) if isinstance(support, int) else tuple(support)
    fits = len(window) == len(lattice) and all(
        1 <= k <= n and k % 2 for k, n in zip(window, lattice, strict=True)
    )
    if not fits:
        raise ValueError(
            f"support must be odd and at most the sides {lattice} of the lattice, one number or "
            f"one for each axis; got {support}"
        )
    return window
