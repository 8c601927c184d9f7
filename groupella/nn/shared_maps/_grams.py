"""Sums of outer products, by one matrix product wherever the memory layout allows it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from groupella.nn._layout import leading

_PIECE = 256


class _Gram(torch.autograd.Function):
    """zᵀz with the gradient z (D + Dᵀ): one product where autograd would take two and a sum."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        large = z.ndim == 2 and z.shape[0] >= z.shape[1] >= 2 * _PIECE
        return _upper_and_mirrored(z) if large else z.mT @ z

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        product: Tensor = z @ (d + d.mT)
        return product


def _upper_and_mirrored(z: Tensor) -> Tensor:
    """zᵀz, computing only the entries on and above the diagonal, a few columns at a time."""
    d = z.shape[1]
    out = z.new_empty(d, d)
    for start in range(0, d, _PIECE):
        end = min(start + _PIECE, d)
        piece = z[:, start:end].mT @ z[:, start:]
        out[start:end, start:] = piece
        out[end:, start:end] = piece[:, end - start :].mT
    return out


def gram(z: Tensor) -> Tensor:
    """zᵀz of (…, rows, D)."""
    product: Tensor = _Gram.apply(z)  # type: ignore[no-untyped-call]
    return product


def row_gram(rows: Tensor) -> Tensor:
    """Σ_r z_r z_rᵀ of rows (…, D): (D, D). The order of rows does not matter."""
    return gram(_as_matrix(rows))


def block_gram(rows: Tensor) -> Tensor:
    """(N, B, S, D) → (B, D, D), the definition that all maps share."""
    if rows.shape[1] == 1:
        return row_gram(rows).unsqueeze(0)
    return gram(_block_rows(rows))


def add_block_gram(total: Tensor, rows: Tensor) -> None:
    """total (B, D, D) += the gram of rows (N, B, S, D), in place and without a graph."""
    if rows.shape[1] == 1:
        total += block_gram(rows)
    else:
        z = _block_rows(rows)
        total.baddbmm_(z.mT, z)


def _block_rows(rows: Tensor) -> Tensor:
    """(N, B, S, D) → (B, N·S, D), as whole matrices in memory."""
    n, b, s, d = rows.shape
    if n > 1 and d > 1 and rows.stride(3) > max(rows.stride(0), rows.stride(2)):
        return leading(rows.permute(1, 3, 0, 2)).reshape(b, d, n * s).mT
    return leading(rows.transpose(0, 1)).reshape(b, n * s, d)


def channel_gram(x: Tensor, blocks: int = 1) -> Tensor:
    """x (N, blocks·C, *S) → Σ_{n,s} of the channels' outer products: (blocks, C, C)."""
    n, channels = x.shape[:2]
    z = x.reshape(n, blocks, channels // blocks, -1).mT
    if blocks == 1 and (z.shape[2] == 1 or _matrix_order(z) is not None):
        return row_gram(z).unsqueeze(0)
    if z.shape[2] == 1:
        return block_gram(z)
    return gram(z).sum(0)


def _as_matrix(rows: Tensor) -> Tensor:
    """(rows, D) of (…, D), with the rows in whatever order needs no copy, if there is one."""
    order = _matrix_order(rows)
    if order is None:
        return rows.reshape(-1, rows.shape[-1])
    axis = order.index(rows.ndim - 1)
    flat = rows.permute(order)
    if axis == rows.ndim - 1:
        return flat.reshape(-1, rows.shape[-1])
    return flat.reshape(rows.shape[-1], -1).mT


def _matrix_order(rows: Tensor) -> list[int] | None:
    """The order of axes in memory, if features are the slowest or the fastest and no gaps occur."""
    order = sorted(
        range(rows.ndim), key=lambda i: (rows.stride(i), rows.shape[i] != 1), reverse=True
    )
    features = rows.ndim - 1
    if order[0] != features and order[-1] != features:
        return None
    return order if rows.permute(order).is_contiguous() else None
