"""How far a module is from being equivariant: f(g·x) against g·f(x), for elements g of a symmetry.

The error at g is ‖f(g·x) − g·f(x)‖∞ / ‖f(x)‖∞ over a batch of random inputs x, for every generator
and some random elements. f(x) is computed sample by sample, f(g·x) in batches that mix elements, so
that a module whose output for one sample depends on the other samples fails as well.

A strided module cannot follow a shift by less than its stride. With `up_to_translation` the outputs
may differ by one translation per sample (of the output torus, the fibre untouched).
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from groupella.groups import Element, FeatureSpace, LatticeElement, Symmetry, named_group

from ._fields import geometric, unwrapped
from ._translate import best_translation, translate

TOLERANCES = {
    torch.float64: 1e-12,
    torch.float32: 1e-5,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
_SAMPLES_AT_ONCE = 256


class ConstantOutputWarning(UserWarning):
    """The tested module's output does not depend on its input."""


@dataclass(frozen=True)
class ElementError:
    """The relative error at one group element, and the sample of the batch where it is largest."""

    symmetry: Symmetry
    element: Element
    is_generator: bool
    error: float
    sample: int

    @property
    def name(self) -> str:
        return f"{self.element.name} of {self.symmetry.name}"


@dataclass(frozen=True)
class EquivarianceError:
    """What `equivariance_error` found, element by element; `float(...)` gives the worst error."""

    errors: tuple[ElementError, ...]
    dtype: torch.dtype
    up_to_translation: bool

    @property
    def worst(self) -> ElementError:
        """The element with the largest error; NaN counts as the largest."""
        return max(self.errors, key=lambda e: math.inf if math.isnan(e.error) else e.error)

    def __float__(self) -> float:
        return self.worst.error

    def __str__(self) -> str:
        width = max(len(e.name) for e in self.errors)
        worst = self.worst
        return "\n".join(
            f"  {e.name:<{width}}  {'generator' if e.is_generator else 'random':<9}  {e.error:.1e}"
            f"{'  <- worst' if e is worst else ''}"
            for e in self.errors
        )


def equivariance_error(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    space_out: FeatureSpace | None,
    symmetry: Symmetry | str | Iterable[Symmetry | str],
    *,
    batch: int = 4,
    elements: int = 8,
    seed: int = 0,
    up_to_translation: bool = False,
    dtype: torch.dtype | None = None,
    inputs: Tensor | None = None,
    prepare: Callable[[Tensor], Any] | None = None,
) -> EquivarianceError:
    """The relative equivariance error of `module`, per generator and per random element.

    Parameters
    ----------
    module
        Any `nn.Module` or function of one tensor (batch, *space_in.shape). A module is copied and
        the copy put in evaluation mode: yours is not touched. Modules of escnn and e2cnn get their
        `GeometricTensor`.
    space_in, space_out
        The spaces of input and output. With `space_out=None` the output, of any shape, must be
        invariant.
    symmetry
        One symmetry or several (a `GroupSet`, say), also by name, each inside the ambient one of
        the spaces.
    batch, elements, seed
        The number of random inputs, of random elements in addition to the generators, and the seed.
    up_to_translation
        The output may differ by one translation per sample: for modules with pooling or a stride.
    dtype
        Convert the module to this dtype; the default is the module's own.
    inputs
        Use these inputs, (batch, *space_in.shape), rather than random ones.
    prepare
        Converts the tensor to the module's input, where that is not the tensor itself.

    Returns
    -------
    EquivarianceError
        The errors by element; `float(...)` gives the largest.

    Raises
    ------
    ValueError
        If an element has no counterpart on the output lattice, or if a shape does not fit.
    """
    members = as_symmetries(symmetry)
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is a torch dtype such as torch.float64, got {dtype!r}")
    if batch < 1 or elements < 0:
        raise ValueError(f"batch must be positive and elements ≥ 0, got {batch} and {elements}")
    dtype = dtype or dtype_of(module, inputs)
    if inputs is None:
        generator = torch.Generator().manual_seed(seed)
        inputs = torch.randn((batch, *space_in.shape), dtype=dtype, generator=generator)
    x = inputs.to(device_of(module), dtype)
    space_in.check(x)

    cases = _cases(space_in, members, elements, seed)
    images = [_image(g, space_in, space_out, up_to_translation) for _, g, _ in cases]
    align = up_to_translation and space_out is not None and space_out.lattice.dim > 0
    evaluate = evaluation_of(module, dtype, prepare)
    errors = []
    with torch.no_grad():
        y = torch.cat([_checked(evaluate(one), 1, space_out) for one in torch.split(x, 1)])
        _warn_if_constant(x, y)
        scale = _size(y)
        step = max(1, _SAMPLES_AT_ONCE // len(x))
        for start in range(0, len(cases), step):
            chunk = cases[start : start + step]
            moved = torch.cat([space_in.act(g, x) for _, g, _ in chunk])
            outputs = _checked(evaluate(moved), len(moved), space_out).reshape(-1, *y.shape)
            for (member, g, is_generator), image, got in zip(
                chunk, images[start : start + step], outputs, strict=True
            ):
                expected = y if space_out is None else space_out.act(image, y)
                if align:
                    expected = translate(expected, best_translation(got, expected))
                difference = (got - expected).abs().flatten(1).double().amax(1)
                sample = int(difference.nan_to_num(math.inf).argmax())
                error = _ratio(float(difference[sample]), max(scale, _size(got)))
                errors.append(ElementError(member, g, is_generator, error, sample))
    return EquivarianceError(tuple(errors), dtype, up_to_translation)


def output_shape(
    module: Callable[..., Any],
    space_in: FeatureSpace,
    prepare: Callable[[Tensor], Any] | None = None,
) -> tuple[int, ...]:
    """The shape of the output for one input of the space, without the batch axis."""
    dtype = dtype_of(module, None)
    x = torch.zeros(1, *space_in.shape, dtype=dtype, device=device_of(module))
    with torch.no_grad():
        return tuple(_checked(evaluation_of(module, dtype, prepare)(x), 1, None).shape[1:])


def _warn_if_constant(x: Tensor, y: Tensor) -> None:
    """Warn of a constant output, which is equivariant to everything and tests nothing."""
    if bool((x != x[:1]).any()) and bool((y == y[:1]).all()):
        what = "is zero" if not bool(y.any()) else "is the same"
        warnings.warn(
            f"the module's output {what} for {len(x)} different inputs, so that nothing was "
            "tested: dead units, weights at zero, or a wrong output?",
            ConstantOutputWarning,
            stacklevel=3,
        )


def as_symmetries(symmetry: object) -> tuple[Symmetry, ...]:
    """One symmetry or several, also by name, as a tuple."""
    given = (symmetry,) if isinstance(symmetry, Symmetry | str) else symmetry
    members = tuple(given) if isinstance(given, Iterable) else (given,)
    found = tuple(named_group(m) if isinstance(m, str) else m for m in members)
    for member in found:
        if not isinstance(member, Symmetry):
            raise TypeError(
                "symmetry is a Symmetry such as p4(), a name, or several (a GroupSet), got "
                f"{symmetry!r}"
            )
    return found


def _cases(
    space: FeatureSpace, members: tuple[Symmetry, ...], elements: int, seed: int
) -> list[tuple[Symmetry, Element, bool]]:
    cases: list[tuple[Symmetry, Element, bool]] = []
    for member in members:
        cases += [(member, g, True) for g in space.generators(member)]
        cases += [(member, g, False) for g in _random(space, member, elements, seed)]
    if not cases:
        names = ", ".join(member.name for member in members) or "an empty set of symmetries"
        raise ValueError(f"no element to try: {names} has no generators and elements={elements}")
    return cases


def _random(space: FeatureSpace, member: Symmetry, count: int, seed: int) -> list[Element]:
    """Random elements; not the identity, which every module passes, unless there is no other."""
    drawn = space.sample(member, count, seed)
    found = [g for g in drawn if not g.is_identity]
    others = [g for g in space.generators(member) if not g.is_identity]
    if not others:
        return drawn
    for again in range(1, 64):
        if len(found) >= count:
            break
        found += [g for g in space.sample(member, count, seed + again) if not g.is_identity]
    return found[:count]


def evaluation_of(
    module: Callable[..., Any], dtype: torch.dtype, prepare: Callable[[Tensor], Any] | None
) -> Callable[[Tensor], Any]:
    """The module as a function from a plain tensor to a plain tensor."""
    call = module
    if isinstance(module, nn.Module):
        call = copy.deepcopy(module).to(dtype=dtype).eval()
    wrap = prepare or geometric(call)

    def evaluate(x: Tensor) -> Any:
        return unwrapped(call(x if wrap is None else wrap(x)))

    return evaluate


def _image(
    g: Element, space_in: FeatureSpace, space_out: FeatureSpace | None, up_to_translation: bool
) -> Element:
    """g as it acts on the output: a shift by t is one by t·n_out/n_in where the lattices differ."""
    if space_out is None or space_out.lattice == space_in.lattice:
        return g
    sides_in, sides_out = space_in.lattice.shape, space_out.lattice.shape
    if not isinstance(g, LatticeElement):
        raise ValueError(
            f"{g.name} is defined on {space_in.lattice} alone and cannot act on {space_out.lattice}"
        )
    if not sides_out:
        return LatticeElement(g.point, (), ())
    if len(sides_in) != len(sides_out):
        raise ValueError(f"{space_in.lattice} and {space_out.lattice} differ in dimension")
    if up_to_translation:
        return LatticeElement(g.point, (0,) * len(sides_out), sides_out)
    scaled = [(t * m, n) for t, n, m in zip(g.shift, sides_in, sides_out, strict=True)]
    if any(tm % n for tm, n in scaled):
        raise ValueError(
            f"{g.name} of {space_in.lattice} has no counterpart on {space_out.lattice}: "
            "pass up_to_translation=True"
        )
    return LatticeElement(g.point, tuple(tm // n for tm, n in scaled), sides_out)


def _checked(y: Any, batch: int, space_out: FeatureSpace | None) -> Tensor:
    if not isinstance(y, Tensor):
        raise TypeError(
            f"the module returned {type(y).__name__}, not a tensor: pass a function that calls it "
            "and picks the tensor to test"
        )
    if space_out is not None and tuple(y.shape) != (batch, *space_out.shape):
        raise ValueError(
            f"the module returned shape {tuple(y.shape)}, the output space asks for "
            f"{(batch, *space_out.shape)}"
        )
    if y.ndim == 0 or len(y) != batch:
        raise ValueError(f"the module returned shape {tuple(y.shape)} for a batch of {batch}")
    return y


def dtype_of(module: Any, inputs: Tensor | None) -> torch.dtype:
    if isinstance(module, nn.Module):
        for parameter in module.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return torch.get_default_dtype() if inputs is None else inputs.dtype


def device_of(module: Any) -> torch.device:
    parameter = next(module.parameters(), None) if isinstance(module, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device


def _size(y: Tensor) -> float:
    return float(y.abs().double().max()) if y.numel() else 0.0


def _ratio(difference: float, scale: float) -> float:
    if difference == 0.0:
        return 0.0
    return difference / scale if scale != 0.0 else math.inf
