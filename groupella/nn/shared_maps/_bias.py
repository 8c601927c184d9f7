"""Parameters that add to the output: their blocks are exact.

A bias is added at many positions, so its gradient is the sum of the output gradient g over them. A
hyperparameter ω inside a layer has the gradient ⟨g, ∂y/∂ω⟩. In both cases the "input" is the
constant 1 at one position, A = N, and 1/(N·S) A ⊗ G = Σ_n ĝ ĝᵀ, with ĝ the parameter's gradient for
one sample, is the GGN block itself, not an approximation. So is that of a factor w in y = w ∘ x̂,
a diagonal map: ĝ = Σ g ∘ x̂ over positions. Where the whole block would be too large, its blocks of
rows or its diagonal are kept, which are exact as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from torch import Tensor

from ._grams import block_gram, row_gram

LARGEST_BLOCK = 1024
MOST_ENTRIES = 2**22


def exact_blocks(shape: Sequence[int]) -> int:
    """Into how many blocks to divide the exact curvature of a parameter.

    One up to 1024 entries. Beyond, one for each row of the parameter where these blocks have at
    most 2²² entries in total, else one for each entry: the diagonal.
    """
    entries = prod(shape)
    if entries <= LARGEST_BLOCK:
        return 1
    rows = shape[0]
    return rows if entries * (entries // rows) <= MOST_ENTRIES else entries


@dataclass(frozen=True, eq=False)
class BiasMap:
    """A parameter whose gradient is a linear function of the output gradient alone.

    Parameters
    ----------
    weight
        The name of the parameter.
    gradient
        Maps an output gradient (N, …) to the parameter's gradient for each sample, (N, entries).
    blocks
        Into how many equal parts to divide the entries; curvature between parts is left out.
    """

    weight: str
    gradient: Callable[[Tensor], Tensor]
    positions: int = 1
    blocks: int = 1

    @classmethod
    def of_channels(cls, weight: str, channels: int) -> BiasMap:
        """One bias per channel; channels are the slowest axis of one sample's output."""
        return cls(weight, lambda g: g.reshape(g.shape[0], channels, -1).sum(2))

    @classmethod
    def of_features(cls, weight: str, features: int) -> BiasMap:
        """One bias per feature; features are the fastest axis of one sample's output."""
        return cls(weight, lambda g: g.reshape(g.shape[0], -1, features).sum(1))

    @classmethod
    def of_tangents(cls, weight: str, tangents: Tensor) -> BiasMap:
        """A hyperparameter ω of h entries, by its tangents ∂y/∂ω, (N, h, *y.shape[1:]).

        Tangents depend on the input: make the map in every forward pass and pass it to `record`:

            if recording():
                record(self, "omega", x, y, BiasMap.of_tangents("omega", tangents))
        """
        flat = tangents.flatten(2)
        return cls(weight, lambda g: (flat @ g.reshape(g.shape[0], -1, 1)).squeeze(2))

    @classmethod
    def of_factors(cls, weight: str, x: Tensor, shape: Sequence[int], channels: bool) -> BiasMap:
        """Factors w in y = w ∘ x, a diagonal map, for x (N, …) of one forward pass.

        Parameters
        ----------
        weight, shape
            Name and shape of w.
        x
            What w multiplies.
        channels
            Whether w belongs to the first axes of one sample (channels), or to the last (features).
        """
        entries = prod(shape)

        def gradient(g: Tensor) -> Tensor:
            product = g * x
            if channels:
                return product.reshape(len(g), entries, -1).sum(2)
            return product.reshape(len(g), -1, entries).sum(1)

        return cls(weight, gradient, blocks=exact_blocks((entries,)))

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(self.blocks, -1, 1)

    def inputs(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[0], 1, 1, 1)

    def outputs(self, g: Tensor) -> Tensor:
        return self.gradient(g).reshape(g.shape[0], self.blocks, 1, -1)

    def input_gram(self, x: Tensor) -> Tensor:
        return x.new_full((1, 1, 1), float(x.shape[0]))

    def output_gram(self, g: Tensor) -> Tensor:
        return gradient_gram(self.gradient(g), self.blocks)


def gradient_gram(gradients: Tensor, blocks: int) -> Tensor:
    """Σ_n ĝ ĝᵀ of gradients (N, entries), in equal blocks: (blocks, D, D)."""
    if blocks == 1:
        return row_gram(gradients).unsqueeze(0)
    if blocks == gradients.shape[1]:
        return gradients.square().sum(0).reshape(blocks, 1, 1)
    return block_gram(gradients.reshape(len(gradients), blocks, 1, -1))
