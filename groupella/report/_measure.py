"""Measure what a report shows of a network: equivariance errors of its layers, and filters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from groupella.harden import FactoredMatrix, Filter, Matrix, plain_weights
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import FullyConnected, TiedFilter
from groupella.testing import equivariance_error

from ._content import FilterPicture, FloatArray, Kind, LayerError

LARGEST_MATRIX = 2_000_000  # entries of a matrix that is built only for its picture


def layer_errors(
    network: nn.Module, *, batch: int = 2, elements: int = 4, seed: int = 0
) -> dict[tuple[str, str], float]:
    """Return (layer, group) → relative equivariance error of every layer under every group.

    Errors are measured on random inputs, up to a translation if the layer pools. Groups without
    any symmetry are left out.

    Parameters
    ----------
    network
        A network with residual-pathway layers.
    batch, elements, seed
        Number of inputs, number of random group elements, and the random seed of both.
    """
    return {
        (name, group.name): float(
            equivariance_error(
                layer,
                layer.space_in,
                layer.space_out,
                group,
                batch=batch,
                elements=elements,
                seed=seed,
                up_to_translation=layer.stride == 2,
            )
        )
        for name, layer in _layers(network)
        for group in layer.groups
        if not group.is_trivial
    }


def paired(
    before: Mapping[tuple[str, str], float],
    after: Mapping[tuple[str, str], float],
    network: nn.Module,
) -> tuple[LayerError, ...]:
    """Return two results of `layer_errors` for `network` side by side."""
    pooling = {name for name, layer in _layers(network) if layer.stride == 2}
    keys = dict.fromkeys([*before, *after])
    return tuple(
        LayerError(*key, before.get(key), after.get(key), key[0] in pooling) for key in keys
    )


def filter_pictures(network: nn.Module, most: int = 8) -> tuple[FilterPicture, ...]:
    """Return the `most` largest filters of every path; only layers on images have any.

    A convolution shows its kernels from one input to one output component. A factored path shows
    θ₂(c′, c, ·) times the norm of θ₁(c′, c, ·). Any other path shows the rows of its matrix as maps
    over the input sites, unless the matrix would have to be built and is very large.
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


def _filters_of(path: Any) -> tuple[Kind, FloatArray] | None:
    space_in, space_out = path.space_in, path.space_out
    sides: Sequence[int] = space_in.lattice.shape
    factored = hasattr(path, "theta1")
    convolution = path.symmetry.translations and space_in.lattice == space_out.lattice
    stored = factored or convolution or isinstance(path, FullyConnected | TiedFilter)
    if not stored and space_in.size * space_out.size > LARGEST_MATRIX:
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
        if not isinstance(weights, Matrix):  # filters of different shapes
            return None
        rows = weights.weight.reshape(-1, *sides)
        return "maps", rows.numpy()


def _largest(filters: FloatArray, most: int) -> FloatArray:
    sizes = np.einsum("fxy,fxy->f", filters, filters)  # without a copy of a large matrix
    order = np.argsort(-sizes, kind="stable")[:most]
    return np.asarray(filters[order], dtype=np.float64)
