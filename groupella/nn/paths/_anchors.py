"""Anchor functions of sparse paths: on lattices and windows, on groups, on quotients of groups.

    φ_j(p) = mean_{e ∈ p} exp(−ω² d(e, z_j)²)

A point p of a lattice or window is its coordinates e, and d is Euclidean. A point of a group is
e = (t, R), its translation and point part. Then d(e, z)² = |t_e − t_z|² + ½ |R_e − R_z|² is
left-invariant and Euclidean, with chords in the place of ways round a torus, and φ a stationary
kernel, positive definite, with one argument at an anchor. A point of a quotient of the group is a
coset: the mean of the kernel over its elements (Azangulov et al. 2022, "Stationary kernels and
Gaussian processes on Lie groups and their homogeneous spaces", part I).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groupella.bases import KernelBasis, squared_distances
from groupella.groups import FeatureSpace, LatticeElement, Symmetry
from groupella.nn._constant import Constant

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

LARGEST = 2**26


class Anchors:
    """Anchor functions φ (points, M), with M = ⌈points / 2⌉ anchors in every part.

    Parameters
    ----------
    elements
        (elements per point, points, D): the coordinates e.
    parity
        (points,): anchors start on points whose parity is even, a checkerboard.
    parts
        (points,): the part to which a point belongs; anchors reach the points of their own part.
    dim
        The number of coordinates t, the first ones; all by default. The others are entries of R.
    sides
        The sides of the torus on which t is, if it is.
    """

    def __init__(
        self,
        elements: FloatArray,
        parity: IntArray,
        parts: IntArray | None = None,
        dim: int | None = None,
        sides: Sequence[int] = (),
    ) -> None:
        parts = np.zeros(len(parity), dtype=np.intp) if parts is None else parts
        chosen = np.concatenate([_half(parity, np.flatnonzero(parts == p)) for p in set(parts)])
        chosen.sort()
        anchors = elements[0, chosen]
        self.count = len(chosen)
        self._dim, self._sides = elements.shape[2] if dim is None else dim, tuple(sides)
        self._elements, self._anchors = Constant(elements), Constant(anchors)
        squared = np.zeros((*elements.shape[:2], self.count))
        for i in range(elements.shape[2]):
            e, z = elements[:, :, i].reshape(-1, 1), anchors[:, i : i + 1]
            apart = squared_distances(e, z, period=self._sides[i : i + 1] or None)
            squared += apart.reshape(squared.shape) / (1 if i < self._dim else 2)
        self._squared = Constant(squared)
        same = parts[:, None] == parts[chosen]
        self._same = None if same.all() else Constant(same)

    def positions(self, learn: bool) -> nn.Parameter | None:
        """The anchors (M, D) as a parameter, if they are learned."""
        if not learn:
            return None
        return nn.Parameter(torch.from_numpy(self._anchors.array).to(torch.get_default_dtype()))

    def functions(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        """φ, (points, M)."""
        return self._mean(torch.exp(-omega.square() * self._distances(omega, positions)))

    def tangents(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        """∂φ/∂ω, (points, M)."""
        squared = self._distances(omega, positions)
        return self._mean(-2 * omega * squared * torch.exp(-omega.square() * squared))

    def _mean(self, values: Tensor) -> Tensor:
        mean = values.mean(0)
        return mean if self._same is None else mean * self._same.like(mean)

    def _distances(self, omega: Tensor, positions: Tensor | None) -> Tensor:
        """(elements per point, points, M)."""
        if positions is None:
            return self._squared.like(omega)
        elements = self._elements.like(omega)
        total = omega.new_zeros(*elements.shape[:2], len(positions))
        for i, z in enumerate(positions.unbind(1)):
            apart = elements[:, :, i, None] - z
            if i < len(self._sides):
                apart = torch.sin(apart * (math.pi / self._sides[i])) * (self._sides[i] / math.pi)
            total = total + apart.square() / (1 if i < self._dim else 2)
        return total


def grid_anchors(shape: Sequence[int]) -> Anchors:
    """Anchors on the points of a window or lattice."""
    points = _grid(shape)
    return Anchors(points[None], points.sum(1).astype(np.intp))


def group_anchors(path: str, space: FeatureSpace) -> Anchors:
    """Anchors on fibre × sites, points of the ambient group on its torus."""
    matrices = _point_group(path, space, space.ambient)
    orbits, frames = _fibre_frames(path, space, space.ambient)
    points = len(frames) * space.lattice.size
    if points * -(-points // 2) > LARGEST:
        raise ValueError(
            f"{path}: over the group, {points} points × {-(-points // 2)} anchors are more than "
            f"{LARGEST} numbers; place the anchors on the lattice, or take a factored path"
        )
    sites = _grid(space.lattice.shape)
    turned = matrices[frames].reshape(*frames.shape, -1)
    m, f, s = frames.shape[1], len(frames), len(sites)
    elements = np.concatenate(
        [
            np.broadcast_to(sites, (m, f, s, sites.shape[1])),
            np.broadcast_to(turned.transpose(1, 0, 2)[:, :, None], (m, f, s, turned.shape[2])),
        ],
        axis=3,
    )
    parity = sites.sum(1).astype(np.intp) + frames[:, :1]
    return Anchors(
        elements.reshape(m, f * s, -1),
        parity.ravel(),
        np.repeat(orbits, s),
        space.lattice.dim,
        space.lattice.shape,
    )


def kernel_anchors(
    path: str,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    basis: KernelBasis,
) -> Anchors:
    """Anchors on the points g⁻¹g' of a group convolution, one point per basis kernel.

    An input (f, p + δ) is the coset of g = (p + δ, k), an output (f', p) that of g' = (p, k'), with
    the k that move the first element of an orbit of the fibre to f. So g⁻¹g' = (−k⁻¹δ, k⁻¹k').
    """
    matrices = _point_group(path, space_in, symmetry)
    orbits, frames = _fibre_frames(path, space_in, symmetry)
    orbits_out, frames_out = _fibre_frames(path, space_out, symmetry)
    assert basis.gather is not None
    labels = basis.gather[0]
    _, first = np.unique(labels, return_index=True)
    f_out, f, *window = np.unravel_index(first, labels.shape)
    offset = np.stack(window, axis=1) - np.array(basis.window) // 2
    k, k_out = matrices[frames[f]], matrices[frames_out[f_out]]
    turned = np.einsum("bmji,bnjk->bmnik", k, k_out)
    moved = -np.einsum("bmji,bj->bmi", k, offset)
    n_b, m, n = turned.shape[:3]
    moved = np.broadcast_to(moved[:, :, None], (n_b, m, n, moved.shape[2]))
    elements = np.concatenate([moved, turned.reshape(n_b, m, n, -1)], axis=3)
    number = {tuple(matrix.ravel()): i for i, matrix in enumerate(matrices)}
    parity = [number[tuple(matrix.ravel())] for matrix in turned[:, 0, 0]]
    parity = np.array(parity) + moved[:, 0, 0].sum(1).astype(np.intp)
    parts = orbits_out[f_out] * space_in.fibre_size + orbits[f]
    elements = elements.reshape(n_b, m * n, -1).transpose(1, 0, 2)
    return Anchors(elements, parity, parts, len(basis.window))


def fibre_orbits(
    path: str, space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry | None = None
) -> tuple[IntArray, IntArray]:
    """The orbits of both fibres under a symmetry, by default the ambient one: (F,) and (F',)."""
    symmetry = symmetry or space_in.ambient
    return (
        _fibre_frames(path, space_in, symmetry)[0],
        _fibre_frames(path, space_out, symmetry)[0],
    )


def _fibre_frames(path: str, space: FeatureSpace, symmetry: Symmetry) -> tuple[IntArray, IntArray]:
    """The orbit of each fibre element, by its first element, and the k that move that one to it.

    (F,) and (F, m), k numbered as in the point group; repeated where fewer than m do.
    """
    lattice = space.lattice
    moved = []
    for matrix in symmetry.point_in(space.ambient.dim or lattice.dim):
        action = space.fibre_matrix(LatticeElement(matrix, (0,) * lattice.dim, lattice.shape))
        if not np.array_equal(action, np.rint(np.abs(action))):
            raise ValueError(
                f"{path}: anchors on the group need a fibre that {symmetry} permutes, and "
                f"{space.fibre} is not; take the regular or trivial fibre, or another path"
            )
        moved.append(action.argmax(0))
    images = np.array(moved)
    first = images.min(0)
    frames = [np.flatnonzero(images[:, o] == f) for f, o in enumerate(first)]
    longest = math.lcm(*map(len, frames))
    return first, np.stack([np.tile(k, longest // len(k)) for k in frames])


def new_omega(omega: float) -> nn.Parameter:
    """A lengthscale parameter."""
    if not np.isfinite(omega) or omega < 0:
        raise ValueError(f"the lengthscale omega must be finite and not negative, got {omega}")
    return nn.Parameter(torch.tensor(float(omega)))


def _point_group(path: str, space: FeatureSpace, symmetry: Symmetry) -> FloatArray:
    """The matrices of the point group, (|K|, d, d)."""
    if not symmetry.is_catalogue:
        raise ValueError(
            f"{path}: anchors on the group need a group of the catalogue, and {symmetry} is given "
            "by generators; place the anchors on the lattice"
        )
    return np.array(symmetry.point_in(space.ambient.dim or space.lattice.dim), dtype=np.float64)


def _grid(shape: Sequence[int]) -> FloatArray:
    every = list(itertools.product(*map(range, shape)))
    return np.array(every, dtype=np.float64).reshape(len(every), -1)


def _half(parity: IntArray, points: IntArray) -> IntArray:
    """⌈n / 2⌉ of the points, those of even parity first."""
    order = np.argsort(parity[points] % 2, kind="stable")
    half: IntArray = points[order[: -(-len(points) // 2)]]
    return half
