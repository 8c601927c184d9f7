"""Which parameters get a block, which must, and which keep their gradient."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
        ignored = set()
        for pattern in ignore:
            matches = {name for name in parameters if fnmatchcase(name, pattern)}
            if not matches:
                raise ValueError(f"ignore: no parameter is called {pattern!r}.")
            ignored |= matches
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

    def check(self, covered: Collection[str]) -> None:
        """Raise if a parameter got no block."""
        missing = sorted(self.required.difference(covered))
        if missing:
            raise ValueError(
                f"No shared linear map covers the parameter(s) {', '.join(missing)}: either "
                "forward() does not call their module, or it is none that we know (nn.Linear, "
                "nn.Conv1d to nn.Conv3d, our paths). Give it a method shared_maps() and record() "
                f"its maps in forward(), or leave them out on purpose with ignore={missing!r}."
            )
