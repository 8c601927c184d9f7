"""Sums of outer products, by one matrix product wherever the memory layout allows it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Gram(torch.autograd.Function):
    """zᵀz with the gradient z (D + Dᵀ): one product where autograd would take two and a sum."""

    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        ctx.save_for_backward(z)
        return z.mT @ z

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> Tensor:
        (z,) = ctx.saved_tensors
        product: Tensor = z @ (d + d.mT)
        return product


def gram(z: Tensor) -> Tensor:
    """zᵀz of (…, rows, D)."""
    product: Tensor = _Gram.apply(z)  # type: ignore[no-untyped-call]
    return product


def row_gram(rows: Tensor) -> Tensor:
    """Σ_r z_r z_rᵀ of rows (…, D): (D, D)."""
    return gram(rows.reshape(-1, rows.shape[-1]))


def block_gram(rows: Tensor) -> Tensor:
    """(N, B, S, D) → (B, D, D), the definition that all maps share."""
    n, b, s, d = rows.shape
    if b == 1:
        return row_gram(rows).unsqueeze(0)
    return gram(rows.transpose(0, 1).reshape(b, n * s, d))


def is_channels_last(x: Tensor) -> bool:
    """Whether x (N, C, *S) keeps its channels together in memory, sites and samples in order."""
    return x.movedim(1, -1).is_contiguous()


def channel_gram(x: Tensor, blocks: int = 1) -> Tensor:
    """x (N, blocks·C, *S) → Σ_{n,s} of the channels' outer products: (blocks, C, C)."""
    n, channels = x.shape[:2]
    if blocks == 1 and is_channels_last(x):
        return row_gram(x.movedim(1, -1)).unsqueeze(0)
    z = x.reshape(n, blocks, channels // blocks, -1)
    if z.shape[-1] == 1:
        return block_gram(z.mT)
    return gram(z.mT).sum(0)
