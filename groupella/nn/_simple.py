"""When a function may take a shortcut through an `autograd.Function` of its own, or past it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def is_simple(*tensors: Tensor) -> bool:
    """Whether some gradient is wanted, and nothing else transforms or traces what is computed."""
    device = tensors[0].device.type
    return (
        torch.is_grad_enabled()
        and any(t.requires_grad for t in tensors)
        and is_as_written()
        and not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device))
    )


def is_unrecorded() -> bool:
    """Whether nobody differentiates, transforms or traces: an `autograd.Function` is its forward.

    To call it by `apply` costs as much as a small product.
    """
    return not torch.is_grad_enabled() and is_as_written()


def is_as_written() -> bool:
    """Whether no compiler, transform of functions or forward derivative is at work."""
    return (
        not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
    )
