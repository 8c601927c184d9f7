"""The step on the weights: Adam on the data term, and a Gaussian prior that is stable at any δ.

The objective is f(w) + ½ (δ/N)‖w‖² with f the mean −log p(y | x, w). Precisions range over many
decades; after a rise of δ, Adam on the sum needs hundreds of steps and then keeps weights several
times larger than they should be, since the prior's gradient spoils its metric. The proximal step
treats the prior exactly instead. With m, v Adam's moments of ∇f, d = √v + ε and learning rate η,

    w ← (w − η m/d) / (1 + η (δ/N) / d),

whose fixed points satisfy m = −(δ/N) w, the stationary points of the objective.

Where a gradient stays zero (behind a unit that is never active), m shrinks by β₁ per step and w by
the factor above. Floats shrink to the smallest subnormal number and stay there, and processors are
many times slower with subnormal numbers. Such w, m and v are therefore set to zero now and then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import hardshrink

from ._settings import PriorStep

EPSILON = 1e-8
BETAS = (0.9, 0.999)
PART = 1 << 17
FLUSH_EVERY = 100  # steps
# Values to set to zero, in units of the smallest normal number: those that could become subnormal
# before the next flush, at m ← β₁ m and v ← β₂ v.
TINY_FIRST, TINY_SECOND = 1e8, 10.0


class Adam:
    """Adam by the kernel of `torch.optim.Adam(fused=True)`, with the same bits and state.

    `torch.optim` imports torch's compiler, which takes longer than many a training. Steps are also
    counted here, per parameter: to read a tensor is to wait for its device.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.counts: dict[Tensor, int] = {}

    @torch.no_grad()
    def step(self, lr: float) -> None:
        """One step on all parameters that have a gradient."""
        kinds: dict[tuple[torch.device, torch.dtype], list[nn.Parameter]] = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                kinds.setdefault((parameter.device, parameter.dtype), []).append(parameter)
        for parameters in kinds.values():
            states = [self.state.get(p) or self._started(p) for p in parameters]
            steps = [s["step"] for s in states]
            torch._foreach_add_(steps, 1.0)
            for p in parameters:
                self.counts[p] += 1
            torch._fused_adam_(
                parameters,  # type: ignore[arg-type]
                [p.grad for p in parameters if p.grad is not None],
                [s["exp_avg"] for s in states],
                [s["exp_avg_sq"] for s in states],
                [],
                steps,
                lr=lr,
                beta1=BETAS[0],
                beta2=BETAS[1],
                weight_decay=0.0,
                eps=EPSILON,
                amsgrad=False,
                maximize=False,
            )

    def _started(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        self.counts[parameter] = 0
        self.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return self.state[parameter]

    def state_dict(self) -> dict[str, Any]:
        """The state as that of `torch.optim.Adam`."""
        state = {i: dict(self.state[p]) for i, p in enumerate(self.parameters) if p in self.state}
        return {"state": state, "param_groups": [{"params": list(range(len(self.parameters)))}]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back a state, this one's or torch's."""
        self.state, self.counts = {}, {}
        for index, values in state["state"].items():
            parameter = self.parameters[index]
            self.state[parameter] = {
                key: value.to(parameter.device, torch.float32 if key == "step" else parameter.dtype)
                for key, value in values.items()
            }
            self.counts[parameter] = int(values["step"])


class WeightStep:
    """Adam on `parameters` with a Gaussian prior on some of them."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], n_data: int, prior_step: PriorStep
    ) -> None:
        self.parameters = dict(parameters)
        self.n_data = n_data
        self.prior_step = prior_step
        self.optimiser = Adam(list(self.parameters.values()))

    def gradients(self) -> list[Tensor]:
        """Return the gradients of the data term, zeros for parameters that were not used."""
        for parameter in self.parameters.values():
            if parameter.grad is None and parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
        return [p.grad for p in self.parameters.values() if p.grad is not None]

    @torch.no_grad()
    def step(self, lr: float, precisions: Mapping[str, float]) -> None:
        """One step; `precisions` gives δ for each parameter that has a prior."""
        governed = [
            (p, precisions[name])
            for name, p in self.parameters.items()
            if name in precisions and p.grad is not None
        ]
        weights: list[Tensor] = [p for p, _ in governed]
        scales = [delta / self.n_data for _, delta in governed]
        if self.prior_step == "gradient" and weights:
            gradients = [p.grad for p in weights if p.grad is not None]
            torch._foreach_add_(gradients, list(torch._foreach_mul(weights, scales)))
        self.optimiser.step(lr)
        if self.prior_step == "proximal" and weights:
            self._shrink(weights, [lr * s for s in scales])
        for parameter in self.parameters.values():
            parameter.grad = None
        if self._steps % FLUSH_EVERY == 0:
            self._flush()

    @property
    def _steps(self) -> int:
        """Steps so far, including those before the run was resumed."""
        return max(self.optimiser.counts.values(), default=0)

    def _flush(self) -> None:
        for parameter, state in self.optimiser.state.items():
            tiny = torch.finfo(parameter.dtype).tiny
            for values, bound in (
                (parameter, TINY_FIRST),
                (state["exp_avg"], TINY_FIRST),
                (state["exp_avg_sq"], TINY_SECOND),
            ):
                values.copy_(hardshrink(values, bound * tiny))

    def _shrink(self, weights: list[Tensor], strengths: Sequence[float]) -> None:
        states = [self.optimiser.state[p] for p in weights]
        moments: list[Tensor] = [s["exp_avg_sq"] for s in states]
        # Adam's bias correction: v is too small by 1 − β₂ᵗ in its first steps.
        counts = (self.optimiser.counts[p] for p in weights)
        corrections = [math.sqrt(1.0 - BETAS[1] ** float(n)) for n in counts]
        small = []
        for i, (weight, moment) in enumerate(zip(weights, moments, strict=True)):
            if not _is_large(weight, moment):
                small.append(i)
                continue
            for start in range(0, weight.numel(), PART):
                part, of = (t.view(-1)[start : start + PART] for t in (weight, moment))
                _divide([part], [of], corrections[i : i + 1], strengths[i : i + 1])
        _divide(
            [weights[i] for i in small],
            [moments[i] for i in small],
            [corrections[i] for i in small],
            [strengths[i] for i in small],
        )


def _is_large(weight: Tensor, moment: Tensor) -> bool:
    """Whether to update in parts that fit into a processor's cache; the bits are the same.

    Otherwise each of the seven operations on a large weight passes over the main memory.
    """
    whole = weight.is_contiguous() and moment.is_contiguous()
    return whole and weight.device.type == "cpu" and weight.numel() > 2 * PART


def _divide(
    weights: list[Tensor],
    moments: list[Tensor],
    corrections: Sequence[float],
    strengths: Sequence[float],
) -> None:
    """w ← w / (1 + strength / (√v / correction + ε)), in place."""
    if not weights:
        return
    metric = list(torch._foreach_sqrt(moments))
    torch._foreach_div_(metric, corrections)
    torch._foreach_add_(metric, EPSILON)
    torch._foreach_reciprocal_(metric)
    torch._foreach_mul_(metric, strengths)
    torch._foreach_add_(metric, 1.0)
    torch._foreach_div_(weights, metric)
