"""Counting parameters, ours and the paper's way."""

from __future__ import annotations

from torch import nn

_INSIDE_THE_BASIS = ("omega", "positions")


def count_parameters(module: nn.Module, *, weights_only: bool = False) -> int:
    """The number of entries of all parameters.

    `weights_only`: without lengthscales ω and anchor positions, which the paper does not count.
    """
    return sum(
        parameter.numel()
        for name, parameter in module.named_parameters()
        if not (weights_only and name.rpartition(".")[2].startswith(_INSIDE_THE_BASIS))
    )
