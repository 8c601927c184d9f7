"""What every path checks of its spaces when it is made, and of its input when it is called."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from groupella.groups import FeatureSpace, Symmetry

# The gain of a He ("Kaiming") layer followed by a ReLU.
GAIN = 2.0**0.5


def check_spaces(path: str, space_in: FeatureSpace, space_out: FeatureSpace) -> None:
    """Both spaces carry the same ambient symmetry."""
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


def check_same_lattice(path: str, space_in: FeatureSpace, space_out: FeatureSpace) -> None:
    """A convolution stays on its lattice; a layer pools after it."""
    if space_in.lattice != space_out.lattice:
        raise ValueError(
            f"{path} keeps the lattice, got {space_in.lattice.shape} to {space_out.lattice.shape}; "
            "a ResidualPathway with stride=2 pools after it"
        )


def check_convolves(path: str, symmetry: Symmetry) -> None:
    """A group convolution contains all translations."""
    if not symmetry.is_catalogue or not symmetry.translations:
        raise ValueError(
            f"{path}: {symmetry} does not contain the translations; use DenseBasis for it"
        )


def check_input(space: FeatureSpace, x: Tensor) -> None:
    """`x` is a floating-point batch of the space."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a torch tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"expected a floating-point tensor, got {x.dtype}; call x.float()")
    space.check(x)


def kernel_shape(path: str, size: int | Sequence[int], dim: int) -> tuple[int, ...]:
    """A window of odd sides, one for each axis of the lattice."""
    shape = (size,) * dim if isinstance(size, int) else tuple(size)
    if len(shape) != dim or any(k < 1 or k % 2 == 0 for k in shape):
        raise ValueError(
            f"{path}: kernel_size must be odd, one number or {dim} for this lattice, got {size}"
        )
    return shape
