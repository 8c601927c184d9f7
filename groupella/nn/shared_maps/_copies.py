"""One map for many groups of channels alike: their inputs and outputs are further positions."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._basis import BasisMap


@dataclass(frozen=True, eq=False)
class CopiedMap:
    """x (N, copies·C, …) → y (N, copies·C′, …): `one` maps each of the copies.

    Parameters
    ----------
    one
        A map of C to C′ channels, without groups.
    copies
        How many times it is applied to a sample, as the slowest part of the channels.
    """

    one: BasisMap
    copies: int

    @property
    def weight(self) -> str:
        return self.one.weight

    @property
    def positions(self) -> int:
        return self.copies * self.one.positions

    def as_blocks(self, weight: Tensor) -> Tensor:
        return self.one.as_blocks(weight)

    def inputs(self, x: Tensor) -> Tensor:
        return self._together(self.one.inputs(self._apart(x)))

    def outputs(self, g: Tensor) -> Tensor:
        return self._together(self.one.outputs(self._apart(g)))

    def input_gram(self, x: Tensor) -> Tensor:
        return self.one.input_gram(self._apart(x))

    def output_gram(self, g: Tensor) -> Tensor:
        return self.one.output_gram(self._apart(g))

    def _apart(self, x: Tensor) -> Tensor:
        n, channels, *sites = x.shape
        return x.reshape(n * self.copies, channels // self.copies, *sites)

    def _together(self, rows: Tensor) -> Tensor:
        """(N·copies, 1, S, D) → (N, 1, copies·S, D)."""
        return rows.reshape(-1, 1, self.positions, rows.shape[3])
