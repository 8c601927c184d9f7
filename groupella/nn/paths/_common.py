"""What paths share: checks of spaces and inputs, initial weights, and biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor, nn

from groupella.bases import Padding
from groupella.groups import FeatureSpace, Symmetry
from groupella.nn.shared_maps import BiasMap, SharedLinearMap, record

# The gain of a He ("Kaiming") layer followed by a ReLU.
GAIN = 2.0**0.5


def check_spaces(path: str, space_in: FeatureSpace, space_out: FeatureSpace) -> None:
    """Raise unless both spaces carry the same ambient symmetry."""
    for name, space in (("space_in", space_in), ("space_out", space_out)):
        if not isinstance(space, FeatureSpace):
            raise TypeError(
                f"{path}: {name} must be a FeatureSpace (see GroupSet.space), "
                f"got {type(space).__name__}"
            )
    if space_in.ambient.key != space_out.ambient.key:
        raise ValueError(
            f"{path}: the spaces carry different ambient symmetries, {space_in.ambient} and "
            f"{space_out.ambient}; make both from one GroupSet"
        )


def check_convolution(
    path: str,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    kernel_size: int | Sequence[int],
    symmetry: Symmetry | None = None,
) -> tuple[int, ...]:
    """The window of a convolution between two spaces of one lattice, after all checks."""
    check_spaces(path, space_in, space_out)
    if space_in.lattice != space_out.lattice:
        raise ValueError(
            f"{path} keeps the lattice, got {space_in.lattice.shape} to {space_out.lattice.shape}; "
            "a ResidualPathway with stride=2 pools after it"
        )
    if symmetry is not None and not (symmetry.is_catalogue and symmetry.translations):
        raise ValueError(
            f"{path}: {symmetry} does not contain the translations; use DenseBasis for it"
        )
    dim = space_in.lattice.dim
    window = (kernel_size,) * dim if isinstance(kernel_size, int) else tuple(kernel_size)
    if len(window) != dim or any(k < 1 or k % 2 == 0 for k in window):
        raise ValueError(
            f"{path}: kernel_size must be odd, one number or {dim} for this lattice, "
            f"got {kernel_size}; a window of even size has no centre to turn or reflect it about"
        )
    return window


def check_padding(path: str, padding: Padding) -> Padding:
    """The padding, or a ValueError."""
    if padding not in get_args(Padding):
        raise ValueError(f"{path}: padding must be 'circular' or 'zeros', got {padding!r}")
    return padding


def check_input(space: FeatureSpace, x: Tensor) -> None:
    """Raise unless `x` is a floating-point batch of the space."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a torch tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"expected a floating-point tensor, got {x.dtype}; call x.float()")
    space.check(x)


def new_bias(shape: int | Sequence[int], wanted: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(shape)) if wanted else None


def draw(weight: Tensor, std: float, *biases: Tensor | None) -> None:
    """Draw a weight from a normal distribution and set biases to zero."""
    nn.init.normal_(weight, std=std)
    for bias in biases:
        if bias is not None:
            nn.init.zeros_(bias)


def add_bias(path: Any, x: Tensor, y: Tensor) -> Tensor:
    """y (N, C·F, …) plus the path's bias, one number per channel or per channel and component."""
    if path.bias is None:
        return y
    spread = path.bias.repeat_interleave(y.shape[1] // len(path.bias))
    y = y + spread.view(-1, *[1] * (y.dim() - 2))
    record(path, "bias", x, y)
    return y


def maps(weight: SharedLinearMap, bias: Tensor | None) -> dict[str, SharedLinearMap]:
    """The maps of a path with one weight and a bias per channel."""
    found = {weight.weight: weight}
    return found if bias is None else {**found, "bias": BiasMap.of_channels("bias", len(bias))}
