"""How the positions of a shared linear map enter its Kronecker factors.

A map is applied at S positions s of each sample n, with inputs a_ns and output gradients g_ns.

    expand   Σ_ns a_ns a_nsᵀ  ⊗  Σ_ns g_ns g_nsᵀ   (positions as if independent)
    reduce   Σ_n ā_n ā_nᵀ  ⊗  Σ_n g_n g_nᵀ         (ā_n the mean, g_n the sum over positions)

Eschenhagen et al. 2023, after Martens & Grosse 2015 and Grosse & Martens 2016. An entry of
`APPROXIMATIONS` is all that another one needs.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from groupella.nn.shared_maps import SharedLinearMap, Sharing


class Approximation(Protocol):
    """The factors of one batch of inputs or output gradients.

    For a map with one position it must give the grams of `Expand`, which has shortcuts there.
    """

    sharing: Sharing | None
    """How the blocks of a factored path share output factors; None leaves it to the path."""

    def terms(self, shared_map: SharedLinearMap) -> int:
        """Number of outer products per sample."""

    def input_gram(self, shared_map: SharedLinearMap, x: Tensor) -> Tensor:
        """The input factor (blocks, D_in, D_in) of the input x of a map."""

    def output_gram(self, shared_map: SharedLinearMap, g: Tensor) -> Tensor:
        """The output factor (blocks, D_out, D_out) of the gradient g of a map's output."""


class Expand:
    """Every position counts as a sample of its own."""

    sharing: Sharing | None = None

    def terms(self, shared_map: SharedLinearMap) -> int:
        return shared_map.positions

    def input_gram(self, shared_map: SharedLinearMap, x: Tensor) -> Tensor:
        return shared_map.input_gram(x)

    def output_gram(self, shared_map: SharedLinearMap, g: Tensor) -> Tensor:
        return shared_map.output_gram(g)


class Reduce:
    """Inputs are averaged over positions, and output gradients are summed."""

    # A block has one position: there is nothing to average, and blocks must not be summed.
    sharing: Sharing | None = "block"

    def terms(self, shared_map: SharedLinearMap) -> int:
        return 1

    def input_gram(self, shared_map: SharedLinearMap, x: Tensor) -> Tensor:
        mean = shared_map.inputs(x).mean(2)
        return torch.einsum("nbi,nbj->bij", mean, mean)

    def output_gram(self, shared_map: SharedLinearMap, g: Tensor) -> Tensor:
        total = shared_map.outputs(g).sum(2)
        return torch.einsum("nbi,nbj->bij", total, total)


APPROXIMATIONS: dict[str, Approximation] = {"expand": Expand(), "reduce": Reduce()}


def check_approximation(name: str) -> None:
    """Raise unless there is an approximation of that name."""
    if name not in APPROXIMATIONS:
        raise ValueError(
            f"approximation must be {' or '.join(map(repr, APPROXIMATIONS))}, got {name!r}."
        )
