"""Transformers layer by layer: torch's fused fast path calls none of the layers in an encoder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Let `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` call the layers in them.

    In evaluation mode torch may compute them in one fused kernel, which no hook sees and which has
    no rule for `torch.func.vmap`.
    """
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
