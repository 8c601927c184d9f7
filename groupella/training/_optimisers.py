"""Learning rates as functions of the step, and optimiser states as plain tensors.

A schedule here is a pure function of the step counter, so there is no scheduler state to save:
cosine from the initial rate η to 0 over T steps is η_t = ½ η (1 + cos(π t / T)). One cycle rises
from η/25 to η and falls to nearly 0 (Smith & Topin 2019).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from torch import Tensor
from torch.optim import Optimizer

Schedule = Literal["cosine", "one_cycle", "constant"]
RISING = 0.3  # of the steps of one cycle
START, END = 1 / 25, 1e-4 / 25  # of the highest rate


def learning_rate(schedule: Schedule, initial: float, step: int, total: int) -> float:
    """The learning rate at `step` of `total` (0-based)."""
    if schedule == "constant" or total <= 0:
        return initial
    if schedule == "one_cycle":
        top = RISING * total - 1  # the step with the highest rate; the last one has the lowest
        if step <= top:
            return initial * _cosine(START, 1.0, step / top)
        return initial * _cosine(1.0, END, min((step - top) / (total - 1 - top), 1.0))
    return 0.5 * initial * (1.0 + math.cos(math.pi * min(step, total) / total))


def _cosine(start: float, end: float, part: float) -> float:
    """From `start` to `end` along half a cosine."""
    return end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * part))


def set_learning_rate(optimiser: Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate


class Stateful(Protocol):
    """An optimiser as checkpoints see it, with a state like those of `torch.optim`."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


def optimiser_state(optimiser: Stateful) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Split an optimiser's state into named tensors and JSON."""
    state = optimiser.state_dict()
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, Any] = {}
    for index, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{index}.{key}"] = value
            else:
                scalars[f"{index}.{key}"] = value
    groups = json.loads(json.dumps(state["param_groups"]))
    return tensors, {"scalars": scalars, "groups": groups}


def load_optimiser_state(
    optimiser: Stateful, tensors: Mapping[str, Tensor], state: Mapping[str, Any]
) -> None:
    """Put back what `optimiser_state` returned."""
    values: dict[int, dict[str, Any]] = {}
    for name, value in [*tensors.items(), *state["scalars"].items()]:
        index, key = name.split(".", 1)
        values.setdefault(int(index), {})[key] = value
    groups = [
        {k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in state["groups"]
    ]
    optimiser.load_state_dict({"state": values, "param_groups": groups})
