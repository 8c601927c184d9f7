"""Parameters whose gradient is a plain function of the output gradient: exact blocks.

A bias is added at many positions, so its Jacobian is the sum of g over them: one position, input 1.
A hyperparameter ω inside a layer has the Jacobian ⟨g, ∂y/∂ω⟩. In both cases the "input" is the
constant 1, A = N, and 1/(N·S) A ⊗ G = Σ_n ĝ ĝᵀ is the exact GGN block, not an approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor

from ._grams import row_gram


def _ones(x: Tensor) -> Tensor:
    return x.new_ones(x.shape[0], 1, 1, 1)


def _count(x: Tensor) -> Tensor:
    return x.new_full((1, 1, 1), float(x.shape[0]))


@dataclass(frozen=True)
class BiasMap:
    """A parameter that is broadcast over the output and added.

    The output of one sample, reshaped to `output`, receives the parameter reshaped to `view`, which
    has the same number of axes, each equal or 1. One bias per channel of (C, *sites) is
    `BiasMap.of_channels("bias", C)`; with a fibre, channels·fibre in memory order, likewise: the C
    channels are the slowest axis. One bias per site of (C, *sites) is
    `BiasMap("bias", view=(1, P), output=(C, P))`.
    """

    weight: str
    view: tuple[int, ...]
    output: tuple[int, ...]
    positions: int = 1

    def __post_init__(self) -> None:
        if len(self.view) != len(self.output) or any(
            v not in (1, o) for v, o in zip(self.view, self.output, strict=True)
        ):
            raise ValueError(
                f"view must equal output or be 1 along each axis, got {self.view}, {self.output}."
            )

    @classmethod
    def of_channels(cls, weight: str, channels: int, size: int | None = None) -> BiasMap:
        """One bias per channel; channels are the slowest axis of one sample's output.

        `size` is the number of entries (fibre × sites) of a channel, −1 (whatever is left) if None.
        """
        rest = -1 if size is None else size
        return cls(weight, (channels, 1), (channels, rest))

    @classmethod
    def of_features(cls, weight: str, features: int) -> BiasMap:
        """One bias per feature; features are the fastest axis of one sample's output."""
        return cls(weight, (1, features), (-1, features))

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, prod(self.view), 1)

    def inputs(self, x: Tensor) -> Tensor:
        return _ones(x)

    def outputs(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], *self.output)
        axes = [i + 1 for i, v in enumerate(self.view) if v == 1]
        if axes:
            z = z.sum(axes)
        return z.reshape(g.shape[0], 1, 1, prod(self.view))

    def input_gram(self, x: Tensor) -> Tensor:
        return _count(x)

    def output_gram(self, g: Tensor) -> Tensor:
        return row_gram(self.outputs(g)).unsqueeze(0)


@dataclass(frozen=True, eq=False)
class TangentMap:
    """A hyperparameter ω of h entries inside a layer, by its tangents.

    `tangents` (N, h, *y.shape[1:]) holds ∂y/∂ω_j at the present input. Made anew in every forward
    pass and handed to `record` explicitly:

        if recording():
            record(self, "omega", x, y, TangentMap("omega", tangents))
    """

    weight: str
    tangents: Tensor
    positions: int = 1

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, weight.numel(), 1)

    def inputs(self, x: Tensor) -> Tensor:
        return _ones(x)

    def outputs(self, g: Tensor) -> Tensor:
        t = self.tangents.flatten(2)
        return (t @ g.reshape(g.shape[0], -1, 1)).mT.unsqueeze(1)

    def input_gram(self, x: Tensor) -> Tensor:
        return _count(x)

    def output_gram(self, g: Tensor) -> Tensor:
        return row_gram(self.outputs(g)).unsqueeze(0)
