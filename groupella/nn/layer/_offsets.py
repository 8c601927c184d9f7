"""The offsets of a layer's paths: what each may add that does not depend on the input.

    y = Σ_paths (path(x) + b_path) + bias,    b_path ∈ V^G,  b_path ⊥ V^H for every larger H

V^G are the vectors of one output channel that the group G of the path leaves unchanged: one number
per fibre component for translations, one per site and component for a free path. H are the groups
of stricter paths, and the ambient group, whose vectors are the layer's bias. So an offset holds
only what nothing stricter can, as an increment does.

`offset` (C', n) are coordinates in V^G; their part in ΣV^H is projected away. It moves nothing, so
it has no curvature, and the prior keeps it at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from groupella.groups import FeatureSpace, Symmetry, is_inside
from groupella.nn._constant import Constant
from groupella.nn._invariants import invariant_vectors
from groupella.nn.paths import Path
from groupella.nn.shared_maps import BiasMap, SharedLinearMap, exact_blocks

Vectors = NDArray[np.float64]
MOST = 2**24


class Offset(nn.Module):
    """The offset of one path, as a function without arguments: (C'·F', *lattice).

    Parameters
    ----------
    space
        The output features.
    vectors
        V^G, (n, F', *lattice), or (n, F', 1, …, 1) where constant on sites; None for everything.
    above
        An orthonormal basis of ΣV^H, (m, entries of one channel).
    """

    def __init__(self, space: FeatureSpace, vectors: Vectors | None, above: Vectors) -> None:
        super().__init__()
        lattice = space.lattice.shape if vectors is None else vectors.shape[2:]
        self.shape = (space.shape[0], *lattice)
        count = space.size // space.channels if vectors is None else len(vectors)
        self.vectors = None if vectors is None else Constant(vectors.reshape(count, -1))
        self.above = Constant(above)
        self.offset = nn.Parameter(torch.zeros(space.channels, count))

    def forward(self) -> Tensor:
        spread: Tensor = self.offset
        if self.vectors is not None:
            spread = spread @ self.vectors.like(spread)
        return self._rest(spread).view(self.shape)

    def _rest(self, spread: Tensor) -> Tensor:
        """What is left of (…, entries) without the part in ΣV^H."""
        above = self.above.like(spread)
        return spread - (spread @ above.mT) @ above if len(above) else spread

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        channels, constant = len(self.offset), all(n == 1 for n in self.shape[1:])

        def gradient(g: Tensor) -> Tensor:
            z = g.reshape(*g.shape[:2], -1)
            z = z.sum(2) if constant else z
            z = self._rest(z.reshape(g.shape[0], channels, -1))
            if self.vectors is not None:
                z = z @ self.vectors.like(z).mT
            return z.flatten(1)

        return {"offset": BiasMap("offset", gradient, blocks=exact_blocks(self.offset.shape))}

    def extra_repr(self) -> str:
        return f"{tuple(self.offset.shape)} to {self.shape}"


def offsets_of(space: FeatureSpace, paths: Mapping[str, Path], bias: Vectors) -> dict[str, Offset]:
    """The offsets of the paths of a layer, for those that may add more than what is above them.

    Parameters
    ----------
    space
        The output features.
    paths
        The paths. Of several with one group, the first has the offset. A group without translations
        on a large lattice has none: its vectors would be a dense matrix of more than 2²⁴ numbers.
    bias
        The vectors of the layer's bias.
    """
    groups: dict[str, Symmetry] = {}
    for name, path in paths.items():
        large = _is_large(space, path.symmetry)
        if not large and not any(_are_equal(path.symmetry, known) for known in groups.values()):
            groups[name] = path.symmetry
    unchanged = {n: invariant_vectors(space, s) for n, s in groups.items() if not s.is_trivial}
    whole = space.with_channels(1).size
    found = {}
    for name, symmetry in groups.items():
        vectors = unchanged.get(name)
        larger = [n for n in unchanged if n != name and is_inside(symmetry, groups[n])]
        # What a group leaves unchanged, the groups in it do too: the smallest have everything.
        smallest = [
            n for n in larger if not any(is_inside(groups[m], groups[n]) for m in larger if m != n)
        ]
        entries = whole if vectors is None else vectors[:1].size
        basis = _orthonormal([unchanged[n] for n in smallest] or [bias], entries)
        if len(basis) < (whole if vectors is None else len(vectors)):
            found[name] = Offset(space, vectors, basis)
    return found


def _is_large(space: FeatureSpace, symmetry: Symmetry) -> bool:
    if symmetry.is_trivial or not symmetry.is_catalogue or symmetry.translations:
        return False
    return space.with_channels(1).size ** 2 // max(len(symmetry.point), 1) > MOST


def _are_equal(one: Symmetry, other: Symmetry) -> bool:
    return is_inside(one, other) and is_inside(other, one)


def _orthonormal(parts: Sequence[Vectors], entries: int) -> Vectors:
    """An orthonormal basis of what vectors (n, F', …) span, each on so many entries.

    Vectors are spread to all sites, or are constant on them where there are fewer entries.
    """
    rows = []
    for vectors in parts:
        if len(vectors):
            flat = vectors.reshape(*vectors.shape[:2], -1)
            sites = entries // flat.shape[1]
            flat = np.broadcast_to(flat[..., :1] if sites == 1 else flat, (*flat.shape[:2], sites))
            rows.append(flat.reshape(len(flat), -1))
    if not rows:
        return np.zeros((0, entries))
    together = scipy.sparse.csr_array(np.concatenate(rows))
    gram = together @ together.T
    # Groups without translations leave sums over small orbits unchanged: blocks, each by itself.
    _, labels = connected_components(gram, directed=False)
    sizes = np.bincount(labels)[labels]
    dense = gram.toarray()
    found = []
    for size in np.unique(sizes):
        (chosen,) = np.nonzero(sizes == size)
        block = chosen[np.argsort(labels[chosen], kind="stable")].reshape(-1, size)
        values, vectors = np.linalg.eigh(dense[block[:, :, None], block[:, None, :]])
        found.append((block, values, vectors))
    largest = max(values.max() for _, values, _ in found)
    basis = []
    for block, values, vectors in found:
        which, column = np.nonzero(values > 1e-9 * largest)
        entry = vectors[which, :, column] / np.sqrt(values[which, column])[:, None]
        row = np.broadcast_to(np.arange(len(which))[:, None], entry.shape)
        shape = (len(which), len(dense))
        into = scipy.sparse.csr_array((entry.ravel(), (row.ravel(), block[which].ravel())), shape)
        basis.append((into @ together).toarray())
    return np.concatenate(basis)
