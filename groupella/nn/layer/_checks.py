"""Checks of what a user hands to a layer, with errors that say what to write instead."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from groupella.groups import GroupSet, Symmetry


def check_groups(groups: object) -> None:
    """`groups` is a GroupSet and no plain collection of symmetries."""
    if isinstance(groups, GroupSet):
        return
    kind = type(groups).__name__
    hint = ""
    if isinstance(groups, list | tuple | set | frozenset):
        hint = f": GroupSet(*{kind})"
    elif isinstance(groups, Symmetry):
        hint = f": GroupSet({groups.name})"
    raise TypeError(f"groups is a GroupSet, got a {kind}{hint}")


def check_dtype(module: nn.Module, x: Tensor) -> None:
    """The input has the dtype of the parameters, unless autocast sees to it."""
    parameter = next(module.parameters(), None)
    if parameter is None or parameter.dtype == x.dtype or not x.is_floating_point():
        return
    if torch.is_autocast_enabled(x.device.type):
        return
    raise TypeError(
        f"{type(module).__name__} has parameters of {parameter.dtype}, got an input of {x.dtype}: "
        f"convert one of them, x.to({parameter.dtype}) or module.to({x.dtype})"
    )
