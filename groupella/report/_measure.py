"""What a report shows of a network itself: its layers' equivariance errors and its filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from groupella.harden import FactoredMatrix, Filter, plain_weights
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import FullyConnected
from groupella.testing import equivariance_error

from ._content import FilterPicture, FloatArray, LayerError

LARGEST_MATRIX = 2_000_000


def layer_errors(
    network: nn.Module, *, batch: int = 2, elements: int = 4, seed: int = 0
) -> dict[tuple[str, str], float]:
    """Relative equivariance error of every layer under every non-trivial member: (layer, group).

    Measured on random inputs, up to a translation where the layer pools.
    """
    found: dict[tuple[str, str], float] = {}
    for name, layer in _layers(network):
        for member in layer.groups:
            if member.is_trivial:
                continue
            error = equivariance_error(
                layer,
                layer.space_in,
                layer.space_out,
                member,
                batch=batch,
                elements=elements,
                seed=seed,
                up_to_translation=layer.stride == 2,
            )
            found[name, member.name] = float(error)
    return found


def paired(
    before: Mapping[tuple[str, str], float],
    after: Mapping[tuple[str, str], float],
    network: nn.Module,
) -> tuple[LayerError, ...]:
    """Two measurements of the layers of `network` side by side."""
    pooling = {name for name, layer in _layers(network) if layer.stride == 2}
    keys = dict.fromkeys([*before, *after])
    return tuple(
        LayerError(*key, before.get(key), after.get(key), key[0] in pooling) for key in keys
    )


def filter_pictures(network: nn.Module, most: int = 8) -> tuple[FilterPicture, ...]:
    """The `most` largest filters of every path on images; other lattices have no pictures.

    A convolution shows kernels from one input to one output component. A factored path shows what
    it looks for, θ₂(c′, c, ·), times the size of what it answers with; any other path the rows of
    its matrix, as maps over the input sites.
    """
    pictures = []
    for name, layer in _layers(network):
        if layer.space_in.lattice.dim != 2:
            continue
        for path_name, path in layer.paths.items():
            found = _filters_of(path)
            if found is not None:
                kind, filters = found
                pictures.append(FilterPicture(name, path_name, kind, _largest(filters, most)))
    return tuple(pictures)


def _layers(network: nn.Module) -> Iterable[tuple[str, ResidualPathway]]:
    return ((n, m) for n, m in network.named_modules() if isinstance(m, ResidualPathway))


def _filters_of(path: Any) -> tuple[str, FloatArray] | None:
    space_in, space_out = path.space_in, path.space_out
    sides: Sequence[int] = space_in.lattice.shape
    factored = hasattr(path, "theta1")
    convolution = path.symmetry.translations and space_in.lattice == space_out.lattice
    as_it_is = factored or convolution or isinstance(path, FullyConnected)
    if not as_it_is and space_in.size * space_out.size > LARGEST_MATRIX:
        return None
    with torch.no_grad():
        weights = plain_weights(path)
        if isinstance(weights, Filter):
            return "kernels", weights.weight.flatten(0, 1).numpy()
        if isinstance(weights, FactoredMatrix):
            answer = weights.theta1.flatten(2).norm(dim=2)[..., None]
            seen = weights.theta2.flatten(2) * answer
            first = seen[..., : space_in.lattice.size]
            return "maps", first.reshape(-1, *sides).numpy()
        rows = weights.weight.reshape(-1, *sides)
        return "maps", rows.numpy()


def _largest(filters: FloatArray, most: int) -> FloatArray:
    sizes = np.einsum("fxy,fxy->f", filters, filters)  # a large matrix is not copied
    order = np.argsort(-sizes, kind="stable")[:most]
    return np.asarray(filters[order], dtype=np.float64)
