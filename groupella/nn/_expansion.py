"""From coefficients of a basis to maps, vec(W) = Bᵀu, differentiably.

By one matrix product with the basis: a dense one, or a sparse one where hardly any number differs
from zero, as in bases of tensor products. Where the basis is large and its maps have disjoint
supports (a group that permutes), by one gather instead: every entry of W is one coefficient times a
number.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from groupella.bases import Basis
from groupella.nn._constant import Constant

LARGEST_PRODUCT = 2**22
SMALLEST_SPARSE, SPARSE = 2**14, 0.05  # numbers in a basis, and the share that is not zero
ROUND_OFF = 1e-14


class Expansion:
    """The linear map u ↦ W of a basis, in the precision of u; the basis stays in float64."""

    def __init__(self, basis: Basis) -> None:
        self.basis = basis
        self.shape = (basis.dim, *basis.shape)
        self._labels: Tensor | None = None
        self._sparse: _Sparse | None = None
        gather = basis.gather if basis.dim * basis.size > LARGEST_PRODUCT else None
        if gather is None:
            numbers = basis.tensor.reshape(basis.dim, -1)
            # Round-off, of which float32 would make subnormal numbers: products ten times slower.
            self._numbers = Constant(np.where(np.abs(numbers) < ROUND_OFF, 0.0, numbers))
            filled = np.count_nonzero(self._numbers.array)
            if numbers.size >= SMALLEST_SPARSE and filled <= SPARSE * numbers.size:
                self._sparse = _Sparse(self._numbers)
        else:
            self._labels = torch.from_numpy(np.array(gather[0], dtype=np.int64).ravel())
            self._numbers = Constant(gather[1].ravel())

    def __call__(self, u: Tensor) -> Tensor:
        """(k, dim) to (k, entries of a map)."""
        if self._sparse is not None and _has_sparse_products(u):
            expanded: Tensor = _Product.apply(u, self._sparse)  # type: ignore[no-untyped-call]
            return expanded
        numbers = self._numbers.like(u)
        if self._labels is None:
            return u @ numbers
        columns = u.mT.index_select(0, self._labels.to(u.device)) * numbers.unsqueeze(1)
        return columns.mT

    def tensor(self, like: Tensor) -> Tensor:
        """The basis maps (dim, *shape), dense."""
        if self._labels is None:
            return self._numbers.like(like).view(self.shape)
        return Constant(self.basis.tensor).like(like)


def _has_sparse_products(u: Tensor) -> bool:
    """Whether torch has products of sparse matrices with `u`; its compiler has none."""
    is_known = u.device.type == "cpu" and u.dtype in (torch.float32, torch.float64)
    return is_known and not torch.compiler.is_compiling()


class _Sparse:
    """A sparse matrix or its transpose, compressed when first used in a precision.

    No tensor, which `torch.func` would unpack. `columns` is called where no transform of
    `torch.func` is active, as in `_Product.forward`: torch cannot compress inside of one.
    """

    def __init__(self, numbers: Constant, *, is_transposed: bool = False) -> None:
        self._numbers, self._is_transposed = numbers, is_transposed
        self._columns: dict[torch.dtype, Tensor] = {}

    @cached_property
    def mT(self) -> _Sparse:
        other = _Sparse(self._numbers, is_transposed=not self._is_transposed)
        other.__dict__["mT"] = self
        return other

    def columns(self, like: Tensor) -> Tensor:
        """The transpose of this matrix, in compressed rows and in the precision of `like`."""
        if like.dtype not in self._columns:
            dense = self._numbers.like(like)
            with warnings.catch_warnings():  # torch says once that sparse rows are in beta
                warnings.simplefilter("ignore", UserWarning)
                rows = (dense if self._is_transposed else dense.mT).to_sparse_csr()
            self._columns[like.dtype] = rows
        return self._columns[like.dtype]

    def __getstate__(self) -> dict[str, Any]:
        return {"_numbers": self._numbers, "_is_transposed": self._is_transposed, "_columns": {}}


class _Product(torch.autograd.Function):
    """u B for a sparse B (dim, entries)."""

    @staticmethod
    def forward(u: Tensor, sparse: _Sparse) -> Tensor:
        device = u.device.type
        if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):  # sparse products have no lower precision
                return _Product.forward(u, sparse)
        product: Tensor = sparse.columns(u) @ u.mT
        return product.mT

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.sparse = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return _Product.apply(g, ctx.sparse.mT), None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *rest: Any) -> Tensor:
        return _Product.apply(tangent, ctx.sparse)  # type: ignore[no-untyped-call,no-any-return]

    @staticmethod
    def vmap(info: Any, in_dims: Any, u: Tensor, sparse: _Sparse) -> tuple[Tensor, int]:
        u = u.movedim(in_dims[0], 0)
        flat = _Product.apply(u.reshape(-1, u.shape[-1]), sparse)  # type: ignore[no-untyped-call]
        return flat.view(*u.shape[:-1], -1), 0
