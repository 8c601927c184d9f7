"""How a network was made, as plain values: a file holds them beside its weights.

A maker that is `remembered` notes its arguments on the network that it makes. `recipe` writes them
as JSON can store them, and `made_from` makes the same network again, freshly initialised.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from torch import nn

from groupella.groups import GroupSet, Lattice, Symmetry

P = ParamSpec("P")
N = TypeVar("N", bound=nn.Module)
MAKERS: dict[str, Callable[..., nn.Module]] = {}


def remembered(make: Callable[P, N]) -> Callable[P, N]:
    """Decorate a function that makes a network, so that `recipe` knows its arguments."""

    @functools.wraps(make)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> N:
        network = make(*args, **kwargs)
        given = inspect.signature(make).bind(*args, **kwargs).arguments
        options = given.pop("options", {})
        vars(network)["made_by"] = (make.__name__, {**given, **options})
        return network

    MAKERS[make.__name__] = wrapper
    return wrapper


def recipe(network: nn.Module) -> dict[str, Any]:
    """Return how the network was made, for JSON.

    Raises
    ------
    ValueError
        If it was not made by `invariant_net` or `trunk`, or from objects that have no plain form,
        such as paths of your own.
    """
    made_by = vars(network).get("made_by")
    if made_by is None:
        raise ValueError(
            f"it is not known how this {type(network).__name__} was made: only networks of "
            f"{' and '.join(MAKERS)} can be saved so that they load without your code"
        )
    maker, arguments = made_by
    plain = {name: _plain(value, name) for name, value in arguments.items()}
    return {"maker": maker, "arguments": plain, "folded": vars(network).get("folded", False)}


def made_from(content: Mapping[str, Any]) -> nn.Module:
    """Return the network of a recipe, freshly initialised, in evaluation mode."""
    from ._invariant import InvariantNet, fold
    from ._trunk import Trunk

    arguments = {name: _value(plain) for name, plain in content["arguments"].items()}
    network = MAKERS[content["maker"]](**arguments)
    if content["folded"]:
        assert isinstance(network, InvariantNet | Trunk)
        network = fold(network)
    return network.eval()


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, Symmetry):
        return {"symmetry": value.as_dict()}
    if isinstance(value, GroupSet):
        return {"groups": [member.as_dict() for member in value]}
    if isinstance(value, Lattice):
        return list(value.shape)
    if isinstance(value, tuple | list):
        return [_plain(part, name) for part in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError(f"a network made with {name}={value!r} cannot be saved: it has no plain form")


def _value(plain: Any) -> Any:
    if isinstance(plain, Mapping) and "symmetry" in plain:
        return Symmetry.from_dict(plain["symmetry"])
    if isinstance(plain, Mapping):
        return GroupSet(*(Symmetry.from_dict(member) for member in plain["groups"]))
    return plain
