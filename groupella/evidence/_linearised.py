"""The best precision of each group when its weights may follow.

The fixed point δ = γ/‖w‖² lets the weights move only after the precision is set, so a path that
is not needed dies over many rounds. In the quadratic approximation of its own block, a group's
weights can be followed exactly. With H = QΛQᵀ, the negative gradient r = −∇(−log p(D | w)) and
b = Qᵀ(Hw + r), the MAP weights at precision δ are b/(λ + δ) in the eigenbasis, and the evidence as
a function of δ alone is

    E(δ) = ½ Σ_i [ b_i² / (λ_i + δ) − log(1 + λ_i/δ) ] + const,     E(∞) = const.

This finds the maximum over δ at once, even if it is at infinity (the data do not support the path)
or if the path is dead now but the gradient asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from groupella.curvature import KroneckerBlock

from ._prior import PriorGroup

GRID_PER_DECADE = 3


def coordinates(block: KroneckerBlock, v: Tensor) -> Tensor:
    """Return v in the eigenbasis of the block, flat, in the order of its eigenvalues; float64."""
    (_, q_in), (_, q_out) = block.factor_eigenvectors
    z = v.detach().double().reshape(-1)
    if block.order is not None:
        z = z[block.order]
    z = z.reshape(block.blocks, q_out.shape[-1], q_in.shape[-1])
    return (q_out.mT @ z @ q_in).reshape(-1)


def eigenvalues_in_order(block: KroneckerBlock) -> Tensor:
    """All eigenvalues, zeros included, in the order of `coordinates`."""
    (lam, _), (mu, _) = block.factor_eigenvectors
    values = block.scale * mu[:, :, None] * lam[:, None, :]
    return values.expand(block.blocks, -1, -1).reshape(-1)


def group_profile(
    group: PriorGroup,
    blocks: Mapping[str, KroneckerBlock],
    network: nn.Module,
    precision: float,
    gradient: Mapping[str, Tensor] | None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return (λ, b²/m) of a group, flat; r = δw, as at the MAP, if `gradient` is None."""
    parameters = dict(network.named_parameters())
    values, squares = [], []
    for name in group.parameters:
        if name not in blocks:
            continue
        lam = scale * eigenvalues_in_order(blocks[name])
        w = coordinates(blocks[name], parameters[name])
        if gradient is None:
            r = precision * w
        else:
            r = -scale * coordinates(blocks[name], gradient[name])
        values.append(lam)
        # The output of a path is the product of its m factors: each alone explains all of the fit.
        squares.append((lam * w + r).square() / len(group.parameters))
    empty = torch.zeros(0, dtype=torch.float64)
    return torch.cat([empty, *values]), torch.cat([empty, *squares])


def shrink_weights(
    group: PriorGroup,
    blocks: Mapping[str, KroneckerBlock],
    network: nn.Module,
    before: float,
    after: float,
    scale: float = 1.0,
) -> None:
    """Let weights follow a rise of their precision: w ← (H + δ′)⁻¹ (H + δ) w, in place.

    A fall is left to training: a local quadratic is no safe guide for growing weights.
    """
    if after <= before:
        return
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        for name in group.parameters:
            if name in blocks:
                w = parameters[name].double()
                solved = blocks[name].solve(w, after / scale) / scale
                parameters[name].copy_(w - (after - before) * solved)


def profile_evidence(values: Tensor, squares: Tensor, log_precision: float) -> float:
    """E(δ) − E(∞)."""
    delta = math.exp(log_precision)
    return 0.5 * float((squares / (values + delta) - torch.log1p(values / delta)).sum())


def best_log_precision(values: Tensor, squares: Tensor, bounds: tuple[float, float]) -> float:
    """Return the log δ of highest E within the bounds: a grid, then a search around its best point.

    Directions without curvature (λ = 0) have b = 0 up to rounding and are left out. The result is
    the upper bound if nothing beats δ → ∞.
    """
    low, high = math.log(bounds[0]), math.log(bounds[1])
    touched = values > 1e-12 * values.max() if values.numel() else values > 0
    values, squares = values[touched], squares[touched]
    if values.numel() == 0:
        return high
    count = max(3, math.ceil((high - low) / math.log(10) * GRID_PER_DECADE) + 1)
    grid = torch.linspace(low, high, count, dtype=torch.float64).tolist()
    scores = [profile_evidence(values, squares, x) for x in grid]
    best = max(range(count), key=scores.__getitem__)
    if scores[best] <= 0.0 or best == count - 1:
        return high
    found = minimize_scalar(
        lambda x: -profile_evidence(values, squares, x),
        bounds=(grid[max(best - 1, 0)], grid[best + 1]),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return float(found.x)
