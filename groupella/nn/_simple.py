"""When a function may take a shortcut through an `autograd.Function` of its own."""

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
        and not torch.compiler.is_compiling()
        and not torch._C._are_functorch_transforms_active()
        and forward_ad._current_level < 0
        and not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device))
    )
