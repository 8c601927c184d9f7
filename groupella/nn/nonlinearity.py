"""Nonlinearities that commute with the group.

A function of single entries commutes with permutations of them, an odd one also with signs; on any
other fibre it would break the symmetry. There the norm of a fibre may be changed and its direction
kept, y = x η(|x|) / |x|, which commutes with every orthogonal fibre. None has parameters.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.groups import FeatureSpace
from groupella.nn._invariants import permutes_fibre_up_to_signs, permutes_sites

ENTRYWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "identity": lambda x: x,
}
ODD = ("tanh", "identity")
NORMS = ("squash", "norm_swish")


class Pointwise(nn.Module):
    """A function of single entries.

    Parameters
    ----------
    space
        The features it acts on.
    function
        "relu", "elu", "gelu", "silu", "softplus", "sigmoid", "tanh" or "identity".

    Raises
    ------
    ValueError
        If the function is unknown, or if it is not equivariant on this fibre.
    """

    def __init__(self, space: FeatureSpace, function: str = "relu") -> None:
        super().__init__()
        if function not in ENTRYWISE:
            raise ValueError(_unknown(function))
        self.space_in = self.space_out = space
        self.function = function
        if function == "identity" or permutes_entries(space):
            return
        signed = permutes_sites(space, signs=True) and permutes_fibre_up_to_signs(space)
        if function in ODD and signed:
            return
        raise ValueError(
            f"{function} on single entries is not equivariant on {space}: the group does not "
            "merely permute them. Use nonlinearity 'squash' or 'norm_swish', which change the norm "
            "of a fibre, or a regular or trivial fibre"
        )

    def forward(self, x: Tensor) -> Tensor:
        return ENTRYWISE[self.function](x)

    def extra_repr(self) -> str:
        return self.function


class FibreNorm(nn.Module):
    """x η(r) / r for every fibre x, r = |x|.

    Parameters
    ----------
    space
        The features it acts on; the group must permute the sites, up to signs.
    function
        "squash", η = r / (1 + r), or "norm_swish", η = r σ(r).
    """

    def __init__(self, space: FeatureSpace, function: str = "squash") -> None:
        super().__init__()
        if function not in NORMS:
            raise ValueError(_unknown(function))
        if not permutes_sites(space, signs=True):
            raise ValueError(f"{function}: the group of {space} mixes sites, not only fibres")
        if not space.ambient.is_catalogue and not space.ambient.is_orthogonal:
            raise ValueError(
                f"{function} changes the norm of a fibre, and {space.ambient} is not compact: it "
                "keeps no norm. Use groupella.nn.tensors.Gated"
            )
        self.space_in = self.space_out = space
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        fibres = x.reshape(x.shape[0], self.space_in.channels, -1, *x.shape[2:])
        squared = fibres.square().sum(2, keepdim=True)
        # The norm has an infinite slope at 0; x times a function of the norm does not.
        norm = (squared + torch.finfo(x.dtype).tiny).sqrt()
        factor = 1 / (1 + norm) if self.function == "squash" else torch.sigmoid(norm)
        return (fibres * factor).reshape(x.shape)

    def extra_repr(self) -> str:
        return self.function


def permutes_entries(space: FeatureSpace) -> bool:
    """Whether the group merely permutes the entries of a feature, without signs."""
    return space.fibre_permutes and permutes_sites(space)


def nonlinearity(space: FeatureSpace, function: str = "relu") -> nn.Module:
    """The nonlinearity of that name, as a module without parameters.

    Parameters
    ----------
    space
        The features it acts on.
    function
        One of "relu", "elu", "gelu", "silu", "softplus", "sigmoid", "tanh", "identity" (entry by
        entry), "squash", "norm_swish" (by the norm of a fibre).

    Raises
    ------
    ValueError
        If the function is unknown, or if it is not equivariant on this fibre.
    """
    if function in ENTRYWISE:
        return Pointwise(space, function)
    if function in NORMS:
        return FibreNorm(space, function)
    raise ValueError(_unknown(function))


def _unknown(function: str) -> str:
    known = [*ENTRYWISE, *NORMS]
    near = difflib.get_close_matches(str(function), known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"unknown nonlinearity {function!r}{hint} Known: {', '.join(known)}"
