"""Steerable kernels: convolutions that obey turns of an image by angles that no grid has.

On the plane, W obeys the turns R by 360°/n if W(R δ)[f′ + s′, f + s] = W(δ)[f′, f], where R takes
fibre element f to f + s. So one function κ of the plane for each orbit of pairs (f′, f) determines
W. Here κ is a combination of

    ψ(r, φ) = exp(−(r − ρ)²/2σ²) {1, cos mφ, sin mφ},    ρ = 0, 1, …, (k − 1)/2,    m ≤ 2ρ,

as in Weiler and Cesa 2019 (escnn). Higher frequencies would alias on a ring of so few pixels. W is
turned as a function and then sampled: quarter turns are exact, other turns to within what sampling
costs, which `groupella.testing.turning_error` measures.
"""

from __future__ import annotations

import numpy as np

from groupella.groups import FeatureSpace, Symmetry

from ._arrays import FloatArray

_WIDTH, _LAST_WIDTH = 0.6, 0.4  # σ of rings; the last one must fade out within the window
_ZERO = 1e-6


def turned_kernels(
    space_in: FeatureSpace, space_out: FeatureSpace, symmetry: Symmetry, side: int
) -> FloatArray:
    """Orthonormal rows (dimension, fibre_out · fibre_in · side²) of kernels that obey the turns.

    Raises
    ------
    ValueError
        If a fibre is neither trivial nor the regular one of turns that contain those of `symmetry`,
        or if the symmetry has reflections.
    """
    n = symmetry.sampled_turns
    sizes = [_turns(space, symmetry, n) for space in (space_out, space_in)]
    steps = [size // n if size > 1 else 0 for size in sizes]
    functions = _functions(side, n)  # (turn, function, pixel)
    found: list[FloatArray] = []
    seen: set[tuple[int, ...]] = set()
    for first in np.ndindex(*sizes):
        orbit = [
            tuple((f + t * step) % size for f, step, size in zip(first, steps, sizes, strict=True))
            for t in range(n)
        ]
        if seen.intersection(orbit):
            continue
        seen.update(orbit)
        kernels = np.zeros((functions.shape[1], *sizes, side * side))
        for t, (f_out, f_in) in enumerate(orbit):
            kernels[:, f_out, f_in] += functions[t]
        _, values, rows = np.linalg.svd(kernels.reshape(len(kernels), -1), full_matrices=False)
        found.append(rows[values > _ZERO * values.max()])
    return np.concatenate(found)


def _turns(space: FeatureSpace, symmetry: Symmetry, n: int) -> int:
    """The size of a fibre that the turns are known to act on."""
    turns = space.fibre.turns
    if len(symmetry.point) != 4:
        raise ValueError(
            f"{symmetry} has reflections beside turns by other angles, for which there are no "
            "kernels; leave the reflections out"
        )
    if turns is None or (turns > 1 and turns % n):
        raise ValueError(
            f"kernels of {symmetry} are for the fibres 'trivial' and 'regular' of {n} turns or a "
            f"multiple, got {space.fibre}"
        )
    return turns


def _functions(side: int, n: int) -> FloatArray:
    """ψ on the window, turned by t · 360°/n: (n, functions, pixels)."""
    away = np.arange(side) - (side - 1) / 2
    x, y = np.meshgrid(away, -away)  # columns run to the right, rows downwards
    r, phi = np.hypot(x, y).ravel(), np.arctan2(y, x).ravel()
    last = (side - 1) // 2
    found = []
    for ring in range(last + 1):
        sigma = _LAST_WIDTH if ring == last else _WIDTH
        profile = np.exp(-((r - ring) ** 2) / (2 * sigma**2))
        for m in range(2 * ring + 1):
            angles = m * (phi - 2 * np.pi / n * np.arange(n)[:, None])
            # At the centre only a constant is the same from all sides.
            radial = profile if m == 0 else np.where(r > 0, profile, 0.0)
            found += [radial * np.cos(angles)] + ([radial * np.sin(angles)] if m else [])
    return np.stack(found, 1)
