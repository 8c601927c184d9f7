"""The parts of a network that obeys turns of an image by angles that no grid has.

    disc → (steerable convolution → normalisation → ReLU → blurred halving), several times

on the regular fibre of the turns, see `groupella.nn.turning` and `groupella.bases.kernel_basis`.
Quarter turns are exact. The others are obeyed to within what sampling and the ReLU cost, which
`groupella.testing.turning_error` measures.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from groupella.groups import FeatureSpace, GroupSet, Lattice, Symmetry
from groupella.nn.layer import ResidualPathway
from groupella.nn.nonlinearity import nonlinearity
from groupella.nn.normalisation import ChannelNorm
from groupella.nn.turning import BlurPool

WINDOW = 5
SHARE = 8  # of the planned channels times fibre, one in so many is a channel


def turning_layers(
    symmetry: Symmetry, space: FeatureSpace, plan: Sequence[tuple[int, bool]]
) -> tuple[dict[str, list[nn.Module]], FeatureSpace]:
    """Layers, normalisations, activations and pooling of `InvariantNet`, and the last features.

    Parameters
    ----------
    symmetry
        Turns with translations.
    space
        The inputs, with a trivial fibre.
    plan
        For each layer channels times fibre, and whether the sides are halved after it. More turns
        than eight do not make channels fewer.
    """
    groups = GroupSet(symmetry)
    parts: dict[str, list[nn.Module]] = {n: [] for n in ("layers", "norms", "activations", "pools")}
    for number, (channels, halve) in enumerate(plan):
        after = groups.space(space.lattice, max(channels // SHARE, 2))
        layer = ResidualPathway(
            space, after, groups, kernel_size=WINDOW, offsets=False, padding="zeros"
        )
        parts["layers"].append(layer)
        parts["norms"].append(ChannelNorm(after))
        activation = nonlinearity(after, "relu")
        space = after
        if halve and number + 1 < len(plan):
            # After the ReLU, whose fine detail the blur takes away before pixels are left out.
            activation = nn.Sequential(activation, BlurPool(after.shape[0]))
            space = after.with_lattice(Lattice(tuple(n // 2 for n in after.lattice.shape)))
        parts["activations"].append(activation)
        parts["pools"].append(nn.Identity())
    return parts, space
