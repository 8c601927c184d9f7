"""Polyphase pooling: subsampling that commutes with the group.

Of the s^d polyphase components of a sample the one of the largest norm is kept, one choice for all
channels and fibre elements. Point-group elements (about the array centre) permute the components
and pool(g·x) = g·pool(x) exactly; a shift of the input by a multiple of s is 1/s of it in the
output, any other one a shift that depends on the phases chosen. Where components are tied the
choice still moves along (`_pattern.py`), except between those that a symmetry of the sample itself
exchanges: there any choice gives the same output up to an element of the ambient group, or of the
last of the `smaller` groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry
from groupella.nn._invariants import permutes_fibre_up_to_signs

from ._pattern import pattern_on
from ._phases import NORMS, Norm, check_sides, choose_phase, take_phase


class PolyphasePool(nn.Module):
    """Divide every side of the lattice by the stride; the phase is chosen for each sample.

    A group without translations fixes the centre. On sides of 1 + stride·m sites it needs no choice
    then: the first, the last and every stride-th site between them are taken.

    Parameters
    ----------
    space
        The features to pool, on a torus whose sides the stride divides.
    norm
        "inf" (default), "l1" or "l2". The maximum does not depend on the order of summation, so
        rotations permute the choice exactly; ties go to the larger ℓ2 norm, then to the better
        match with a fixed pattern. Norms tie if they differ by less than ε^0.6 of the larger one, ε
        the precision: 4e-10 in float64, 7e-5 in float32. Where they differ by this threshold, up to
        rounding, a sample and its moved copy may choose differently. On a fibre that the ambient
        group does not permute (up to signs), the entry of a channel at a site is the ℓ2 norm of its
        fibre.
    smaller
        Catalogue groups with translations, each inside the one before it, that layers above may
        obey instead of the ambient group. Where a symmetry of the sample exchanges phases, one of
        them is chosen that such layers, too, see move with the sample.
    stride
        2, or more.

    Raises
    ------
    ValueError
        If the stride does not divide a side, or if the ambient symmetry is defined by generators.

    References
    ----------
    Chaman and Dokmanić, "Truly shift-invariant convolutional neural networks", CVPR 2021.
    """

    def __init__(
        self,
        space: FeatureSpace,
        norm: Norm = "inf",
        smaller: Sequence[Symmetry] = (),
        stride: int = 2,
    ) -> None:
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f"PolyphasePool: norm must be one of {NORMS}, got {norm!r}")
        if not space.ambient.is_catalogue:
            raise ValueError(
                f"PolyphasePool: {space.ambient} is defined by generators on {space.lattice} and "
                "does not act on the pooled lattice; use stride=1"
            )
        sides = space.lattice.shape
        self.is_fixed = (
            bool(sides) and not space.ambient.translations and all(n % stride == 1 for n in sides)
        )
        if not self.is_fixed:
            check_sides(sides, stride)
        self.space_in, self.stride = space, stride
        self.space_out = space.with_lattice(tuple(-(-n // stride) for n in sides))
        self.norm: Norm = norm
        self.pattern = pattern_on(space, smaller=smaller)
        self._fibre = 1 if permutes_fibre_up_to_signs(space) else space.fibre_size

    def choose(self, x: Tensor) -> Tensor:
        """The phase of each sample, (batch,), numbered with the last axis fastest."""
        self.space_in.check(x)
        if self.is_fixed:
            return torch.zeros(len(x), dtype=torch.long, device=x.device)
        return choose_phase(x, self.norm, self._fibre, self.pattern, self.stride)

    def take(self, x: Tensor, phase: Tensor) -> Tensor:
        """The component phase[n] of sample n."""
        if self.is_fixed:
            whole, steps = slice(None), [slice(None, None, self.stride)]
            where: tuple[slice, ...] = (whole, whole, *steps * self.space_in.lattice.dim)
            return x[where]
        return take_phase(x, phase, self.stride)

    def forward(self, x: Tensor) -> Tensor:
        return self.take(x, self.choose(x))

    def extra_repr(self) -> str:
        text = f"{self.space_in.shape} -> {self.space_out.shape}, norm={self.norm!r}"
        return text if self.stride == 2 else f"{text}, stride={self.stride}"
