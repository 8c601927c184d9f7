"""Networks that learn which symmetries they should have.

`groupella.select(x, y, groups)` answers which symmetry your data have; `groupella.load(directory)`
opens a finished run; `groupella.convert(model, groups, example)` gives your own model layers that
can choose. Everything named here is imported when it is first used.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import typing

if typing.TYPE_CHECKING:
    from groupella.answers import Answer, SymmetrySelector, load, select
    from groupella.data import DataError
    from groupella.groups import GroupSet, Symmetry
    from groupella.networks import convert
    from groupella.testing import assert_equivariant
    from groupella.training import fit

__version__ = importlib.metadata.version("groupella")

__all__ = [
    "Answer",
    "DataError",
    "GroupSet",
    "Symmetry",
    "SymmetrySelector",
    "__version__",
    "assert_equivariant",
    "convert",
    "fit",
    "load",
    "select",
]

_HOMES = {
    "Answer": "answers",
    "DataError": "data",
    "GroupSet": "groups",
    "Symmetry": "groups",
    "SymmetrySelector": "answers",
    "assert_equivariant": "testing",
    "convert": "networks",
    "fit": "training",
    "load": "answers",
    "select": "answers",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
