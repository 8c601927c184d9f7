"""Into the fibre, out of it, and out of the lattice."""

from __future__ import annotations

from typing import Literal, get_args

from torch import Tensor, nn

from groupella.groups import FeatureSpace, Lattice
from groupella.nn._constant import Constant
from groupella.nn._invariants import invariant_vectors, permutes_sites

FibrePooling = Literal["max", "mean", "norm"]
SitePooling = Literal["mean", "max"]


class NoInvariantVectorError(ValueError):
    """A fibre that scalars cannot be lifted to."""


class Lift(nn.Module):
    """Scalar channels to channels with a fibre: x(c, p) at every fibre element.

    y(c, f, p) = v(f) x(c, p) with v the invariant vector of the fibre, which is 1 everywhere on a
    regular one.

    Parameters
    ----------
    space_in
        Features with a trivial fibre.
    fibre
        The fibre of the output, as in `GroupSet.space`; the regular representation by default.

    Raises
    ------
    NoInvariantVectorError
        If the fibre has no invariant vector, such as a non-trivial irrep.
    """

    def __init__(self, space_in: FeatureSpace, fibre: object = None) -> None:
        super().__init__()
        if space_in.fibre_size != 1 or not space_in.fibre_permutes:
            raise ValueError(f"Lift takes channels with a trivial fibre, got {space_in.fibre}")
        self.space_in = space_in
        self.space_out = space_in.with_fibre(fibre)
        vectors = invariant_vectors(self.space_out.with_lattice(Lattice(())))
        if not len(vectors):
            raise NoInvariantVectorError(
                f"Lift: the fibre {self.space_out.fibre} has no invariant vector; lift to a "
                "regular or trivial one"
            )
        self._vector = Constant(vectors.sum(0))

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        vector = self._vector.like(x).view(1, -1, *[1] * (x.dim() - 2))
        return (x.unsqueeze(2) * vector.unsqueeze(1)).flatten(1, 2)


class GroupPool(nn.Module):
    """Channels with a fibre to scalar channels, invariantly.

    Parameters
    ----------
    space_in
        The features to pool.
    mode
        "max" or "mean" over the fibre, which the ambient group must permute, or its ℓ2 "norm".
    """

    def __init__(self, space_in: FeatureSpace, mode: FibrePooling = "max") -> None:
        super().__init__()
        if mode not in get_args(FibrePooling):
            raise ValueError(f"GroupPool: mode must be max, mean or norm, got {mode!r}")
        if mode != "norm" and not space_in.fibre_permutes:
            raise ValueError(
                f"GroupPool: {mode} over a fibre needs one that the group permutes, and "
                f"{space_in.fibre} is not; use mode='norm'"
            )
        self.space_in, self.space_out = space_in, space_in.with_fibre("trivial")
        self.mode: FibrePooling = mode

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        fibres = x.reshape(x.shape[0], self.space_in.channels, -1, *x.shape[2:])
        if self.mode == "max":
            return fibres.amax(2)
        return fibres.mean(2) if self.mode == "mean" else fibres.norm(dim=2)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, mode={self.mode!r}"


class GlobalPool(nn.Module):
    """Mean or maximum over all sites: features on the lattice (), (batch, channels·fibre).

    Parameters
    ----------
    space_in
        The features to pool; the ambient group must permute the sites.
    mode
        "mean" or "max".
    """

    def __init__(self, space_in: FeatureSpace, mode: SitePooling = "mean") -> None:
        super().__init__()
        if mode not in get_args(SitePooling):
            raise ValueError(f"GlobalPool: mode must be mean or max, got {mode!r}")
        if not permutes_sites(space_in):
            raise ValueError(
                f"GlobalPool: {space_in.ambient} does more to the sites than permute them, so "
                "that no mean or maximum over them is invariant"
            )
        self.space_in, self.space_out = space_in, space_in.with_lattice(Lattice(()))
        self.mode: SitePooling = mode

    def forward(self, x: Tensor) -> Tensor:
        self.space_in.check(x)
        if x.dim() == 2:
            return x
        axes = tuple(range(2, x.dim()))
        return x.mean(axes) if self.mode == "mean" else x.amax(axes)

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, mode={self.mode!r}"
