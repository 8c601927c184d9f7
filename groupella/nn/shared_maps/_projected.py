"""Maps whose matrix is a product with fixed functions: U = Φ_out V Φ_inᵀ, V the parameter.

Sparse paths are of this kind: the weights are sums of anchors × basis functions. The factors of V
are those of U between the functions, A ← Φ_inᵀ A Φ_in and G ← Φ_outᵀ G Φ_out. (A module that
projects in its forward pass can record the projected tensors with a plain map instead.)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._protocol import SharedLinearMap


@dataclass(frozen=True, eq=False)
class ProjectedMap:
    """`inner` describes V (its d_in, d_out are anchors); `raw` describes U (points)."""

    inner: SharedLinearMap
    raw: SharedLinearMap
    input_functions: Tensor | None = None
    output_functions: Tensor | None = None

    @property
    def weight(self) -> str:
        return self.inner.weight

    @property
    def positions(self) -> int:
        return self.raw.positions

    def as_blocks(self, weight: Tensor) -> Tensor:
        return self.inner.as_blocks(weight)

    def inputs(self, x: Tensor) -> Tensor:
        z = self.raw.inputs(x)
        return z if self.input_functions is None else z @ self.input_functions

    def outputs(self, g: Tensor) -> Tensor:
        z = self.raw.outputs(g)
        return z if self.output_functions is None else z @ self.output_functions

    def input_gram(self, x: Tensor) -> Tensor:
        return _between(self.raw.input_gram(x), self.input_functions)

    def output_gram(self, g: Tensor) -> Tensor:
        return _between(self.raw.output_gram(g), self.output_functions)


def _between(gram: Tensor, functions: Tensor | None) -> Tensor:
    return gram if functions is None else functions.mT @ gram @ functions
