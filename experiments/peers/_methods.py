"""All methods, by name, in the order of the table."""

from __future__ import annotations

from . import (
    _augerino,
    _bayesnas,
    _degree,
    _grid,
    _lconv,
    _liegan,
    _lila,
    _msr,
    _ours,
    _partial,
    _relaxed,
    _rpp,
    _validated,
)
from ._protocol import Method

METHODS: dict[str, Method] = {
    module.METHOD.name: module.METHOD
    for module in (
        _ours,
        _grid,
        _bayesnas,
        _augerino,
        _msr,
        _partial,
        _degree,
        _rpp,
        _lconv,
        _lila,
        _validated,
        _relaxed,
        _liegan,
    )
}
