"""Dense matrices: one for all inputs (`LinearMap`), or one for each block (`BlockMap`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from ._grams import add_block_gram, block_gram, row_gram

Sharing = Literal["auto", "block", "sum"]
LARGEST_OWN = 512


@dataclass(frozen=True)
class LinearMap:
    """y = x Uᵀ along the last axis: x (N, *S, D_in) → y (N, *S, D_out).

    `positions` is the product of S. With S = 1 everything but the batch is one feature vector,
    which is the FC path: x (N, C, *sites) → y (N, C′, *sites′).
    """

    weight: str
    d_in: int
    d_out: int
    positions: int = 1

    def as_blocks(self, weight: Tensor) -> Tensor:
        return weight.reshape(1, self.d_out, self.d_in)

    def inputs(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], 1, self.positions, self.d_in)

    def outputs(self, g: Tensor) -> Tensor:
        return g.reshape(g.shape[0], 1, self.positions, self.d_out)

    def input_rows(self, x: Tensor) -> Tensor | None:
        """(1, N, D_in): the inputs themselves, where a sample has one."""
        return x.reshape(1, x.shape[0], self.d_in) if self.positions == 1 else None

    def input_gram(self, x: Tensor) -> Tensor:
        return row_gram(self.inputs(x)).unsqueeze(0)

    def output_gram(self, g: Tensor) -> Tensor:
        return row_gram(self.outputs(g)).unsqueeze(0)


@dataclass(frozen=True)
class BlockMap:
    """x (N, B, D_in) → y (N, B, D_out), y[n, b] = U_b x[n, b]; trailing axes are flattened.

    With `places` each block is applied at several positions: x (N, B, places, D_in).

    The two maps of a factored path are of this kind: θ₂(c′, c, p) has a block per input channel c,
    P → C′, and θ₁(c′, c, p′) one per output channel c′, C → P′.

    Parameters
    ----------
    weight, blocks, d_in, d_out
        The name of the parameter, and the sizes B, D_in and D_out.
    axes
        The order of the parameter's own axes, b for block, o for output, i for input: "obi" for
        θ₂, "bio" for θ₁.
    sharing
        How blocks share curvature. "block": H_b = 1/N A_b ⊗ G_b. "sum": one output factor for all,
        H_b = 1/(N·B) A_b ⊗ Σ_b G_b, far cheaper where D_out is large; the blocks then count as
        positions. "auto" is "block" up to D_out = 512 and "sum" beyond: "block" is closer to the
        exact curvature, but B decompositions of large matrices are slow. See docs/curvature.md.
    places
        The number of positions of each block.
    """

    weight: str
    blocks: int
    d_in: int
    d_out: int
    axes: str = "boi"
    sharing: Sharing = "auto"
    places: int = 1

    def __post_init__(self) -> None:
        if self.sharing not in get_args(Sharing):
            raise ValueError(f'sharing is "auto", "block" or "sum", got {self.sharing!r}.')
        if sorted(self.axes) != ["b", "i", "o"]:
            raise ValueError(f'axes must be a permutation of "boi", got {self.axes!r}.')

    @property
    def sums(self) -> bool:
        """Whether all blocks have one output factor."""
        return self.sharing == "sum" or (self.sharing == "auto" and self.d_out > LARGEST_OWN)

    @property
    def positions(self) -> int:
        return self.places * (self.blocks if self.sums else 1)

    def as_blocks(self, weight: Tensor) -> Tensor:
        size = {"b": self.blocks, "o": self.d_out, "i": self.d_in}
        w = weight.reshape([size[a] for a in self.axes])
        return w.permute([self.axes.index(a) for a in "boi"])

    def inputs(self, x: Tensor) -> Tensor:
        return x.reshape(x.shape[0], self.blocks, self.places, self.d_in)

    def outputs(self, g: Tensor) -> Tensor:
        z = g.reshape(g.shape[0], self.blocks, self.places, self.d_out)
        return z.flatten(1, 2).unsqueeze(1) if self.sums else z

    def input_rows(self, x: Tensor) -> Tensor | None:
        """(B, N, D_in): the inputs themselves, where a sample and block has one."""
        if self.places > 1:
            return None
        return x.reshape(x.shape[0], self.blocks, self.d_in).transpose(0, 1)

    def input_gram(self, x: Tensor) -> Tensor:
        return block_gram(self.inputs(x))

    def output_gram(self, g: Tensor) -> Tensor:
        return block_gram(self.outputs(g))

    def add_output_gram(self, total: Tensor, g: Tensor) -> Tensor:
        """total + output_gram(g), into `total`: many large matrices are not written twice."""
        shape = (1 if self.sums else self.blocks, self.d_out, self.d_out)
        if total.shape != shape:
            total = total.expand(shape).clone()
        add_block_gram(total, self.outputs(g))
        return total
