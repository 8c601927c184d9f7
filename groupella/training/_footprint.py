"""What training a network takes at least, from shapes alone.

The network is copied to torch's "meta" device, where tensors have shapes and no values, and run on
two and on three data. Autograd keeps a·n + b bytes of a batch of n; the multiply-adds are counted
on the way. Layers of generator-defined groups are matrices of all pairs of features, which must
not even be built before it is known that they fit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from groupella._machine import in_gibibytes, memory_of_machine
from groupella.groups import GroupSet, Symmetry
from groupella.nn.paths.dense_basis import LARGEST_MATRIX

COPIES = 4  # weights, gradients, two moments
SPEED = 2e11  # multiply-adds per second, more than a core has
STEP = 5e-4  # seconds that a step takes at least, however small the network
LONGEST = 30 * 86_400.0  # seconds
# Bytes kept per number of the first layer, at most: smaller problems need no closer look.
KEPT = 160
SHARE = 1 / 8  # of the memory
LEAST_WEIGHTS = 2  # of a network, in squares of its width: its second layer


class TooLargeError(ValueError):
    """A network needs more memory or time than there is."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that training keeps, whatever the batch and per datum, and multiply-adds per datum."""

    fixed: int
    each: int
    products: int

    def bytes(self, batch: int) -> int:
        """Return the bytes that a step with a batch of that size holds at least."""
        return self.fixed + batch * self.each

    def seconds(self, data: float) -> float:
        """Return the seconds that this many data, forward and backward, take at least."""
        return 3 * self.products * data / SPEED


def footprint(network: nn.Module, shape: Sequence[int]) -> Footprint:
    """Return what training the network takes at least, without running it.

    Parameters
    ----------
    network
        Any network; it is not changed.
    shape
        The shape of one datum, without the batch.
    """
    there = copy.deepcopy(network).to("meta").train()
    own = {t.untyped_storage()._cdata for t in (*there.parameters(), *there.buffers())}
    two, three = (_kept(there, shape, n, own) for n in (2, 3))
    each = three - two
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        there(torch.empty(2, *shape, device="meta"))
    weights = sum(p.numel() * p.element_size() for p in network.parameters())
    fixed = COPIES * weights + max(two - 2 * each, 0)
    return Footprint(fixed, each, counter.get_total_flops() // 4)


def check_problem(groups: GroupSet, shape: Sequence[int], width: int, batch: int) -> bool:
    """Return whether the networks may be too large, so that a footprint is worth its time.

    Parameters
    ----------
    groups
        The candidates.
    shape
        Channels and lattice of the data.
    width, batch
        Channels times fibre of the first layer, and data per batch.

    Raises
    ------
    TooLargeError
        If a layer of a generator-defined group, or of that width, cannot even be built.
    """
    there = memory_of_machine()
    if there is None:
        return False
    sites = math.prod(shape[1:])
    weights = 4 * COPIES * LEAST_WEIGHTS * width**2
    if weights > there:
        _refuse(f"training networks of width {width:,}", weights, there)
    for group in groups:
        if group.is_catalogue:
            turns = len(group.point_in(len(shape) - 1)) if group.translations else 0
            needed = 8 * turns * sum(side**2 for side in shape[1:])  # to centre the data
            if needed > there:
                _refuse(f"centring data for {group.name}, on {sites:,} sites,", needed, there)
            continue
        size = GroupSet(group).space(tuple(shape[1:]), 1).size
        needed = 8 * size * size  # which orbit each pair of features is in
        if needed > there:
            _refuse(f"a layer that obeys {group.name}, on {sites:,} sites,", needed, there)
        if (2 * size) ** 2 > LARGEST_MATRIX:  # of two channels, the fewest
            raise TooLargeError(
                f"a layer that obeys {group.name}, on {sites:,} sites, is a matrix of "
                f"{(2 * size) ** 2:,} entries, more than {LARGEST_MATRIX:,}. Use smaller data, or "
                "a group of the catalogue"
            )
    return KEPT * (width + shape[0]) * sites * batch > SHARE * there


def check_footprint(
    found: Footprint, symmetry: Symmetry, batch: int, held: int, data: float
) -> None:
    """Raise `TooLargeError` if training does not fit.

    Parameters
    ----------
    found, symmetry
        What the network takes, and what it obeys.
    batch
        Data per batch.
    held
        Bytes of all data.
    data
        How often a datum is trained on: data × epochs × trainings.
    """
    there = memory_of_machine()
    needed = found.bytes(batch) + held
    name = "none" if symmetry.is_trivial else symmetry.name
    if there is not None and needed > there:
        _refuse(f"training the network that obeys {name}, with batches of {batch},", needed, there)
    _check_time(
        found.seconds(data),
        "smaller images (--size), fewer data (--train-size), or fewer channels (--alpha, width=)",
    )


def check_steps(steps: float) -> None:
    """Raise `TooLargeError` if this many steps take months, whatever the network."""
    _check_time(STEP * steps, "fewer epochs, or larger batches (batch_size=)")


def _check_time(seconds: float, remedy: str) -> None:
    if seconds > LONGEST:
        raise TooLargeError(
            f"training the networks takes at least {seconds / 86_400:,.0f} days. Use {remedy}"
        )


def _refuse(what: str, needed: int, there: int) -> None:
    raise TooLargeError(
        f"{what} needs at least {in_gibibytes(needed)}, and this machine has "
        f"{in_gibibytes(there)}. Use smaller images (--size), fewer channels (--alpha, width=) or "
        "smaller batches (batch_size=)"
    )


def _kept(network: nn.Module, shape: Sequence[int], n: int, own: set[int]) -> int:
    """Bytes that autograd keeps of a batch of n, other than the network's own tensors."""
    storages: dict[int, Any] = {}  # kept alive, so that no two have one address

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        network(torch.empty(n, *shape, device="meta"))
    return sum(storage.nbytes() for storage in storages.values())
