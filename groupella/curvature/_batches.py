"""Data in batches, and how many data they represent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from ._modes import Subset


def batches(
    data: tuple[Tensor, Tensor] | Iterable[Any], batch_size: int = 256
) -> Iterator[tuple[Tensor, Tensor]]:
    """Iterate over batches (x, y) of a pair of tensors, or over those of an iterable."""
    if _is_pair(data):
        x, y = data
        _inputs(data)
        data = zip(x.split(batch_size), y.split(batch_size), strict=True) if len(x) else ()
    for batch in data:
        if not _is_pair(batch):
            raise TypeError(
                "data must be a pair (x, y) or an iterable of such pairs, got a "
                f"{type(batch).__name__} in the place of a pair."
            )
        yield _inputs(batch), batch[1]


class Inputs:
    """Iterates over the inputs x of the data to use; afterwards `seen` of them were counted.

    `data` is a pair (x, y) of tensors, taken in batches of `batch_size`, or an iterable of pairs.
    """

    def __init__(
        self,
        data: tuple[Tensor, Tensor] | Iterable[Any],
        subset: Subset | int | None = None,
        batch_size: int = 256,
    ) -> None:
        self._data = data
        self._batch_size = batch_size
        self._subset = Subset(subset) if isinstance(subset, int) else subset
        self.seen = 0

    def __iter__(self) -> Iterator[Tensor]:
        if _is_pair(self._data):
            yield from self._of_pair(_inputs(self._data))
        else:
            yield from self._of_batches(self._data)

    def _of_pair(self, x: Tensor) -> Iterator[Tensor]:
        self.seen = x.shape[0]
        if self._subset is not None and self._subset.n < x.shape[0]:
            generator = torch.Generator().manual_seed(self._subset.seed)
            chosen = torch.randperm(x.shape[0], generator=generator)[: self._subset.n]
            x = x[chosen.to(x.device)]
        if x.shape[0]:
            yield from torch.split(x, self._batch_size)

    def _of_batches(self, data: Iterable[Any]) -> Iterator[Tensor]:
        self.seen = 0
        left = None if self._subset is None else self._subset.n
        for x, _ in batches(data):
            self.seen += x.shape[0]
            if left is not None:
                x = x[:left]
                left -= x.shape[0]
            if x.shape[0]:
                yield x


def _is_pair(data: Any) -> TypeGuard[Sequence[Any]]:
    return isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor)


def _inputs(pair: Sequence[Any]) -> Tensor:
    """x of (x, y); y is not used, but must belong to it."""
    x, y = pair
    if isinstance(y, Tensor) and y.shape[:1] != x.shape[:1]:
        raise ValueError(
            f"x and y must be of one length, got {len(x)} inputs and {len(y)} targets."
        )
    return x  # type: ignore[no-any-return]
