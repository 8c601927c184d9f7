"""Parameters that add to the output: their blocks are exact.

A bias is added at many positions, so its gradient is the sum of the output gradient g over them. A
hyperparameter ω inside a layer has the gradient ⟨g, ∂y/∂ω⟩. In both cases the "input" is the
constant 1 at one position, A = N, and 1/(N·S) A ⊗ G = Σ_n ĝ ĝᵀ, with ĝ the parameter's gradient for
one sample, is the GGN block itself, not an approximation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ._grams import row_gram


@dataclass(frozen=True, eq=False)
class BiasMap:
    """A parameter whose gradient is a linear function of the output gradient alone.

    Parameters
    ----------
    weight
        The name of the parameter.
    gradient
        Maps an output gradient (N, …) to the parameter's gradient for each sample, (N, entries).
    """

    weight: str
    gradient: Callable[[Tensor], Tensor]
    positions: int = 1

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

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, weight.numel(), 1)

    def inputs(self, x: Tensor) -> Tensor:
        return x.new_ones(x.shape[0], 1, 1, 1)

    def outputs(self, g: Tensor) -> Tensor:
        return self.gradient(g)[:, None, None, :]

    def input_gram(self, x: Tensor) -> Tensor:
        return x.new_full((1, 1, 1), float(x.shape[0]))

    def output_gram(self, g: Tensor) -> Tensor:
        return row_gram(self.gradient(g)).unsqueeze(0)
