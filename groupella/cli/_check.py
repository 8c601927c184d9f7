"""``groupella check``: is your own model equivariant?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from groupella.runs.spelling import ArgumentError, call, complete_groups, from_file, group_set

from .options import AsJson

if TYPE_CHECKING:
    from groupella.testing import EquivarianceError

NOT_FINITE = "because the model's output is not finite"


def check(
    model: Annotated[
        str,
        typer.Argument(
            help="file.py:NAME of a module, or of a function that makes one. This runs file.py."
        ),
    ],
    groups: Annotated[
        str,
        typer.Option(
            help="Names, or my_groups.py:GROUPS, which runs that file.",
            autocompletion=complete_groups,
        ),
    ] = "z2,p4",
    size: Annotated[
        str, typer.Option(help="Side length of the images, or sides such as 32x48.")
    ] = "32",
    channels: Annotated[
        int | None,
        typer.Option(min=1, help="Input channels (default: those of the first layer, or 3)."),
    ] = None,
    out: Annotated[
        int | None, typer.Option(min=1, help="Output channels, if the output is an image.")
    ] = None,
    pools: Annotated[
        bool, typer.Option("--pools", help="Allow a shift of the output (stride or pooling).")
    ] = False,
    tolerance: Annotated[float, typer.Option(help="Largest relative error allowed.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Random seed for inputs and group elements.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Measure how far a model is from invariance or equivariance to some groups.

    The model is a module, or a function without arguments that makes one. It must take images
    (batch, channels, *size). Without --out its output should not change at all; with --out CHANNELS
    the output is an image and should move with the input.

    Examples:

      groupella check my_model.py:make --groups p4

      groupella check my_model.py:net --groups z2,p4m --size 64 --tolerance 1e-4

    The exit code is 1 if an error is above the tolerance, and 2 if the arguments are wrong or the
    error cannot be measured because the model fails or its output is not finite.
    """
    from groupella.groups import on_values, value_space
    from groupella.testing import equivariance_error, likely_causes

    try:
        chosen = group_set(groups, free=False)
        checked = [member for member in chosen if not member.is_trivial]
        if not checked:
            raise ArgumentError(f"--groups {groups}: every model obeys the trivial group")
        if not (math.isfinite(tolerance) and tolerance >= 0):
            raise ArgumentError(f"--tolerance must be at least 0, got {tolerance}")
        sides = _sides(size)
        module: Any = _module(from_file(model), model)
        takes = _channels_of(module)
        channels = channels or takes or 3
        lattice = sides if len(sides) > 1 else sides * (chosen.ambient.dim or 2)
        acting = on_values(chosen, lattice, channels)
        space_in, space_out = _spaces(module, value_space(acting, lattice, channels), out, model)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from error
    results: dict[str, EquivarianceError] = {}
    for member in (m for m in acting if not m.is_trivial):
        try:
            results[member.name] = equivariance_error(
                module, space_in, space_out, member, seed=seed, up_to_translation=pools
            )
        except (Exception, SystemExit) as problem:  # whatever the user's code raises
            reason = _in_a_line(problem).replace("pass up_to_translation=True", "give --pools")
            if takes not in (None, channels):
                reason += f". Its first layer takes {takes} channels: give --channels {takes}"
            typer.echo(f"{model} cannot be checked under {member.name}: {reason}", err=True)
            raise typer.Exit(2) from problem
    measured = all(math.isfinite(e) for e in results.values())
    right = all(float(e) <= tolerance for e in results.values()) if measured else None
    options: dict[str, Any] = {"seed": seed, "up_to_translation": pools}
    hints = {
        name: likely_causes(module, space_in, space_out, acting[name], tolerance, **options)
        for name, e in results.items()
        if math.isfinite(e) and float(e) > tolerance
    }
    if as_json:
        errors = {name: _as_dict(e, hints.get(name, ())) for name, e in results.items()}
        typer.echo(json.dumps({"errors": errors, "tolerance": tolerance, "right": right}))
    else:
        for name, e in results.items():
            wanted = "invariant" if out is None else "equivariant"
            if math.isfinite(e):
                word = "ok" if float(e) <= tolerance else "NOT"
                typer.echo(f"{word:>4}  {wanted} under {name}: relative error {float(e):.1e}")
            else:
                typer.echo(f"   ?  {wanted} under {name}: cannot be measured, {NOT_FINITE}")
            typer.echo(str(e))
            for hint in hints.get(name, ()):
                typer.echo(f"hint: {hint}")
    if right is None:
        raise typer.Exit(2)
    if not right:
        raise typer.Exit(1)


def _as_dict(error: EquivarianceError, hints: Sequence[str]) -> dict[str, Any]:
    """For JSON, which has no NaN and no infinity."""
    worst = error.worst.element.name
    if math.isfinite(error):
        return {"error": float(error), "worst": worst, "hints": list(hints)}
    return {"error": None, "worst": worst, "reason": f"cannot be measured, {NOT_FINITE}"}


def _channels_of(module: object) -> int | None:
    """The number of channels that a module of escnn, or its first convolution, takes."""
    from torch import nn

    from groupella.testing import library_of

    if library_of(module) is not None:
        return int(module.in_type.size)  # type: ignore[attr-defined]
    layers = module.modules() if isinstance(module, nn.Module) else ()
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return next((m.in_channels for m in layers if isinstance(m, kinds)), None)


def _in_a_line(error: BaseException) -> str:
    """The message, with the class of the error unless the message is enough."""
    words = " ".join(str(error).split())
    plain = isinstance(error, TypeError | ValueError | RuntimeError)
    return words if plain and words else f"{type(error).__name__}: {words}".removesuffix(": ")


def _sides(size: str) -> tuple[int, ...]:
    """The sides in "32" or "32x48"."""
    parts = size.split("x")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise ArgumentError(
            f"--size must be a side such as 32, or sides such as 32x48, got {size!r}"
        )
    return tuple(map(int, parts))


def _module(found: Any, name: str) -> Any:
    from torch import nn

    if not callable(found):
        raise ArgumentError(f"the model is {type(found).__name__}, which cannot be called")
    if isinstance(found, nn.Module):
        return found
    made = call(found, name)
    if not callable(made):
        raise ArgumentError(f"the maker returned {type(made).__name__}, which cannot be called")
    return made


def _spaces(module: Any, space_in: Any, out: int | None, name: str) -> tuple[Any, Any]:
    """The spaces of input and output; a lattice that is not known is found by calling the module.

    A module of escnn or e2cnn has field types, which say what the channels are.
    """
    from groupella.testing import field_space, library_of, output_shape

    library = library_of(module)
    if library is not None:
        if module.in_type.size != space_in.channels:
            raise ArgumentError(
                f"{name} takes {module.in_type.size} channels ({module.in_type}): give --channels "
                f"{module.in_type.size}"
            )
        space_in = field_space(module.in_type, space_in.lattice.shape, library)
    if out is None:
        return space_in, None
    try:
        shape = output_shape(module, space_in)
    except (Exception, SystemExit) as error:
        raise ArgumentError(f"{name} fails on {space_in}: {_in_a_line(error)}") from error
    if len(shape) != space_in.lattice.dim + 1:
        raise ArgumentError(
            f"{name} gives outputs of shape {shape}, which are no images: leave --out away"
        )
    if out != shape[0]:
        raise ArgumentError(f"{name} gives {shape[0]} channels, not {out}: give --out {shape[0]}")
    if library is not None:
        return space_in, field_space(module.out_type, shape[1:], library)
    return space_in, space_in.with_channels(out).with_lattice(shape[1:])
