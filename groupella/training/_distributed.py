"""Data-parallel training: every process holds the network and takes its share of every batch.

Process r of W takes items r, r+W, r+2W, … of each global batch. Gradients of *sums* over the shares
are added over processes and divided by the size of the whole batch, so unequal shares (the last
batch of an epoch) have the right weight and W processes compute the same as one. Curvature factors
and log likelihoods are sums, too. The prior is added once, after the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

PATIENCE = timedelta(minutes=5)
T = TypeVar("T")


class LostProcessError(RuntimeError):
    """Another process of the training has ended or does not answer."""


@contextmanager
def _together() -> Iterator[None]:
    """Turn what torch raises if another process is gone into one clear line."""
    try:
        yield
    except RuntimeError as error:
        raise LostProcessError(
            "another process of this training has ended, or has not answered for "
            f"{PATIENCE.seconds // 60} minutes. Start all processes again to resume from the last "
            "checkpoint"
        ) from error


@dataclass(frozen=True)
class Processes:
    """This process among those that train together; `Processes()` trains on its own."""

    rank: int = 0
    world: int = 1
    group: dist.ProcessGroup | None = None

    @classmethod
    def current(cls) -> Processes:
        """Return the processes of torch.distributed, or a single one if it is not initialised."""
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return cls(dist.get_rank(), dist.get_world_size(), dist.group.WORLD)
        return cls()

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def share(self, indices: Tensor) -> Tensor:
        """Return this process's part of a global batch."""
        return indices[self.rank :: self.world]

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over processes, in one message per dtype."""
        if self.world == 1:
            return
        by_dtype: dict[torch.dtype, list[Tensor]] = {}
        for tensor in tensors:
            by_dtype.setdefault(tensor.dtype, []).append(tensor)
        for members in by_dtype.values():
            flat = torch.cat([t.detach().reshape(-1) for t in members])
            self._sum(flat)
            parts = torch.split(flat, [t.numel() for t in members])
            for tensor, part in zip(members, parts, strict=True):
                tensor.data = part.view_as(tensor)

    def totals(self, *values: float) -> tuple[float, ...]:
        """Return the sums of numbers over processes, in one message."""
        if self.world == 1:
            return values
        # nccl moves CUDA tensors only; gloo works on either.
        device = "cuda" if dist.get_backend(self.group) == "nccl" else "cpu"
        tensor = torch.tensor(values, dtype=torch.float64, device=device)
        self._sum(tensor)
        return tuple(tensor.tolist())

    def broadcast(self, module: nn.Module) -> None:
        """Give every process the parameters and buffers of process 0."""
        if self.world == 1:
            return
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), src=0, group=self.group)

    def from_main(self, make: Callable[[], T]) -> T:
        """Return what `make` returns in the main process; if it raises there, raise in all."""
        if self.world == 1:
            return make()
        outcome: list[Any] = [None]
        if self.is_main:
            try:
                outcome = [make()]
            except Exception as error:
                outcome = [error]
        self.totals(0.0)  # unlike a broadcast, it does not wait for ever
        with _together():
            dist.broadcast_object_list(outcome, src=0, group=self.group)
        if isinstance(outcome[0], Exception):
            raise outcome[0]
        found: T = outcome[0]
        return found

    def _sum(self, tensor: Tensor) -> None:
        with _together():
            work = dist.all_reduce(tensor, group=self.group, async_op=True)
            assert work is not None
            work.wait(PATIENCE)
