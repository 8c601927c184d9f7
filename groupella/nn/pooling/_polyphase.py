"""Polyphase pooling: stride-2 subsampling that commutes with the group.

Of the 2^d polyphase components of a sample the one of the largest norm is kept, one choice for all
channels and fibre elements. Point-group elements (about the array centre) permute the components
and pool(g·x) = g·pool(x) exactly; an even shift of the input is half of it in the output, an odd
one a shift that depends on the phases chosen. Where components are tied the choice still moves
along (`_pattern.py`), except between those that a symmetry of the sample itself exchanges: there
any choice gives the same output up to an element of the ambient group.
"""

from __future__ import annotations

from torch import Tensor, nn

from groupella.groups import FeatureSpace
from groupella.nn._invariants import permutes_fibre_up_to_signs

from ._pattern import pattern_on
from ._phases import NORMS, Norm, check_even, choose_phase, take_phase


class PolyphasePool(nn.Module):
    """Halve every side of the lattice; the phase is chosen for each sample on its own.

    Parameters
    ----------
    space
        The features to pool, on a torus of even sides.
    norm
        "inf" (default), "l1" or "l2". The maximum does not depend on the order of summation, so
        rotations permute the choice exactly; ties go to the larger ℓ2 norm, then to the better
        match with a fixed pattern. On a fibre that the ambient group does not permute (up to
        signs), the entry of a channel at a site is the ℓ2 norm of its fibre.

    Raises
    ------
    ValueError
        If a side is odd, or if the ambient symmetry is defined by generators.

    References
    ----------
    Chaman and Dokmanić, "Truly shift-invariant convolutional neural networks", CVPR 2021.
    """

    def __init__(self, space: FeatureSpace, norm: Norm = "inf") -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"PolyphasePool: norm must be one of {NORMS}, got {norm!r}")
        if not space.ambient.is_catalogue:
            raise ValueError(
                f"PolyphasePool: {space.ambient} is defined by generators on {space.lattice} and "
                "does not act on the pooled lattice; use stride=1"
            )
        check_even(space.lattice.shape)
        self.space_in = space
        self.space_out = space.with_lattice(tuple(s // 2 for s in space.lattice.shape))
        self.norm: Norm = norm
        self.pattern = pattern_on(space)
        self._fibre = 1 if permutes_fibre_up_to_signs(space) else space.fibre_size

    def choose(self, x: Tensor) -> Tensor:
        """The phase of each sample, (batch,), numbered with the last axis fastest."""
        self.space_in.check(x)
        return choose_phase(x, self.norm, self._fibre, self.pattern)

    def forward(self, x: Tensor) -> Tensor:
        return take_phase(x, self.choose(x))

    def extra_repr(self) -> str:
        return f"{self.space_in.shape} -> {self.space_out.shape}, norm={self.norm!r}"
