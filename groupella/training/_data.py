"""Training data by index, checked before training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from groupella.curvature import evaluation
from groupella.evidence.likelihoods import Likelihood, check_finite

CHUNK = 4096


@dataclass(frozen=True)
class Examples:
    """n examples: `get(indices)` returns a batch (x, y) on `device`."""

    n: int
    get: Callable[[Tensor], tuple[Tensor, Tensor]]
    device: torch.device
    tensors: tuple[Tensor, Tensor] | None = None

    def batches(
        self, indices: Tensor, size: int, check: Callable[[], None] | None = None
    ) -> Batches:
        """Return a re-iterable of the examples `indices` in batches; `check` follows each."""
        return Batches(self, indices, size, check)

    def digest(self) -> str:
        """Identify the data when a run is resumed; only by their number unless in memory."""
        if self.tensors is None:
            return f"{self.n} examples"
        digest = hashlib.sha256()
        for tensor in self.tensors:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
        return f"{self.n} examples, sha256 {digest.hexdigest()}"


@dataclass(frozen=True)
class Batches:
    """A re-iterable of batches."""

    examples: Examples
    indices: Tensor
    size: int
    check: Callable[[], None] | None = None

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in torch.split(self.indices, self.size):
            batch = self.examples.get(part)
            if self.check is not None:
                self.check()
            yield batch


def as_examples(data: Any, device: torch.device, name: str = "data") -> Examples:
    """Return the examples of a pair (x, y) of tensors, or of a map-style dataset of such pairs."""
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor):
        x, y = data
        if not isinstance(y, Tensor):
            raise TypeError(f"{name}: y must be a tensor like x, got {type(y).__name__}")
        if x.ndim == 0 or x.shape[0] == 0:
            raise ValueError(f"{name} is empty: x has shape {tuple(x.shape)}")
        if y.ndim == 0 or x.shape[0] != y.shape[0]:
            raise ValueError(
                f"{name}: x has {x.shape[0]} examples, y has shape {tuple(y.shape)}; "
                "their first axes must agree"
            )

        def take(indices: Tensor) -> tuple[Tensor, Tensor]:
            return x[indices].to(device), y[indices].to(device)

        return Examples(x.shape[0], take, device, (x, y))
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        if len(data) == 0:
            raise ValueError(f"{name} is empty")

        def collate(indices: Tensor) -> tuple[Tensor, Tensor]:
            x, y = default_collate([data[i] for i in indices.tolist()])
            return x.to(device), y.to(device)

        return Examples(len(data), collate, device)
    raise TypeError(
        f"{name} must be a pair (x, y) of tensors or a map-style dataset with __len__ and "
        f"__getitem__, got {type(data).__name__}. A loader has an order of its own, which could "
        "not be resumed: give its dataset."
    )


def check_examples(
    examples: Examples, network: nn.Module, likelihood: Likelihood, name: str = "data"
) -> None:
    """Refuse data on which training would fail or, worse, would not fail.

    Data in memory are checked as a whole, others batch by batch during training (`check_batch`).
    """
    x, y = examples.get(torch.arange(min(2, examples.n)))
    wanted = next((p.dtype for p in network.parameters() if p.is_floating_point()), None)
    if wanted is not None and x.is_floating_point() and x.dtype != wanted:
        raise TypeError(
            f"{name}: x is {x.dtype}, the network's parameters are {wanted}; "
            f"convert one of them, for instance x.to({wanted})"
        )
    with torch.no_grad(), evaluation(network):
        f = network(x)
    check_batch(x, y, f.shape, likelihood, torch.arange(x.shape[0]), name)
    if examples.tensors is None:
        return
    for indices in torch.split(torch.arange(examples.n), CHUNK):
        x, y = (values[indices] for values in examples.tensors)
        check_batch(x, y, (len(indices), *f.shape[1:]), likelihood, indices, name)


def check_batch(
    x: Tensor,
    y: Tensor,
    outputs: Sequence[int],
    likelihood: Likelihood,
    indices: Tensor,
    name: str = "data",
) -> None:
    """Refuse inputs that are not finite, and targets that the likelihood cannot take."""
    try:
        check_finite(x, indices, "x")
        likelihood.check_targets(y, outputs, indices)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None
