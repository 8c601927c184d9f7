"""Nonlinear maps of scalars, vectors and tensors that commute with any matrix group.

Gated: every summand t of the fibre becomes t σ(a) with a scalar a of its own, its gate. So do
scalars: where gates are constant, polynomials stay polynomials. Products: t ⊗ u of all pairs of
summands of one channel; a linear layer after it is bilinear in the features, and its curvature is
that of the linear layer. Neither needs a norm, so both commute with boosts and scalings as well as
with rotations (Finzi, Welling and Wilson 2021, who gate scalars by themselves).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from groupella.groups import SCALAR, FeatureSpace, Tensors


def summands(space: FeatureSpace) -> tuple[npt.NDArray[np.intp], list[bool]]:
    """The number of the summand of every component of the fibre, and which summands are scalars.

    Raises
    ------
    ValueError
        If the fibre is not a sum of tensors of a symmetry defined by generators.
    """
    if space.ambient.is_catalogue:
        raise ValueError(
            f"expected features of a symmetry defined by generators or a Lie algebra, whose fibre "
            f"is a sum of tensors such as V*V + V; got {space}"
        )
    tensors = space.fibre.tensors
    sizes = tensors.sizes(space.ambient.layout)
    return np.repeat(np.arange(len(sizes)), sizes), [not term for term in tensors.terms]


class Gated(nn.Module):
    """Multiply every summand of the fibre by the sigmoid of a scalar.

    Parameters
    ----------
    space
        The output features, whose fibre is a sum of tensors such as ``V*V + V + SCALAR``.

    Attributes
    ----------
    space_in
        The input features: `space` with one more scalar for every summand.

    Raises
    ------
    ValueError
        If the fibre is no sum of tensors.
    """

    gates: Tensor

    def __init__(self, space: FeatureSpace) -> None:
        super().__init__()
        number, scalar = summands(space)
        self.space_out = space
        self.space_in = space.with_fibre(space.fibre.tensors + len(scalar) * SCALAR)
        gates = [space.fibre_size + int(k) for k in number]
        self.register_buffer("gates", torch.tensor(gates), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        fibres = x.reshape(x.shape[0], self.space_in.channels, -1, *x.shape[2:])
        gated = fibres[:, :, : len(self.gates)] * torch.sigmoid(fibres[:, :, self.gates])
        return gated.reshape(x.shape[0], *self.space_out.shape)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}"


class Products(nn.Module):
    """The tensor product of every channel with itself, each pair of summands once.

    Parameters
    ----------
    space
        The input features, whose fibre is a sum of tensors.
    rank
        The largest number of factors of a product; by default there is no limit. Bases for large
        products are large: without one, a product of two V*V needs maps of V⁶.

    Attributes
    ----------
    space_out
        The output features: a summand t*u for all summands t and u of `space`, u not before t.

    Raises
    ------
    ValueError
        If the fibre is no sum of tensors.
    """

    left: Tensor
    right: Tensor

    def __init__(self, space: FeatureSpace, rank: int | None = None) -> None:
        super().__init__()
        number, scalar = summands(space)
        terms = space.fibre.tensors.terms
        pairs = [
            (i, j)
            for i, one in enumerate(terms)
            for j, other in enumerate(terms)
            if i <= j and (rank is None or len(one) + len(other) <= rank)
        ]
        if not pairs:
            raise ValueError(f"no product of two summands of {space.fibre} has a rank up to {rank}")
        fibre = Tensors(tuple((*terms[i], *terms[j]) for i, j in pairs))
        self.space_in, self.space_out = space, space.with_fibre(fibre)
        places = [np.flatnonzero(number == k) for k in range(len(scalar))]
        left = np.concatenate([np.repeat(places[i], len(places[j])) for i, j in pairs])
        right = np.concatenate([np.tile(places[j], len(places[i])) for i, j in pairs])
        self.register_buffer("left", torch.from_numpy(left), persistent=False)
        self.register_buffer("right", torch.from_numpy(right), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        fibres = x.reshape(x.shape[0], self.space_in.channels, -1, *x.shape[2:])
        products = fibres[:, :, self.left] * fibres[:, :, self.right]
        return products.reshape(x.shape[0], *self.space_out.shape)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}"
