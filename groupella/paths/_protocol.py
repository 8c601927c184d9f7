"""What a layer asks of a path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from groupella.groups import FeatureSpace, Symmetry
from groupella.shared_maps import SharedLinearMap


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
