"""What a layer asks of a path, and what a path may promise besides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from groupella.groups import FeatureSpace, Symmetry
from groupella.nn.shared_maps import SharedLinearMap


@runtime_checkable
class Path(Protocol):
    """A linear map between two feature spaces; an `nn.Module`.

    `symmetry` is the group to which the path is equivariant whatever its weights: `trivial()` for
    a free path. A path may also have `hyperparameters`, {parameter name: "lengthscale" or
    "position"}: parameters that the evidence learns. A lengthscale may have a prior of its own,
    and then needs a map; positions have none.
    """

    space_in: FeatureSpace
    space_out: FeatureSpace
    symmetry: Symmetry

    def __call__(self, x: Tensor) -> Tensor:
        """(batch, *space_in.shape) to (batch, *space_out.shape)."""

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        """The shared linear map of each of the path's own parameters."""

    def reset_parameters(self, gain: float) -> None:
        """Draw new weights: an input of unit second moment gives output of variance gain²."""


@runtime_checkable
class Convolution(Protocol):
    """A path that promises to be one circular convolution.

    Its `forward(x)` equals `circular_conv(x, self.filter(), self.filter_bias())`, apart from what
    it records. A layer may then add its filter to those of other such paths and convolve once. A
    subclass that overrides `forward` promises nothing unless it overrides both methods too.
    """

    def filter(self) -> Tensor:
        """(C'·F', C·F, *odd window), differentiable in the path's parameters."""

    def filter_bias(self) -> Tensor | None:
        """(C'·F',), or None."""
