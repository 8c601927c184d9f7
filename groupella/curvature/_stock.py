"""Shared linear maps of stock layers: those of torch, as they are.

`nn.Linear` and `nn.Conv1d/2d/3d` are matrices. The affine factors of normalisation layers and the
slopes of `nn.PReLU` are diagonal maps, y = w ∘ x̂ + b, and `nn.Embedding` is a table: their blocks
are exact. `nn.MultiheadAttention` is in `_attention.py`.

While factors are collected, circular convolutions of stride 1 run as `circular_conv`: the same
result, but its adjoint is again a convolution, where autograd would fold the padding back.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from groupella.nn.circular import circular_conv
from groupella.nn.shared_maps import (
    BiasMap,
    ConvMap,
    LinearMap,
    SharedLinearMap,
    TableMap,
    exact_blocks,
)

StockConv = nn.Conv1d | nn.Conv2d | nn.Conv3d
_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BY_CHANNEL = (nn.GroupNorm, _BatchNorm, _InstanceNorm)
_BY_FEATURE = (nn.LayerNorm, nn.RMSNorm)
_STOCK = (nn.Linear, *_CONVS, *_BY_CHANNEL, *_BY_FEATURE, nn.PReLU, nn.Embedding)


def is_stock(module: nn.Module) -> bool:
    """Whether the module computes exactly what a layer of torch computes that we know."""
    if isinstance(module, nn.Embedding) and (module.max_norm or module.scale_grad_by_freq):
        return False
    return computes(module, _STOCK)


def computes(module: nn.Module, kinds: Iterable[type[nn.Module]]) -> bool:
    """Whether `forward` is that of one of these classes."""
    return "forward" not in vars(module) and any(
        isinstance(module, kind) and type(module).forward is kind.forward for kind in kinds
    )


def stock_maps(module: nn.Module, x: Tensor) -> list[SharedLinearMap]:
    """The maps of all parameters of the module, for its input x."""
    if isinstance(module, nn.Embedding):
        return [_table(module, x)]
    if isinstance(module, nn.PReLU):
        channels = module.num_parameters > 1
        below = x.clamp(max=0.0)
        return [BiasMap.of_factors("weight", below, module.weight.shape, channels)]
    if isinstance(module, (*_BY_CHANNEL, *_BY_FEATURE)):
        return _of_norm(module, x)
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


def _table(module: nn.Embedding, index: Tensor) -> TableMap:
    diagonal = exact_blocks(module.weight.shape) == module.weight.numel()
    rows, width = module.weight.shape
    return TableMap("weight", index, rows, width, diagonal, module.padding_idx)


def _of_norm(module: nn.Module, x: Tensor) -> list[SharedLinearMap]:
    """Factor and bias of a normalisation, by channel or by feature."""
    channels = isinstance(module, _BY_CHANNEL)
    maps: list[SharedLinearMap] = []
    weight, bias = module.weight, getattr(module, "bias", None)
    if isinstance(weight, nn.Parameter):
        maps.append(BiasMap.of_factors("weight", _normalised(module, x), weight.shape, channels))
    if isinstance(bias, nn.Parameter):
        # A bias is a factor of one.
        maps.append(BiasMap.of_factors("bias", x.new_ones(()), bias.shape, channels))
    return maps


def _normalised(module: nn.Module, x: Tensor) -> Tensor:
    """What the module would give with factors one and without bias."""
    if isinstance(module, nn.GroupNorm):
        return F.group_norm(x, module.num_groups, None, None, module.eps)
    if isinstance(module, nn.LayerNorm):
        return F.layer_norm(x, module.normalized_shape, None, None, module.eps)
    if isinstance(module, nn.RMSNorm):
        return F.rms_norm(x, module.normalized_shape, None, module.eps)
    assert isinstance(module, _BatchNorm | _InstanceNorm)
    mean, variance = module.running_mean, module.running_var
    if mean is None or variance is None:
        if isinstance(module, _InstanceNorm):
            return F.instance_norm(x, eps=module.eps)
        raise ValueError(
            f"{type(module).__name__} without running statistics normalises with those of the "
            "batch, so that no sample has an output of its own, and no curvature: build it with "
            "track_running_stats=True"
        )
    shape = [-1, *[1] * (x.ndim - 2)]
    return (x - mean.view(shape)) / (variance.view(shape) + module.eps).sqrt()


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
