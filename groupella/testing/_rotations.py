"""Rotations by any angle, for ordinary CNNs: images are turned by interpolation.

A grid has no rotation by 30°. Here x is turned with bicubic interpolation, R_α x, and

    error(α) = ‖f(R_α x) − f(x)‖ / ‖f(x)‖            (invariant outputs)
    error(α) = ‖m (f(R_α x) − R_α f(x))‖ / ‖m f(x)‖   (images; m a disc, which no corner leaves)

over a batch of smooth random images that vanish towards the border. Interpolation itself costs
‖m (R_α⁻¹ R_α x − x)‖ / ‖m x‖, which is measured and reported: no tolerance below it makes sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from groupella.groups import FeatureSpace, Symmetry
from groupella.nn.turning import act_turn, radius, turned

from ._equivariance import device_of, dtype_of, evaluation_of

Output = Literal["invariant", "image"]
TOLERANCE = 0.1
ANGLES = (15.0, 30.0, 45.0, 60.0, 75.0, 90.0, 120.0, 180.0)


@dataclass(frozen=True)
class RotationError:
    """The relative error at each angle in degrees; `float(...)` gives the largest.

    `interpolation` is the largest error of turning an image there and back.
    """

    errors: dict[float, float]
    interpolation: float

    def __float__(self) -> float:
        return max(math.inf if math.isnan(e) else e for e in self.errors.values())

    def __str__(self) -> str:
        lines = [f"  {angle:6.1f}°  {error:.1e}" for angle, error in self.errors.items()]
        return "\n".join([*lines, f"  interpolation alone: {self.interpolation:.1e}"])


def rotation_error(
    module: Callable[..., Any],
    shape: Sequence[int],
    output: Output = "invariant",
    *,
    angles: Sequence[float] = ANGLES,
    batch: int = 4,
    seed: int = 0,
    inputs: Tensor | None = None,
    prepare: Callable[[Tensor], Any] | None = None,
) -> RotationError:
    """The relative error of a module of images under rotations by any angle.

    Parameters
    ----------
    module
        As in `equivariance_error`: a copy in evaluation mode is tested.
    shape
        (channels, height, width) of its input.
    output
        "invariant", or "image" for outputs (batch, channels, height, width) that turn with the
        input, each channel by itself.
    angles
        In degrees, counter-clockwise.
    batch, seed, inputs, prepare
        As in `equivariance_error`. Your own `inputs` should vanish towards the border.

    Returns
    -------
    RotationError
        The errors by angle, and that of interpolation alone.
    """
    if output not in get_args(Output):
        raise ValueError(f"output is 'invariant' or 'image', got {output!r}")
    if len(shape) != 3 or not angles:
        raise ValueError(f"shape is (channels, height, width), with some angles; got {shape}")
    dtype = dtype_of(module, inputs)
    x = _smooth(batch, tuple(shape), seed) if inputs is None else inputs
    x = x.to(device_of(module), dtype)
    evaluate = evaluation_of(module, dtype, prepare)
    errors, floors = {}, []
    with torch.no_grad():
        y = evaluate(x)
        if output == "image" and (not isinstance(y, Tensor) or y.ndim != 4):
            got = tuple(getattr(y, "shape", ()))
            raise ValueError(f"the output has shape {got}, not that of images: 'invariant'?")
        inside = _disc(x)
        for angle in angles:
            moved = turned(x, angle)
            there = evaluate(moved)
            floors.append(_relative(inside * (turned(moved, -angle) - x), inside * x))
            if output == "image":
                m = _disc(y)
                errors[angle] = _relative(m * (there - turned(y, angle)), m * y)
            else:
                errors[angle] = _relative(there - y, y)
    return RotationError(errors, max(floors))


def turning_error(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    space_out: FeatureSpace | None,
    symmetry: Symmetry,
    *,
    batch: int = 4,
    seed: int = 0,
    inputs: Tensor | None = None,
    prepare: Callable[[Tensor], Any] | None = None,
) -> RotationError:
    """The relative error of a module under the turns of an approximate symmetry.

    As `rotation_error`, for features whose fibre turns as well: ‖f(R_α x) − R_α f(x)‖ / ‖f(x)‖
    inside a disc, for all turns of a finite group and for eight angles where all belong to it.

    Parameters
    ----------
    module
        As in `equivariance_error`.
    space_in, space_out
        Features on images, whose fibre is trivial or the regular one of turns. None for an output,
        of any shape, that must be invariant.
    symmetry
        Such as ``image_turns(8)``, "c8" in the catalogue.
    batch, seed, inputs, prepare
        As in `equivariance_error`; random inputs are smooth and vanish towards the border.

    Raises
    ------
    ValueError
        If the symmetry is exact (use `equivariance_error`), or if a fibre does not turn.
    """
    if not symmetry.is_approximate:
        raise ValueError(f"{symmetry} is exact on pixels; use equivariance_error")
    n = symmetry.turns
    angles = [360 / n * k for k in range(1, n)] if n else list(ANGLES)
    dtype = dtype_of(module, inputs)
    shape = (space_in.shape[0], *space_in.lattice.shape)
    x = _smooth(batch, shape, seed) if inputs is None else inputs
    x = x.to(device_of(module), dtype)
    evaluate = evaluation_of(module, dtype, prepare)
    errors, floors = {}, []
    with torch.no_grad():
        y = evaluate(x)
        for angle in angles:
            moved = act_turn(space_in, angle, x)
            back = act_turn(space_in, -angle, moved)
            floors.append(_relative(_disc(x) * (back - x), _disc(x) * x))
            there = evaluate(moved)
            if space_out is None or not space_out.lattice.dim:
                expected = y if space_out is None else act_turn(space_out, angle, y)
                errors[angle] = _relative(there - expected, y)
            else:
                m = _disc(y)
                errors[angle] = _relative(m * (there - act_turn(space_out, angle, y)), m * y)
    return RotationError(errors, max(floors))


def assert_rotation_equivariant(
    module: Callable[..., Any],
    shape: Sequence[int],
    output: Output = "invariant",
    *,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> None:
    """Raise an AssertionError with the error of each angle unless it is within the tolerance.

    Parameters
    ----------
    module, shape, output, options
        As in `rotation_error`.
    tolerance
        The largest relative error allowed, 0.1 by default. Interpolation is not exact: on the
        images that are drawn here it costs about 0.03, at any size from 16×16.
    """
    __tracebackhide__ = True
    found = rotation_error(module, shape, output, **options)
    if float(found) <= tolerance:
        return
    wanted = "invariant" if output == "invariant" else "equivariant"
    hint = ""
    if found.interpolation > 0.5 * tolerance:
        hint = "\nInterpolation alone takes most of the tolerance: allow more, or smoother inputs."
    if output == "invariant" and _is_image(module, shape, **options):
        hint += "\nThe output is an image, which turns with the input: give output='image'."
    raise AssertionError(
        f"{type(module).__name__} is not {wanted} under rotations: relative error "
        f"{float(found):.1e}, allowed {tolerance:.0e}\n{found}{hint}"
    )


def _is_image(module: Callable[..., Any], shape: Sequence[int], **options: Any) -> bool:
    """Whether the module passes, or at least runs, as one from images to images."""
    try:
        rotation_error(module, shape, "image", **options)
    except (ValueError, RuntimeError):
        return False
    return True


def _smooth(batch: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Random images without fine detail that vanish towards the border."""
    _, h, w = shape
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch, *shape, generator=generator, dtype=torch.float64)
    fy, fx = torch.fft.fftfreq(h).double(), torch.fft.rfftfreq(w).double()
    low = torch.exp(-0.5 * ((fy[:, None].square() + fx.square()) / 0.08**2))
    image: Tensor = torch.fft.irfft2(torch.fft.rfft2(noise) * low, s=(h, w))
    image = image / image.std((2, 3), keepdim=True)
    return image * torch.exp(-8.0 * (radius(h, w) / (min(h, w) / 2)) ** 4)


def _disc(x: Tensor) -> Tensor:
    h, w = x.shape[2:]
    return (radius(h, w) < 0.35 * min(h, w)).to(x)


def _relative(difference: Tensor, of: Tensor) -> float:
    scale = float(of.double().norm())
    size = float(difference.double().norm())
    return 0.0 if size == 0.0 else size / scale if scale else math.inf
