"""Networks without units: inputs lose their mean and scale, outputs get those of the targets.

Mean and standard deviation of inputs are kept in float64 and applied before the input is rounded to
the precision of the network, so that x · 10⁻⁹ and x + 10⁸ train like x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace
from groupella.nn._invariants import permutes_sites

# A smaller spread, relative to the mean, is what rounding makes of a constant in float64.
CONSTANT = 1e-13


def moments(parts: Iterable[Tensor], centre: bool = True) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each channel, (channels,), in float64.

    A channel that is constant has no scale: its standard deviation is given as 1.

    Parameters
    ----------
    parts
        The data, (n, channels, ...), in parts that are read once.
    centre
        Whether to measure the spread from the mean; otherwise from 0, and the mean is given as 0.

    References
    ----------
    Chan, Golub and LeVeque, "Algorithms for computing the sample variance", 1983.
    """
    count, mean, squares = 0, torch.zeros(0), torch.zeros(0)
    for part in parts:
        rows = part.detach().cpu().double().movedim(1, 0).flatten(1)
        n = rows.shape[1]
        if not count:
            mean = squares = rows.new_zeros(len(rows))
        if n and centre:
            own = rows.mean(1)
            own = own + (rows - own[:, None]).mean(1)
            gap, own_squares = own - mean, (rows - own[:, None]).square().sum(1)
            squares = squares + own_squares + gap.square() * (count * n / (count + n))
            mean = mean + gap * (n / (count + n))
        elif n:
            squares = squares + rows.square().sum(1)
        count += n
    std = (squares / max(count, 1)).sqrt()
    return mean, torch.where(std > CONSTANT * mean.abs(), std, torch.ones_like(std))


class _Units(nn.Module):
    """Mean and standard deviation in float64, which follow the network to another device only."""

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.calibrated = False
        self.register_buffer("mean", torch.zeros(channels, dtype=torch.float64))
        self.register_buffer("std", torch.zeros(channels, dtype=torch.float64))

    def _set(self, mean: Tensor, std: Tensor) -> None:
        if mean.shape != self.mean.shape:
            raise ValueError(f"expected data of {len(self.mean)} channels, got {len(mean)}")
        self.mean.copy_(mean)
        self.std.copy_(std)
        self.calibrated = True

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> _Units:
        kept = self.mean, self.std
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self.mean.is_meta:
            self.mean, self.std = (v.to(self.mean.device) for v in kept)
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Networks that were saved without are not calibrated."""
        for name in ("mean", "std"):
            state_dict.setdefault(prefix + name, torch.zeros_like(getattr(self, name)))
        super()._load_from_state_dict(state_dict, prefix, *rest)
        self.calibrated = bool((self.std > 0).all())


class Standardise(_Units):
    """(x − mean) / std per channel, in the precision of the network; x itself until calibrated.

    The first module of the networks in `groupella.networks`. `fit` calibrates it on its data; mean
    and standard deviation are saved with the network, which takes data in their own units.

    Parameters
    ----------
    space
        The inputs, with a trivial fibre. Where the ambient group does more to sites than permute
        them (a change of sign), only the scale is removed: a mean would break the symmetry.
    """

    like: Tensor

    def __init__(self, space: FeatureSpace) -> None:
        super().__init__(space.shape[0])
        self.space_in = self.space_out = space
        self.centre = permutes_sites(space)
        self.register_buffer("like", torch.empty(0), persistent=False)

    def calibrate(self, parts: Iterable[Tensor]) -> None:
        """Set mean and standard deviation to those of the data, given in parts (see `moments`)."""
        self._set(*moments(parts, self.centre))

    def forward(self, x: Tensor) -> Tensor:
        if not self.calibrated:
            return x
        mean, std = (v.view(-1, *[1] * (x.dim() - 2)) for v in (self.mean, self.std))
        return ((x.double() - mean) / std).to(self.like.dtype)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape}, centre={self.centre}, calibrated={self.calibrated}"


class InUnits(_Units):
    """std · f + mean: outputs f (batch, outputs) in the units of the targets; f until calibrated.

    The last module of the networks in `groupella.networks`. `fit` calibrates it on real targets.
    All outputs have one standard deviation, so that noise of one size stays so.

    Parameters
    ----------
    outputs
        The number of outputs.
    """

    def __init__(self, outputs: int) -> None:
        super().__init__(outputs)

    def calibrate(self, parts: Iterable[Tensor]) -> None:
        """Set mean and standard deviation to those of the targets (n, outputs), given in parts."""
        mean, std = moments(parts)
        self._set(mean, std.square().mean().sqrt().expand(len(std)))

    def forward(self, f: Tensor) -> Tensor:
        if not self.calibrated:
            return f
        return self.std.to(f) * f + self.mean.to(f)

    def extra_repr(self) -> str:
        return f"{len(self.mean)}, calibrated={self.calibrated}"
