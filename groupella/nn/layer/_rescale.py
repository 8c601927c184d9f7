"""Multiply the output channels of a layer by factors, in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._residual import ResidualPathway


@torch.no_grad()
def rescale(layer: ResidualPathway, factor: Tensor, shift: Tensor) -> None:
    """Change the weights so that output channel c becomes factor[c] · y[c] + shift[c].

    Every path is linear in weights whose first axis runs over output channels, slowest, then over
    what else the output has (fibre or sites).

    Parameters
    ----------
    layer
        A layer with a bias of its own.
    factor, shift
        One number for each output channel.

    Raises
    ------
    ValueError
        If the layer has no bias, or biases that its channels share (`paper_biases`), or a stride
        and factors that differ: they would change which phase is the largest.
    """
    if layer.bias is None:
        raise ValueError("rescale needs a layer with a bias of its own (bias=True)")
    if layer.pool is not None and not bool((factor == factor[0]).all()):
        raise ValueError(
            "rescale needs a layer with stride 1, or equal factors: others change the choice of "
            "phase"
        )
    if any(getattr(path, "point_bias", None) is not None for path in layer.paths.values()):
        raise ValueError("a bias that channels share (paper_biases of F-FC) cannot be rescaled")
    vectors = layer._vectors.like(shift).double().reshape(layer._vectors.shape[0], -1)
    ones = torch.ones(vectors.shape[1], 1, dtype=torch.float64)
    constant = torch.linalg.lstsq(vectors.T, ones).solution[:, 0]
    if not torch.allclose(constant @ vectors, ones[:, 0]):
        raise ValueError("constants are not invariant on this fibre, so no shift can be folded")
    for path in layer.paths.values():
        _rescale_path(path, factor)
    for offset in layer.offsets.values():
        offset.offset.mul_(factor[:, None])  # type: ignore[operator]
    layer.bias.mul_(factor[:, None]).add_(shift[:, None] * constant.to(shift))


def _rescale_path(path: Any, factor: Tensor) -> None:
    last = list(path.stages.values())[-1] if hasattr(path, "stages") else path
    first = (last.theta1,) if hasattr(last, "theta1") else getattr(last, "weights", (last.weight,))
    for tensor in (*first, getattr(last, "bias", None)):
        if tensor is not None:
            spread = factor.repeat_interleave(tensor.shape[0] // len(factor))
            tensor.mul_(spread.view(-1, *[1] * (tensor.dim() - 1)))
