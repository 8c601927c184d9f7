"""An orthonormal basis of a space of linear maps, kept in the form in which it was found.

Orbits (labels and signs) for representations that permute, dense or sparse rows otherwise. The
rows of `matrix` are the basis maps, flattened: vec(W) = Bᵀu for coefficients u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ._arrays import FloatArray, LabelArray
from ._orbits import Orbits, orbit_matrix

Form: TypeAlias = "Orbits | FloatArray | sp.csr_array"


@dataclass(frozen=True, eq=False)
class Basis:
    """A basis of maps of one shape; `tensor` gives it dense, `matrix` sparse.

    Parameters
    ----------
    shape
        The shape of one map: (V_out, V_in) for dense maps.
    form
        Orbits, or orthonormal rows (dim, size of one map).
    method
        How it was found.
    strictness
        The order of the point group it obeys; decides which of several equal subspaces gives the
        name.
    """

    shape: tuple[int, ...]
    form: Form
    method: str = "given"
    strictness: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.form, Orbits):
            given: tuple[int, ...] = (self.form.count, len(self.form.labels))
        else:
            given = self.form.shape
        if len(given) != 2 or given[1] != self.size:
            raise ValueError(
                f"a basis of maps of shape {self.shape} has rows of length {self.size}, "
                f"got an array of shape {given}"
            )
        for array in _arrays(self.form):
            array.flags.writeable = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, shape={self.shape}, method={self.method!r})"

    def __len__(self) -> int:
        return self.dim

    def __deepcopy__(self, memo: object) -> Basis:
        """Itself: nothing in it can change, and copies of a network should share it."""
        return self

    @property
    def size(self) -> int:
        """Number of entries of one map."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dim(self) -> int:
        return self.form.count if isinstance(self.form, Orbits) else int(self.form.shape[0])

    @cached_property
    def matrix(self) -> sp.csr_array:
        """Orthonormal rows (dim, size), sparse."""
        if isinstance(self.form, Orbits):
            return orbit_matrix(self.form, self.size)
        return sp.csr_array(self.form)

    @property
    def _rows(self) -> sp.csr_array | FloatArray:
        return self.form if isinstance(self.form, np.ndarray) else self.matrix

    @cached_property
    def tensor(self) -> FloatArray:
        """The basis maps (dim, *shape), dense float64, read-only."""
        dense = self.form if isinstance(self.form, np.ndarray) else self.matrix.toarray()
        tensor: FloatArray = dense.reshape(self.dim, *self.shape)
        tensor.flags.writeable = False
        return tensor

    @cached_property
    def gather(self) -> tuple[LabelArray, FloatArray] | None:
        """(labels, values) with W = u[labels] · values when every entry of a map takes part in at
        most one basis vector (value 0 where in none), else None. Both have the shape of a map."""
        if not isinstance(self.form, Orbits):
            return None
        labels = self.form.labels
        alive = labels >= 0
        lengths = np.bincount(labels[alive], minlength=self.dim)
        values = np.zeros(self.size)
        values[alive] = 1 / np.sqrt(lengths[labels[alive]])
        if self.form.signs is not None:
            values *= self.form.signs
        return np.maximum(labels, 0).reshape(self.shape), values.reshape(self.shape)

    def coefficients(self, maps: npt.ArrayLike) -> FloatArray:
        """(…, *shape) → (…, dim): u = B vec(W), the closest map's coefficients."""
        given = np.asarray(maps, dtype=np.float64)
        lead = given.shape[: given.ndim - len(self.shape)]
        if given.shape[len(lead) :] != self.shape:
            raise ValueError(f"maps must have shape (…, {self.shape}), got {given.shape}")
        found: FloatArray = (self._rows @ given.reshape(math.prod(lead), self.size).T).T
        return found.reshape(*lead, self.dim)

    def expand(self, coefficients: npt.ArrayLike) -> FloatArray:
        """(…, dim) → (…, *shape): vec(W) = Bᵀu."""
        given = np.asarray(coefficients, dtype=np.float64)
        if given.ndim == 0 or given.shape[-1] != self.dim:
            raise ValueError(f"coefficients must have shape (…, {self.dim}), got {given.shape}")
        maps: FloatArray = (self._rows.T @ given.reshape(math.prod(given.shape[:-1]), self.dim).T).T
        return maps.reshape(*given.shape[:-1], *self.shape)

    def project(self, maps: npt.ArrayLike) -> FloatArray:
        """The closest map in the span."""
        return self.expand(self.coefficients(maps))


class KernelBasis(Basis):
    """A basis of convolution kernels; shape (fibre_out, fibre_in, *window), cross-correlation.

    y(p) = Σ_δ W(δ) x(p + δ), window index i denoting the offset δ = i − (k − 1)/2.
    """

    @property
    def window(self) -> tuple[int, ...]:
        return self.shape[2:]


def _arrays(form: Form) -> list[npt.NDArray[np.generic]]:
    if isinstance(form, Orbits):
        return [form.labels] if form.signs is None else [form.labels, form.signs]
    if isinstance(form, np.ndarray):
        return [form]
    return [form.data, form.indices, form.indptr]
