"""Residual-pathway layers for the convolutions and linear layers of an existing model."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod
from typing import Any

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Fibre, GroupSet, Symmetry, patch_fibre, split_names
from groupella.nn.fast_path import without_fast_path
from groupella.nn.layer import ResidualPathway

from ._converted import (
    PathwayConv,
    PathwayFlat,
    PathwayMoreTokens,
    PathwayPatches,
    PathwaySites,
    PathwayTokens,
)
from ._placing import place

_CONVS: tuple[type[nn.Conv1d] | type[nn.Conv2d] | type[nn.Conv3d], ...] = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
)
_KINDS = (*_CONVS, nn.Linear)
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@dataclass(frozen=True)
class ConvertedLayer:
    """What became of one layer.

    Attributes
    ----------
    name, kind
        Its name in the model, and its class.
    converted
        Whether it is a residual-pathway layer now.
    lattice
        The lattice on which the groups act.
    shares
        For each path that got weights, its share of their squared norm.
    note
        What it does at the border or with a stride; why it was kept, if it was.
    """

    name: str
    kind: str
    converted: bool
    lattice: tuple[int, ...] = ()
    shares: dict[str, float] | None = None
    note: str = ""


@dataclass(frozen=True)
class Conversion:
    """A converted network and what became of each layer; `print(…)` shows a table.

    Attributes
    ----------
    network
        The converted copy of the model.
    layers
        What became of every convolution, transposed or not, and linear layer.
    difference
        max |f_converted − f_model| / max |f_model| on the example, in evaluation mode.
    """

    network: nn.Module
    layers: tuple[ConvertedLayer, ...]
    difference: float

    @property
    def kept(self) -> tuple[ConvertedLayer, ...]:
        """The layers that were not converted."""
        return tuple(layer for layer in self.layers if not layer.converted)

    def __str__(self) -> str:
        rows = [("layer", "kind", "", "lattice", "weights", "")]
        for layer in self.layers:
            shares = (layer.shares or {}).items()
            rows.append(
                (
                    layer.name,
                    layer.kind,
                    "converted" if layer.converted else "kept",
                    "×".join(map(str, layer.lattice)),
                    ", ".join(f"{name} {share:.0%}" for name, share in shares),
                    layer.note,
                )
            )
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = [
            "  ".join([*(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=False)), row[5]])
            for row in rows
        ]
        last = f"relative difference of the outputs on the example: {self.difference:.1e}"
        return "\n".join([*(line.rstrip() for line in lines), last])


class NotConvertibleError(ValueError):
    """Why a layer has no residual-pathway layer that computes the same."""


@torch.no_grad()
def convert(
    model: nn.Module,
    groups: GroupSet | Symmetry | str | Sequence[Symmetry | str],
    example: Tensor,
    *,
    free: str = "F-FC",
    increments: bool = True,
) -> Conversion:
    """Return a copy of the model with residual-pathway layers, which computes the same function.

    `nn.Conv1d/2d/3d` and `nn.Linear` become layers with a path for each group. Their weights go
    into the strictest paths that can hold them: p4 gets the p4-equivariant part of a filter, z2 the
    rest; a free path starts at zero. Everything else (norms, activations, pooling, attention) is
    left as it is.

    Features are scalars (trivial fibres), as in the model. Any border (zeros, circular, none, …) is
    kept exactly; groups then act on the padded lattice. The patch embedding of a ViT is on the
    lattice of patches, which turn about their centres. Linear layers are converted if they act on
    tokens that form a lattice, or on a flattened map; class tokens keep a linear layer.

    Parameters
    ----------
    model
        Any model; it is not changed.
    groups
        The symmetries to choose among: a `GroupSet`, symmetries, or names as in "z2,p4".
        `trivial()` adds free paths.
    example
        A batch of inputs, at least one. It determines the lattices.
    free, increments
        As in `ResidualPathway`. Linear layers on flattened maps always have FC.

    Returns
    -------
    Conversion
        The network, what became of each layer and why, and the measured difference.

    Raises
    ------
    ValueError
        If no layer can be converted; the message says why, layer by layer. If the model fails on
        the example.
    TypeError
        If the model is no module, or the example no tensor.
    """
    chosen = _group_set(groups)
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch module, got {type(model).__name__}")
    if not isinstance(example, Tensor):
        raise TypeError(
            f"example must be a tensor of inputs, got {type(example).__name__}: give "
            "torch.as_tensor(…)"
        )
    plain = copy.deepcopy(model).eval()
    trace, before = _Trace.of(plain, example)
    network = copy.deepcopy(model)
    made: dict[int, nn.Module] = {}
    rows: list[ConvertedLayer] = []
    for name, module in network.named_modules():
        kind = type(module).__name__
        if isinstance(module, _TRANSPOSED):
            rows.append(ConvertedLayer(name, kind, False, note="transposed convolutions are kept"))
        if not isinstance(module, _KINDS):
            continue
        try:
            call = trace.of_module(plain.get_submodule(name))
            maker = _Maker(chosen, call, free, increments)
            new, row = maker.linear(module) if isinstance(module, nn.Linear) else maker.conv(module)
        except ValueError as error:
            rows.append(ConvertedLayer(name, kind, False, note=str(error)))
            continue
        made[id(module)] = new.to(module.weight).train(module.training)
        rows.append(ConvertedLayer(name, kind, True, *row))
    if not made:
        reasons = "\n".join(f"  {row.name}: {row.note}" for row in rows)
        raise ValueError(f"no layer of the model can be converted:\n{reasons or '  it has none'}")
    network = _replaced(network, made)
    after = copy.deepcopy(network).eval()(example)
    scale = float(before.abs().max())
    difference = float((after - before).abs().max()) / (scale or 1.0)
    return Conversion(network, tuple(rows), difference)


def _group_set(groups: Any) -> GroupSet:
    if isinstance(groups, GroupSet):
        return groups
    if isinstance(groups, str):
        groups = split_names(groups)
    return GroupSet(*((groups,) if isinstance(groups, Symmetry) else groups))


@dataclass(frozen=True)
class _Call:
    """The shapes of one call, and the lattice that was seen last before it, with its channels."""

    input: tuple[int, ...]
    output: tuple[int, ...]
    before: tuple[int, ...] | None
    fixed: tuple[int, int] | None = None


class _Trace:
    """The calls of every layer in one forward pass.

    `tokens` has the first input (N, T, D) of any module, by T; `fixed` how many of them at the
    start and at the end do not depend on the inputs, such as the class token of a ViT.
    """

    def __init__(self) -> None:
        self.calls: dict[int, list[_Call]] = {}
        self.seen: tuple[int, ...] | None = None
        self.tokens: dict[int, Tensor] = {}
        self.fixed: dict[int, tuple[int, int]] = {}

    @classmethod
    def of(cls, network: nn.Module, example: Tensor) -> tuple[_Trace, Tensor]:
        """The trace of a network in evaluation mode, and its outputs."""
        trace, outputs = cls._one(network, example)
        if example.is_floating_point() and trace.tokens:
            draw = torch.Generator(example.device).manual_seed(0)
            other = torch.rand(example.shape, generator=draw, device=example.device)
            again, _ = cls._one(network, example + other.to(example))
            for count, before in trace.tokens.items():
                if count in again.tokens:
                    trace.fixed[count] = _unchanged(before, again.tokens[count])
        return trace, outputs

    @classmethod
    def _one(cls, network: nn.Module, example: Tensor) -> tuple[_Trace, Tensor]:
        trace = cls()
        hooks = [m.register_forward_hook(trace._note) for m in network.modules()]
        hooks += [m.register_forward_pre_hook(trace._note_tokens) for m in network.modules()]
        try:
            with without_fast_path():
                outputs = network(example)
        except (RuntimeError, TypeError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise ValueError(
                f"the model fails on an example of shape {tuple(example.shape)} and type "
                f"{example.dtype}: {reason}"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        return trace, outputs

    def _note_tokens(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], Tensor) and inputs[0].ndim == 3:
            self.tokens.setdefault(inputs[0].shape[1], inputs[0].clone())

    def _note(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not inputs or not isinstance(inputs[0], Tensor) or not isinstance(output, Tensor):
            return
        shape = tuple(inputs[0].shape)
        if isinstance(module, _KINDS):
            call = _Call(shape, tuple(output.shape), self.seen)
            self.calls.setdefault(id(module), []).append(call)
        # Three axes are those of a sequence, or those of tokens in a model of images.
        is_sequence = isinstance(module, nn.Conv1d) or len(self.seen or ()) == 2
        if output.ndim > 3 or (output.ndim == 3 and is_sequence):
            self.seen = tuple(output.shape[1:])
        elif output.ndim == 2 and isinstance(module, nn.Linear):
            self.seen = tuple(output.shape[1:])  # features without sites

    def of_module(self, module: nn.Module) -> _Call:
        calls = self.calls.get(id(module), [])
        if not calls:
            raise NotConvertibleError("forward() does not call it (attention uses only its weight)")
        if len({call.input[1:] for call in calls}) > 1:
            raise NotConvertibleError("it is called with inputs of several sizes")
        call = calls[0]
        return replace(call, fixed=self.fixed.get(call.input[1])) if len(call.input) == 3 else call


@dataclass(frozen=True)
class _Maker:
    """Makes the layer for one module, or says why it cannot."""

    groups: GroupSet
    call: _Call
    free: str
    increments: bool

    def conv(self, conv: Any) -> tuple[nn.Module, tuple[Any, ...]]:
        sides, kernel, stride = self.call.input[2:], conv.kernel_size, conv.stride
        if len(self.call.input) != len(kernel) + 2:
            raise NotConvertibleError("its input has no batch axis")
        if type(conv).forward not in [kind.forward for kind in _CONVS]:
            raise NotConvertibleError("it has a forward() of its own")
        if conv.groups > 1:
            raise NotConvertibleError(f"its channels are in {conv.groups} groups, which do not mix")
        if set(conv.dilation) != {1}:
            raise NotConvertibleError(f"its kernel is dilated by {conv.dilation}")
        padding = _padding(conv)
        padded = any(p for pair in padding for p in pair)
        if kernel == stride and max(kernel) > 1 and not padded:
            return self._patches(conv)
        if any(k % 2 == 0 for k in kernel):
            raise NotConvertibleError(f"its kernel {kernel} has an even side, and no centre")
        strided = "" if set(stride) == {1} else f"stride: {'×'.join(map(str, stride))}"
        if set(kernel) == {1} and not padded:
            sides = self.call.output[2:]
            layer, shares = self._layer(conv, sides, conv.weight, 1)
            return PathwaySites(layer, stride), (sides, shares, strided)
        same = tuple((k // 2, k // 2) for k in kernel)
        torus = conv.padding_mode == "circular" and padding == same
        if torus:
            padding = [(0, 0)] * len(kernel)
        lattice = tuple(n + sum(p) for n, p in zip(sides, padding, strict=True))
        layer, shares = self._layer(conv, lattice, conv.weight, kernel)
        margin = [0 if torus else k // 2 for k in kernel]
        window = [slice(m, n - m, s) for m, n, s in zip(margin, lattice, stride, strict=True)]
        border = "" if torus else f"border: {conv.padding_mode if padded else 'cut off'}"
        note = "; ".join(part for part in (border, strided) if part)
        return PathwayConv(layer, padding, conv.padding_mode, window), (lattice, shares, note)

    def _patches(self, conv: Any) -> tuple[nn.Module, tuple[Any, ...]]:
        lattice = self.call.output[2:]
        if len(self.groups.ambient.point) > 1:
            fibre = patch_fibre(self.groups.ambient, conv.kernel_size)
            layer, shares = self._layer(conv, lattice, conv.weight, 1, fibre=fibre)
            note = "patches are sites, and turn about their centres"
        else:
            weight = conv.weight.flatten(1).reshape(len(conv.weight), -1, *[1] * len(lattice))
            layer, shares = self._layer(conv, lattice, weight, 1)
            note = "patches are sites"
        return PathwayPatches(layer, conv.kernel_size), (lattice, shares, note)

    def linear(self, linear: nn.Linear) -> tuple[nn.Module, tuple[Any, ...]]:
        if type(linear).forward is not nn.Linear.forward:
            raise NotConvertibleError("it has a forward() of its own")
        if len(self.call.input) == 2:
            return self._flat(linear)
        lattice, more = self._token_lattice()
        weight = linear.weight.reshape(*linear.weight.shape, *[1] * len(lattice))
        layer, shares = self._layer(linear, lattice, weight, 1)
        note = "tokens are sites"
        if not any(more):
            return PathwayTokens(layer, len(self.call.input) == 3), (lattice, shares, note)
        note += f"; linear for {sum(more)} more"
        return PathwayMoreTokens(layer, copy.deepcopy(linear), more), (lattice, shares, note)

    def _token_lattice(self) -> tuple[tuple[int, ...], tuple[int, int]]:
        """The lattice of the tokens of an input (N, *S, D), and how many are before and after."""
        shape, dim = self.call.input[1:-1], self.groups.ambient.dim or 0
        if len(shape) == dim or not dim:
            return shape, (0, 0)
        seen = (self.call.before or ())[1:]
        patches = len(shape) == 1 and len(seen) == dim
        if patches and prod(seen) == shape[0]:
            return seen, (0, 0)
        more = f": {prod(seen)} patches and {shape[0] - prod(seen)} more" if seen else ""
        if patches and (fixed := self.call.fixed) and sum(fixed) + prod(seen) == shape[0]:
            return seen, fixed
        if len(shape) == 1 and dim == 2 and isqrt(shape[0]) ** 2 == shape[0]:
            return (isqrt(shape[0]),) * 2, (0, 0)
        raise NotConvertibleError(
            f"its {'×'.join(map(str, shape))} tokens are no lattice of {dim} axes{more}"
        )

    def _flat(self, linear: nn.Linear) -> tuple[nn.Module, tuple[Any, ...]]:
        before = self.call.before
        size = self.call.input[1]
        if before is None or size == before[0]:
            raise NotConvertibleError("its input has no sites: every group leaves scalars alone")
        if prod(before) != size:
            raise NotConvertibleError(
                f"its {size} inputs are not the {'×'.join(map(str, before))} outputs of a module "
                "before it, flattened"
            )
        channels, *lattice = before
        weight = linear.weight.reshape(len(linear.weight), channels, -1)
        layer, shares = self._layer(linear, tuple(lattice), weight, 1, flat=True)
        return PathwayFlat(layer), (tuple(lattice), shares, "from a flattened map")

    def _layer(
        self,
        module: Any,
        lattice: tuple[int, ...],
        weight: Tensor,
        kernel: Any,
        flat: bool = False,
        fibre: Fibre | str = "trivial",
    ) -> tuple[ResidualPathway, dict[str, float]]:
        space: FeatureSpace = self.groups.space(lattice, weight.shape[1], fibre)
        layer = ResidualPathway(
            space,
            self.groups.space(() if flat else lattice, len(weight), "trivial"),
            self.groups,
            init="balanced",
            increments=self.increments,
            kernel_size=kernel,
            bias=module.bias is not None,
            free="FC" if flat else self.free,
        ).to(weight)
        shares = place(layer, weight, module.bias)
        if "" in shares:
            missing = "trivial()" if flat else "z2() (translations)"
            raise NotConvertibleError(
                f"no path can hold {shares['']:.0%} of its weights: add {missing} to the groups"
            )
        return layer, shares


def _unchanged(one: Tensor, other: Tensor) -> tuple[int, int]:
    """How many tokens at the start and at the end are the same in both."""
    same = (one == other).all(2).all(0).tolist()
    start = next((i for i, s in enumerate(same) if not s), len(same))
    end = next((i for i, s in enumerate(reversed(same)) if not s), 0)
    return start, end


def _padding(conv: Any) -> Any:
    """(before, after) of every axis."""
    if conv.padding == "valid":
        return ((0, 0),) * len(conv.kernel_size)
    if conv.padding == "same":
        return tuple(((k - 1) // 2, k // 2) for k in conv.kernel_size)
    return tuple((p, p) for p in conv.padding)


def _replaced(network: nn.Module, made: dict[int, nn.Module]) -> nn.Module:
    if id(network) in made:
        return made[id(network)]
    for module in list(network.modules()):
        for name, child in list(module._modules.items()):
            if child is not None and id(child) in made:
                setattr(module, name, made[id(child)])
                if isinstance(module, nn.TransformerEncoderLayer):
                    module.activation_relu_or_gelu = 0  # its fast path reads weights of children
    return network
