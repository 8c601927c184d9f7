"""Networks without units: inputs lose their mean and scale, outputs get those of the targets.

Mean and standard deviation of inputs are kept in float64 and applied before the input is rounded to
the precision of the network, so that x · 10⁻⁹ and x + 10⁸ train like x.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace
from groupella.nn._invariants import permutes_sites
from groupella.nn.tensors import summands

# A smaller spread, relative to the mean, is what rounding makes of a constant in float64.
CONSTANT = 1e-13


def moments(
    parts: Iterable[Tensor], centre: bool = True, constant: float = 1.0
) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each channel, (channels,), in float64.

    Parameters
    ----------
    parts
        The data, (n, channels, ...), in parts that are read once.
    centre
        Whether to measure the spread from the mean; otherwise from 0, and the mean is given as 0.
    constant
        Given as the standard deviation of a constant channel, which has no scale.

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
    return mean, torch.where(std > CONSTANT * mean.abs(), std, constant)


def common_scale(y: Iterable[Tensor]) -> tuple[Tensor, float]:
    """Return the mean of each target (K,), and one standard deviation for all that vary.

    The root mean square of those of the targets (n, K), in float64; 1 if none varies.
    """
    mean, std = moments(y, constant=0.0)
    return mean, float(std[std > 0].square().mean().sqrt()) if bool((std > 0).any()) else 1.0


class _Units(nn.Module):
    """Mean and standard deviation in float64, which follow the network to another device only."""

    mean: Tensor
    std: Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.calibrated = False
        self.register_buffer("mean", torch.zeros(*shape, dtype=torch.float64))
        self.register_buffer("std", torch.zeros(*shape, dtype=torch.float64))

    def _set(self, mean: Tensor, std: Tensor) -> None:
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

    The first module of the networks in `groupella.networks`, and of `with_units`. `fit` calibrates
    it on its data; mean and standard deviation are saved with the network, which takes data in
    their own units. A channel has one mean and one scale for all sites and its whole fibre, so that
    standardising commutes with the group.

    Parameters
    ----------
    space
        The inputs. Where the ambient group does more to sites and fibre than permute them (a change
        of sign, a rotation of vectors), only the scale is removed: a mean would break the symmetry.
        On a fibre that is a sum of tensors, every summand has a scale, and scalars a mean.
    """

    like: Tensor

    def __init__(self, space: FeatureSpace) -> None:
        super().__init__(space.shape[:1])
        self.space_in = self.space_out = space
        self.centre = space.fibre_permutes and permutes_sites(space)
        self.register_buffer("like", torch.empty(0), persistent=False)

    def calibrate(self, parts: Iterable[Tensor]) -> None:
        """Set mean and standard deviation to those of the data, given in parts (see `moments`)."""
        self._set(*_by_field(parts, self.space_in, self.centre))

    def forward(self, x: Tensor) -> Tensor:
        if not self.calibrated:
            return x
        mean, std = (v.view(-1, *[1] * (x.dim() - 2)) for v in (self.mean, self.std))
        return ((x.double() - mean) / std).to(self.like.dtype)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape}, centre={self.centre}, calibrated={self.calibrated}"


class InUnits(_Units):
    """std · f + mean: outputs f (batch, *outputs) in the units of the targets; f until calibrated.

    The last module of the networks in `groupella.networks`, and of `with_units`. `fit` calibrates
    it on real targets. All outputs have one standard deviation, so that noise of one size stays so.

    Parameters
    ----------
    outputs
        The number of outputs, or their shape.
    space
        Where the outputs are fields, flattened or not: their space. A channel then has one mean for
        all sites and its fibre, or none where the group does more than permute these. By default
        every output has a mean of its own, which is right for invariant outputs only.
    """

    def __init__(self, outputs: int | Sequence[int], space: FeatureSpace | None = None) -> None:
        super().__init__((outputs,) if isinstance(outputs, int) else outputs)
        self.space = space

    def calibrate(self, parts: Iterable[Tensor]) -> None:
        """Set mean and standard deviation to those of the targets (n, outputs), given in parts."""
        if self.space is None:
            mean, scale = common_scale(parts)
            std = torch.full_like(mean, scale)
        else:
            space = self.space
            centre = space.fibre_permutes and permutes_sites(space)
            fields = (part.reshape(-1, *space.shape) for part in parts)
            mean, std = (
                v.view(-1, *[1] * space.lattice.dim).expand(space.shape).flatten()
                for v in _by_field(fields, space, centre)
            )
            std = std.square().mean().sqrt().expand(len(std))
        self._set(mean.view_as(self.mean), std.view_as(self.std))

    def forward(self, f: Tensor) -> Tensor:
        if not self.calibrated:
            return f
        return self.std.to(f) * f + self.mean.to(f)

    def extra_repr(self) -> str:
        return f"{tuple(self.mean.shape)}, calibrated={self.calibrated}"


def _by_field(parts: Iterable[Tensor], space: FeatureSpace, centre: bool) -> tuple[Tensor, Tensor]:
    """The `moments` of each channel with its whole fibre, repeated for its components, (C·F,).

    Where the fibre is a sum of tensors, those of each summand.
    """
    if not space.ambient.is_catalogue and len(space.fibre.tensors.terms) > 1:
        return _by_summands(parts, space)
    fields = (part.reshape(part.shape[0], space.channels, -1) for part in parts)
    mean, std = (v.repeat_interleave(space.fibre_size) for v in moments(fields, centre))
    return mean, std


def _by_summands(parts: Iterable[Tensor], space: FeatureSpace) -> tuple[Tensor, Tensor]:
    """No mean but of scalars, and one root mean square for every summand of the fibre."""
    mean, std = moments(parts)
    number, scalar = summands(space)
    places = torch.from_numpy(number).expand(space.channels, -1)
    keep = torch.tensor(scalar)[places].flatten()
    squares = (std.square() + torch.where(keep, 0.0, mean.square())).view(space.channels, -1)
    total = torch.zeros(space.channels, len(scalar), dtype=squares.dtype)
    total.scatter_add_(1, places, squares)
    sizes = torch.bincount(torch.from_numpy(number))
    return torch.where(keep, mean, 0.0), (total / sizes).sqrt().gather(1, places).flatten()
