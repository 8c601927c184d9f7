"""Convolution kernels as matrices on the lattice, and back.

A kernel K(f', f, δ) acts as W((f', p), (f, q)) = Σ_{δ: p + δ = q} K(f', f, δ). The elementary
kernels give the rows of a sparse E with E Eᵀ = P·1, unless the window is wider than the lattice
and several δ fall on one q.
"""

from __future__ import annotations

from math import prod

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from groupella.bases import Basis, KernelBasis, Orbits
from groupella.groups import FeatureSpace

FloatArray = npt.NDArray[np.float64]
_TOLERANCE = 1e-8


class Embedding:
    """From kernels between two fibres on a window to maps (F'·P, F·P) of a lattice."""

    def __init__(
        self, space_in: FeatureSpace, space_out: FeatureSpace, window: tuple[int, ...]
    ) -> None:
        lattice = space_in.lattice.shape
        self.shape = (space_out.fibre_size, space_in.fibre_size, *window)
        self.maps = (space_out.fibre_size * prod(lattice), space_in.fibre_size * prod(lattice))
        self.elementary = _elementary(self.shape, lattice)
        self.gram = (self.elementary @ self.elementary.T).toarray()
        self.sites = prod(lattice)
        self.isometric = np.array_equal(self.gram, self.sites * np.eye(len(self.gram)))

    def embed(self, basis: KernelBasis) -> Basis:
        """The same subspace, as an orthonormal basis of maps."""
        rows = basis.matrix @ self.elementary
        form: Orbits | sp.csr_array | FloatArray
        if self.isometric and isinstance(basis.form, Orbits):
            form = self._orbits(basis.form)
        elif self.isometric:
            form = sp.csr_array(rows / self.sites**0.5)
        else:
            values, vectors = np.linalg.eigh((rows @ rows.T).toarray())
            kept = values > _TOLERANCE
            form = np.asarray((rows.T @ (vectors[:, kept] / np.sqrt(values[kept]))).T)
        return Basis(self.maps, form, "kernels", basis.strictness)

    def _orbits(self, orbits: Orbits) -> Orbits:
        """An orbit of kernel entries is one of matrix entries; those off the window are zero."""
        entry = np.repeat(np.arange(len(orbits.labels)), self.sites)
        labels = np.full(self.elementary.shape[1], -1, dtype=np.int32)
        labels[self.elementary.indices] = orbits.labels[entry]
        signs = np.ones(len(labels), dtype=np.int8)
        if orbits.signs is not None:
            signs[self.elementary.indices] = orbits.signs[entry]
        return Orbits(labels, signs, orbits.count)

    def kernels(self, basis: Basis) -> KernelBasis | None:
        """The kernels of these maps, or None when they are no convolutions on the window."""
        overlaps = basis.matrix @ self.elementary.T
        dense: FloatArray = overlaps.toarray() if sp.issparse(overlaps) else np.asarray(overlaps)
        found = dense @ np.linalg.pinv(self.gram, hermitian=True)
        explained = float(np.sum(found * dense))
        if abs(explained - basis.dim) > _TOLERANCE * max(1, basis.dim):
            return None
        if self.isometric:
            form = found * self.sites**0.5
        else:
            form = np.ascontiguousarray(np.linalg.qr(found.T)[0].T)
        return KernelBasis(self.shape, form, "kernels of maps", basis.strictness)


def _elementary(shape: tuple[int, ...], lattice: tuple[int, ...]) -> sp.csr_array:
    """(F'·F·window, F'·P·F·P): one row for every entry of a kernel."""
    f_out, f, *window = shape
    sites, offsets = prod(lattice), prod(window)
    place = np.indices(lattice).reshape(len(lattice), 1, sites)
    half = np.array([k // 2 for k in window]).reshape(-1, 1)
    step = (np.indices(window).reshape(len(window), offsets) - half)[:, :, None]
    target = np.ravel_multi_index(tuple(place + step), lattice, mode="wrap")
    a, b = np.meshgrid(np.arange(f_out), np.arange(f), indexing="ij")
    a, b = (v.reshape(-1, 1, 1) for v in (a, b))
    columns = (a * sites + np.arange(sites)) * (f * sites) + b * sites + target
    rows = np.repeat(np.arange(f_out * f * offsets), sites)
    size = (f_out * f * offsets, f_out * f * sites * sites)
    entries = np.ones(columns.size)
    return sp.csr_array(sp.coo_array((entries, (rows, columns.ravel())), shape=size))
