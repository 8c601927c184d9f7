"""Sums of factors over batches and processes, and the blocks that they become."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from groupella.nn.shared_maps import SharedLinearMap

from ._tape import Factors
from .kronecker import KroneckerBlock


class Sums:
    """What all batches have brought so far."""

    def __init__(self) -> None:
        self.factors: dict[str, Factors] = {}
        self.count = 0

    def add(self, batch: dict[str, Factors], count: int) -> None:
        self.count += count
        for name, new in batch.items():
            total = self.factors.get(name)
            if total is None:
                self.factors[name] = new
            else:
                total.add(new)

    def all_reduce(self, seen: int, group: Any) -> int:
        """Sum over the processes of a group; every process must have had some data."""
        process_group = None if group is True else group
        device = next(iter(self.factors.values())).input_gram.device if self.factors else None
        numbers = torch.tensor([self.count, seen], dtype=torch.float64, device=device)
        dist.all_reduce(numbers, group=process_group)
        self.count, seen = int(numbers[0]), int(numbers[1])
        for name in sorted(self.factors):
            total = self.factors[name]
            counts = [total.uses, total.input_rank, total.output_rank]
            summed = torch.tensor(counts, dtype=torch.float64, device=device)
            for tensor in (total.input_gram, total.output_gram, summed):
                dist.all_reduce(tensor, group=process_group)
            total.uses, total.input_rows = float(summed[0]), None
            total.input_rank, total.output_rank = int(summed[1]), int(summed[2])
        return seen

    def blocks(self, network: nn.Module, seen: int) -> Iterator[tuple[str, KroneckerBlock]]:
        """Named blocks in the order of the network's parameters."""
        for name, parameter in network.named_parameters():
            if name in self.factors:
                f = self.factors[name]
                yield (
                    name,
                    KroneckerBlock(
                        f.input_gram,
                        f.output_gram,
                        self.count,
                        f.uses / self.count,
                        tuple(parameter.shape),
                        entry_order(f.shared_map, parameter),
                        None if seen == self.count else seen,
                        f.input_rank,
                        f.output_rank,
                        f.input_rows,
                    ),
                )


def entry_order(shared_map: SharedLinearMap, parameter: Tensor) -> Tensor | None:
    """The flat parameter index of each entry of the map's blocks, None if they are in order."""
    flat = torch.arange(parameter.numel(), device=parameter.device)
    order = shared_map.as_blocks(flat.reshape(parameter.shape)).reshape(-1)
    return None if torch.equal(order, flat) else order
