"""Which parameters get a block, which must, and which keep their gradient."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import nn


@dataclass(frozen=True)
class Plan:
    """`names` of all parameters that may get a block, by identity; `required` ones must."""

    names: Mapping[int, str]
    required: frozenset[str]
    keep: frozenset[str]

    @classmethod
    def of(
        cls, network: nn.Module, ignore: Sequence[str], differentiable: bool | Sequence[str]
    ) -> Plan:
        parameters = dict(network.named_parameters())
        trainable = {name for name, p in parameters.items() if p.requires_grad}
        ignored = set(matching(network, ignore))
        if isinstance(differentiable, bool):
            keep = frozenset(trainable if differentiable else ())
            required = frozenset(trainable - ignored)
        else:
            unknown = sorted(set(differentiable) - set(parameters))
            if unknown:
                raise ValueError(f"differentiable: no parameter is called {', '.join(unknown)}.")
            keep = frozenset(differentiable)
            required = frozenset(trainable - ignored - keep)
        names = {id(parameters[name]): name for name in trainable - ignored}
        return cls(names, required, keep)

    def missing(self, covered: Collection[str]) -> list[str]:
        """The required parameters that are not covered."""
        return sorted(self.required.difference(covered))


def matching(network: nn.Module, ignore: Sequence[str]) -> tuple[str, ...]:
    """The parameters that names or patterns such as "norm.*" stand for, in the network's order.

    Raises
    ------
    ValueError
        If a name or pattern fits no parameter.
    TypeError
        If `ignore` is a string instead of a sequence of them.
    """
    if isinstance(ignore, str):
        raise TypeError(f"ignore is a sequence of names or patterns, got {ignore!r}: [{ignore!r}]")
    names = [name for name, _ in network.named_parameters()]
    for pattern in ignore:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"ignore: no parameter is called {pattern!r}.{hint}")
    return tuple(n for n in names if any(fnmatchcase(n, pattern) for pattern in ignore))
