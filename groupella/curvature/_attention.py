"""`nn.MultiheadAttention` as linear maps: its projections, and a product without parameters.

In self-attention one matrix (3E, E) takes every token to its query, key and value: one shared
linear map with as many positions as tokens. In cross-attention that matrix has different inputs in
its three parts; its block is then exact for every row, or the diagonal where it is large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.nn.shared_maps import BiasMap, LinearMap, SharedLinearMap, exact_blocks

Record = Callable[[nn.Module, SharedLinearMap, Tensor, Tensor], None]


def attention_forward(module: nn.MultiheadAttention, record: Record) -> Callable[..., Any]:
    """The forward pass of the module, which reports its maps to `record`."""

    def forward(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.ndim != 3:
            raise ValueError(
                "Curvature needs a batch axis: MultiheadAttention got a query of shape "
                f"{tuple(query.shape)}."
            )
        same = query is key and key is value
        inputs = [t if module.batch_first else t.transpose(0, 1) for t in (query, key, value)]
        q, k, v = (_shared if same else _apart)(module, inputs, record)
        mask = _mask(module, q, k, attn_mask, key_padding_mask)
        k, v, mask = _extended(module, k, v, mask, record)
        q, k, v = (_heads(t, module.num_heads) for t in (q, k, v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        y = (weights @ v).transpose(1, 2).flatten(2)
        y = module.out_proj(y)
        y = y if module.batch_first else y.transpose(0, 1)
        if not need_weights:
            return y, None
        return y, weights.mean(1) if average_attn_weights else weights

    return forward


def _shared(module: nn.MultiheadAttention, inputs: list[Tensor], record: Record) -> list[Tensor]:
    """Query, key and value of the same tokens."""
    if module.in_proj_weight is None:
        return _apart(module, inputs, record)
    x, bias = inputs[0], module.in_proj_bias
    y = F.linear(x, module.in_proj_weight, bias)
    d_out, d_in = module.in_proj_weight.shape
    record(module, LinearMap("in_proj_weight", d_in, d_out, x.shape[1]), x, y)
    if bias is not None:
        record(module, BiasMap.of_features("in_proj_bias", d_out), x, y)
    return list(y.chunk(3, dim=2))


def _apart(module: nn.MultiheadAttention, inputs: list[Tensor], record: Record) -> list[Tensor]:
    """Query, key and value of different tokens, one after the other along the axis of tokens."""
    packed, bias = module.in_proj_weight, module.in_proj_bias
    lengths = [x.shape[1] for x in inputs]
    if packed is None:
        found = []
        for name, x in zip(("q", "k", "v"), inputs, strict=True):
            weight = getattr(module, f"{name}_proj_weight")
            z = F.linear(x, weight)
            d_out, d_in = weight.shape
            record(module, LinearMap(f"{name}_proj_weight", d_in, d_out, x.shape[1]), x, z)
            found.append(z)
    else:
        found = [F.linear(x, w) for x, w in zip(inputs, packed.chunk(3), strict=True)]
    y = torch.cat(found, 1)
    if bias is not None:
        y = y + torch.cat([b.expand(n, -1) for b, n in zip(bias.chunk(3), lengths, strict=True)])

    def of_weight(g: Tensor) -> Tensor:
        parts = zip(torch.split(g, lengths, 1), inputs, strict=True)
        return torch.cat([z.mT @ x for z, x in parts], 1).flatten(1)

    def of_bias(g: Tensor) -> Tensor:
        return torch.cat([z.sum(1) for z in torch.split(g, lengths, 1)], 1)

    if packed is not None:
        blocks = exact_blocks(packed.shape)
        record(module, BiasMap("in_proj_weight", of_weight, blocks=blocks), inputs[0], y)
    if bias is not None:
        record(module, BiasMap("in_proj_bias", of_bias), inputs[0], y)
    return list(torch.split(y, lengths, 1))


def _extended(
    module: nn.MultiheadAttention, k: Tensor, v: Tensor, mask: Tensor | None, record: Record
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Keys and values with what the module appends to them."""
    n, more = len(k), 0
    if module.bias_k is not None and module.bias_v is not None:
        k = torch.cat([k, module.bias_k.expand(n, 1, -1)], 1)
        v = torch.cat([v, module.bias_v.expand(n, 1, -1)], 1)
        record(module, BiasMap("bias_k", lambda g: g[:, -1]), k, k)
        record(module, BiasMap("bias_v", lambda g: g[:, -1]), v, v)
        more += 1
    if module.add_zero_attn:
        k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
        more += 1
    return k, v, mask if mask is None else F.pad(mask, (0, more))


def _mask(
    module: nn.MultiheadAttention,
    q: Tensor,
    k: Tensor,
    attention: Tensor | None,
    padding: Tensor | None,
) -> Tensor | None:
    """What to add to the scores (N, heads, queries, keys), or None."""
    total: Tensor | None = None
    if attention is not None:
        total = _additive(attention, q)
        if total.ndim == 3:
            total = total.reshape(len(q), module.num_heads, *total.shape[1:])
    if padding is not None:
        hidden = _additive(padding, k)[:, None, None, :]
        total = hidden if total is None else total + hidden
    return total


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return like.new_zeros(mask.shape).masked_fill(mask, float("-inf"))
    return mask.to(like)


def _heads(x: Tensor, heads: int) -> Tensor:
    """(N, L, E) → (N, heads, L, E / heads)."""
    n, length, _ = x.shape
    return x.reshape(n, length, heads, -1).transpose(1, 2)
