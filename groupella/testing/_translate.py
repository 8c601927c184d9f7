"""Aligning tensors by translations of their torus, one translation per sample.

For samples a, b over the same torus the translation t that minimises ‖a − T_t b‖² is the one that
maximises the cross-correlation ⟨a, T_t b⟩, because ‖T_t b‖ does not depend on t. All of them are
found at once with the FFT; the comparison that follows is made with an exact shift, never with the
transformed values.
"""

from __future__ import annotations

import torch
from torch import Tensor


def best_translation(target: Tensor, moved: Tensor) -> Tensor:
    """The translation, (batch, dim), that brings each sample of `moved` closest to `target`.

    target, moved: (batch, channels, *lattice), on a torus of one dimension or more.
    """
    lattice = target.shape[2:]
    axes = tuple(range(2, target.ndim))
    a = torch.fft.fftn(target.double(), dim=axes)
    b = torch.fft.fftn(moved.double(), dim=axes)
    overlap = torch.fft.ifftn((a * b.conj()).sum(1), dim=tuple(axis - 1 for axis in axes)).real
    site = overlap.flatten(1).argmax(1)
    return torch.stack(torch.unravel_index(site, lattice), 1)


def translate(x: Tensor, shifts: Tensor) -> Tensor:
    """Shift each sample of x: (batch, channels, *lattice) by its row of shifts: (batch, dim)."""
    lattice = x.shape[2:]
    source = torch.zeros((len(x), *(1 for _ in lattice)), dtype=torch.long, device=x.device)
    for axis, size in enumerate(lattice):
        coordinate = (torch.arange(size, device=x.device) - shifts[:, axis, None]) % size
        view = [len(x), *(size if a == axis else 1 for a in range(len(lattice)))]
        source = source * size + coordinate.view(view)
    index = source.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, index).view_as(x)
