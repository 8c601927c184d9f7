"""Shared linear maps of stock layers: `nn.Linear` and `nn.Conv1d/2d/3d` as they are.

While factors are collected, circular convolutions of stride 1 run as `circular_conv`: the same
result, but its adjoint is again a convolution, where autograd would fold the padding back.
"""

from __future__ import annotations

from torch import Tensor, nn

from groupella.nn.circular import circular_conv
from groupella.nn.shared_maps import BiasMap, ConvMap, LinearMap, SharedLinearMap

StockConv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def is_stock(module: nn.Module) -> bool:
    """Whether the module computes exactly what `nn.Linear` or `nn.ConvNd` computes."""
    return "forward" not in vars(module) and any(
        isinstance(module, kind) and type(module).forward is kind.forward
        for kind in (nn.Linear, *_CONVS)
    )


def stock_maps(module: nn.Module, x: Tensor) -> list[SharedLinearMap]:
    """The maps of the weight and, if there is one, of the bias, for the input x."""
    if isinstance(module, nn.Linear):
        positions = x[0, ..., 0].numel()
        maps: list[SharedLinearMap] = [
            LinearMap("weight", module.in_features, module.out_features, positions)
        ]
        if module.bias is not None:
            maps.append(BiasMap.of_features("bias", module.out_features))
        return maps
    assert isinstance(module, _CONVS)
    maps = [conv_map(module, x)]
    if module.bias is not None:
        maps.append(BiasMap.of_channels("bias", module.out_channels))
    return maps


def conv_map(module: StockConv, x: Tensor) -> ConvMap:
    """The map of a stock convolution's weight, for the input x (N, C, *sites)."""
    if x.ndim != len(module.kernel_size) + 2:
        raise ValueError(
            f"Curvature needs a batch axis: {type(module).__name__} got an input of shape "
            f"{tuple(x.shape)}."
        )
    return ConvMap(
        "weight",
        module.in_channels,
        module.out_channels,
        tuple(x.shape[2:]),
        module.kernel_size,
        module.stride,
        _padding(module),
        module.padding_mode,
        module.dilation,
        module.groups,
    )


def stock_forward(module: nn.Module, x: Tensor, relayout: bool) -> Tensor:
    """What the module's own forward gives; with `relayout` channels may come last in memory."""
    if relayout and isinstance(module, _CONVS):
        shared = conv_map(module, x)
        odd = all(k % 2 for k in shared.kernel)
        if shared.on_torus and odd and set(shared.dilation) == {1}:
            return circular_conv(x, module.weight, module.bias, module.groups)
    y: Tensor = type(module).forward(module, x)
    return y


def _padding(module: StockConv) -> tuple[tuple[int, int], ...]:
    if module.padding == "valid":
        return ((0, 0),) * len(module.kernel_size)
    if module.padding == "same":
        totals = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        return tuple((t // 2, t - t // 2) for t in totals)
    return tuple((int(p), int(p)) for p in module.padding)
