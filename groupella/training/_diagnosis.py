"""Find where a NaN comes from."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from groupella.evidence import NonFiniteError


def check_parameters(network: nn.Module) -> None:
    """Raise `NonFiniteError` with the name of a parameter that is not finite."""
    for name, parameter in network.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise NonFiniteError(f"parameter {name} is NaN or infinite")


def culprit(network: nn.Module, x: Tensor) -> str:
    """Name the first parameter or layer that is not finite in a forward pass on `x`."""
    for name, parameter in network.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            return f"parameter {name} is not finite"
    found: list[str] = []
    handles = []
    for name, module in network.named_modules():
        if name and not any(module.children()):

            def hook(
                _: nn.Module, __: tuple[Tensor, ...], output: Tensor, name: str = name
            ) -> None:
                if not found and not bool(torch.isfinite(output).all()):
                    found.append(name)

            handles.append(module.register_forward_hook(hook))
    try:
        with torch.no_grad():
            network(x)
    finally:
        for handle in handles:
            handle.remove()
    if found:
        return f"layer {found[0]} is the first whose output is not finite"
    return "all layers' outputs are finite; the likelihood is not"
