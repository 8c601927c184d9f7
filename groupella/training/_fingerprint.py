"""What a checkpoint belongs to: the parameters of a network, and the groups of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from groupella.evidence import PathwayLayer, Prior

from ._checkpoint import CheckpointError


def fingerprint(network: nn.Module, prior: Prior) -> dict[str, Any]:
    """A description that two networks share when their checkpoints are interchangeable."""
    layers = {n: m for n, m in network.named_modules() if isinstance(m, PathwayLayer)}
    return {
        "groups": {name: _members(module) for name, module in layers.items()},
        "paths": {
            name: {p: list(module.subspaces[p]) for p in module.paths}
            for name, module in layers.items()
        },
        "parameters": {n: [list(p.shape), str(p.dtype)] for n, p in network.named_parameters()},
        "prior": {g.name: list(g.parameters) for g in prior},
    }


def check_fingerprint(found: Mapping[str, Any], wanted: Mapping[str, Any], source: object) -> None:
    """Raise, naming the first difference."""
    stories = {
        "groups": "another group set",
        "paths": "other paths",
        "parameters": "another architecture",
        "prior": "another grouping of the prior",
    }
    for part, story in stories.items():
        difference = _difference(found.get(part, {}), wanted[part])
        if difference:
            raise CheckpointError(
                f"{source} was written for {story}: {difference}. "
                "Build the network as it was then, or train in another directory."
            )


def _members(module: PathwayLayer) -> list[str]:
    groups = getattr(module, "groups", None)
    return [] if groups is None else [repr(member) for member in groups]


def _difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str | None:
    for name in [*here, *there]:
        if name not in there:
            return f"it does not have {name!r}"
        if name not in here:
            return f"it has {name!r}, which is not in this network"
        if there[name] != here[name]:
            return f"{name!r} is {_text(there[name])} there and {_text(here[name])} here"
    return None


def _text(value: Any) -> str:
    return str(value).replace("'", "")
