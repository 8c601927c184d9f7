"""Products with one matrix per block, laid out so that batched products need no copies inside.

`torch.bmm` copies its operands block by block unless every block is a whole matrix in memory.
`leading` brings operands into that form at once, and `block_major` does the same for the gradient
on its way back, where the next product and the grams of the curvature want it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def leading(x: Tensor) -> Tensor:
    """x (B, …) with the first axis slowest in memory.

    Where it is the fastest, this is the transposition of a matrix, for which torch has a fast copy.
    """
    last = x.permute(*range(1, x.dim()), 0)
    if x.stride(0) == 1 and last.is_contiguous():
        return last.reshape(-1, x.shape[0]).t().contiguous().view(x.shape)
    return x.contiguous()


def block_product(x: Tensor, blocks: Tensor) -> Tensor:
    """x (N, B, D), blocks (B, D, E) to (N, B, E): y[n, b] = x[n, b] · blocks[b]."""
    return torch.bmm(leading(x.transpose(0, 1)), blocks).transpose(0, 1)


def block_major(y: Tensor) -> Tensor:
    """y (N, B, E) itself; its gradient comes back with the blocks slowest in memory."""
    if torch.compiler.is_compiling():  # which chooses layouts itself
        return y
    same: Tensor = _BlockMajor.apply(y)  # type: ignore[no-untyped-call]
    return same


class _BlockMajor(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y.view_as(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return leading(g.transpose(0, 1)).transpose(0, 1)

    @staticmethod
    def jvp(ctx: Any, dy: Tensor) -> Tensor:
        return dy.view_as(dy)
