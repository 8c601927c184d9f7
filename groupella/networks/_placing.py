"""Put the weights of an ordinary layer into the paths of a residual-pathway layer.

A weight W(c', c) is a vector of kernel entries (or of sites) for every pair of channels, and a path
with a basis B spans a subspace of these vectors. The strictest path takes its projection, the next
one that of the rest, and so on: with orthogonal increments the parts add up to W after one sweep,
with overlapping subspaces after several.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from groupella.nn.layer import ResidualPathway, rescale
from groupella.nn.paths import Conv, DenseBasis, FullyConnected, GroupConv

SWEEPS = 200
EXACT = 1e-9


@torch.no_grad()
def place(layer: ResidualPathway, weight: Tensor, bias: Tensor | None) -> dict[str, float]:
    """Set the paths so that they sum to `weight` and return each one's share of its squared norm.

    Paths that cannot hold any of it give zero. What no path can hold is the share of "".

    Parameters
    ----------
    layer
        A layer between trivial fibres, with a bias if there is one to place.
    weight
        (C', C, *kernel) for a convolution, (C', C, *sites) for a layer to an output without sites.
    bias
        (C',), or None.
    """
    flat = not layer.space_out.lattice.dim
    in_basis: Any = DenseBasis if flat else GroupConv
    whole: Any = FullyConnected if flat else Conv
    rest = weight.double().flatten(2)
    size = float(rest.square().sum())
    order = sorted(layer.paths, key=lambda name: -len(layer.subspaces[name]))
    found: dict[str, Tensor] = {}
    for _ in range(SWEEPS):
        for name in order:
            path: Any = layer.paths[name]
            if isinstance(path, whole):
                part, rest = rest, torch.zeros_like(rest)
            elif isinstance(path, in_basis):
                maps = path.basis.tensor(rest).flatten(1)
                part = rest @ maps.T
                rest = rest - part @ maps
            else:
                continue
            found[name] = found[name] + part if name in found else part
        if float(rest.norm()) <= EXACT * size**0.5:
            rest = torch.zeros_like(rest)
            break
    shares = {}
    for name in layer.paths:
        output = _output_weight(layer.paths[name])
        if name in found:
            output.copy_(found[name].reshape(output.shape))
            shares[name] = float(found[name].square().sum()) / max(size, 1e-300)
        else:
            output.zero_()
    left = float(rest.square().sum()) / max(size, 1e-300)
    if left > EXACT:
        shares[""] = left
    if bias is not None:
        rescale(layer, torch.ones_like(bias), bias)
    return shares


def _output_weight(path: nn.Module) -> Tensor:
    """The weight that comes last in a path: at zero, the path gives zero and still learns."""
    stages: Any = getattr(path, "stages", None)
    last: Any = path if stages is None else list(stages.values())[-1]
    weight: Tensor = last.theta1 if hasattr(last, "theta1") else last.weight
    return weight
