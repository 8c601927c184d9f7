"""Which data are copies of one another: they are held out together.

A copy of a training datum among the held-out data can be known by heart: a network passes every
test there, whatever it obeys. Two of n data with d numbers each are copies if their distance is at
most NEAR · n^(−1/d) of that of two random data, and so are copies of copies: n data that fill d
dimensions are about n^(−1/d) apart. A chain of neighbours that leads far away is no set of copies.
"""

from __future__ import annotations

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

NEAR = 0.1
MOST_PRODUCTS = 5e10  # of numbers, to compare all pairs; larger data are compared for equality only
ROWS = 1024  # compared with all others at once


def copies(x: Tensor) -> Tensor:
    """Return a number for each datum of x (n, …), the same for copies of one another."""
    rows = x.flatten(1).double()
    scale = rows.std(0, unbiased=False)
    rows = (rows - rows.mean(0)) / scale.square().mean().sqrt().clamp(min=1e-300)
    equal: Tensor = torch.unique(rows, dim=0, return_inverse=True)[1]
    n = len(rows)
    if n < 2 or float(n) * n * rows.shape[1] > MOST_PRODUCTS:
        return equal
    others = torch.randperm(n, generator=torch.Generator().manual_seed(0))
    gaps = (rows - rows[others])[equal != equal[others]].norm(dim=1)
    if not len(gaps):
        return equal
    reach = NEAR * n ** (-1 / rows.shape[1]) * float(gaps.median())
    # Of those that are equal, one is compared; rounding could tell them apart.
    one = torch.full((n,), n).scatter_reduce(0, equal, torch.arange(n), "amin")[: equal.max() + 1]
    near = _near(rows[one].float(), reach)[equal]
    first = torch.full((n,), n).scatter_reduce(0, near, torch.arange(n), "amin")[near]
    far = (rows - rows[first]).norm(dim=1) > 2 * reach
    chained = torch.isin(near, near[far])
    return torch.where(chained, n + equal, near)


def _near(rows: Tensor, distance: float) -> Tensor:
    """The connected components of pairs that are at most so far apart."""
    squares = rows.square().sum(1)
    pairs = []
    for start in range(0, len(rows), ROWS):
        part = slice(start, start + ROWS)
        gaps = squares[part, None] + squares - 2 * rows[part] @ rows.T
        pairs.append((gaps <= distance**2).nonzero() + torch.tensor([start, 0]))
    one, other = torch.cat(pairs).T.numpy()
    graph = coo_array(([True] * len(one), (one, other)), shape=(len(rows),) * 2)
    return torch.from_numpy(connected_components(graph, directed=False)[1]).long()
