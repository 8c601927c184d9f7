"""What a shared linear map must be able to say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class SharedLinearMap(Protocol):
    """One matrix (or one per block) applied at S positions of every sample.

    With a = `inputs(x)` and g = `outputs(grad)`, the Kronecker factors of its curvature are
    A_b = Σ_{n,s} a aᵀ and G_b = Σ_{n,s} g gᵀ. `inputs` and `outputs` are the definition, written
    out; `input_gram` and `output_gram` are the same sums by the fastest way.
    """

    @property
    def weight(self) -> str:
        """The name of the parameter inside its module, such as "weight" or "theta1"."""

    @property
    def positions(self) -> int:
        """S, the number of positions per sample (and block)."""

    def as_blocks(self, weight: Tensor) -> Tensor:
        """The parameter's entries as (blocks, D_out, D_in); one block when U is dense."""

    def inputs(self, x: Tensor) -> Tensor:
        """(N, blocks_in, S, D_in) with blocks_in either 1 or blocks."""

    def outputs(self, g: Tensor) -> Tensor:
        """(N, blocks_out, S, D_out) with blocks_out either 1 or blocks."""

    def input_gram(self, x: Tensor) -> Tensor:
        """Σ_{n,s} a aᵀ: (blocks_in, D_in, D_in)."""

    def output_gram(self, g: Tensor) -> Tensor:
        """Σ_{n,s} g gᵀ: (blocks_out, D_out, D_out)."""


@runtime_checkable
class HasSharedMaps(Protocol):
    """A module that names the shared linear map of each of its own parameters."""

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        """Parameter name → map. Parameters of child modules belong to the children."""
