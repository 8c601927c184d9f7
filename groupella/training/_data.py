"""Training data by index, checked before anything is trained on them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from groupella.evidence import evaluation
from groupella.evidence.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood

CHUNK = 4096


@dataclass(frozen=True)
class Examples:
    """Data of known number: `get(indices)` gives a batch (x, y) on `device`."""

    n: int
    get: Callable[[Tensor], tuple[Tensor, Tensor]]
    device: torch.device
    tensors: tuple[Tensor, Tensor] | None = None

    def batches(self, indices: Tensor, size: int) -> Batches:
        """The data `indices` in batches, as often as wanted."""
        return Batches(self, indices, size)

    def digest(self) -> str:
        """Tells data sets apart when a run is resumed; only their number unless in memory."""
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

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in torch.split(self.indices, self.size):
            yield self.examples.get(part)


def as_examples(data: Any, device: torch.device, name: str = "data") -> Examples:
    """Take a pair (x, y) of tensors, or a map-style dataset of such pairs."""
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

    Data in memory are checked as a whole, others as they come (`check_batch`).
    """
    x, y = examples.get(torch.arange(min(2, examples.n)))
    _check_kind(x, network, name)
    with torch.no_grad(), evaluation(network):
        f = network(x)
    check_batch(x, y, f.shape, likelihood, torch.arange(x.shape[0]), name)
    if examples.tensors is None:
        return
    for start in range(0, examples.n, CHUNK):
        indices = torch.arange(start, min(start + CHUNK, examples.n))
        x, y = examples.tensors[0][indices], examples.tensors[1][indices]
        check_batch(x, y, (len(indices), *f.shape[1:]), likelihood, indices, name)


def check_batch(
    x: Tensor,
    y: Tensor,
    outputs: Sequence[int],
    likelihood: Likelihood,
    indices: Tensor,
    name: str = "data",
) -> None:
    """Finite inputs, and targets that the likelihood can take for outputs of this shape."""
    _check_finite(x, indices, f"{name}: x")
    if isinstance(likelihood, Categorical):
        _check_labels(y, outputs, indices, name)
        return
    if isinstance(likelihood, Gaussian | Bernoulli):
        _check_finite(y, indices, f"{name}: y")
        if y.numel() != torch.Size(outputs).numel():
            raise ValueError(
                f"{name}: y has shape {tuple(y.shape)}, the network's outputs {tuple(outputs)}"
            )
    if isinstance(likelihood, Bernoulli):
        bad = ((y < 0) | (y > 1)).reshape(len(y), -1).any(1)
        if bool(bad.any()):
            where = int(indices[bad.cpu()][0])
            raise ValueError(f"{name}: y of example {where} is outside [0, 1]")


def _check_kind(x: Tensor, network: nn.Module, name: str) -> None:
    wanted = next((p.dtype for p in network.parameters() if p.is_floating_point()), None)
    if wanted is not None and x.is_floating_point() and x.dtype != wanted:
        raise TypeError(
            f"{name}: x is {x.dtype}, the network's parameters are {wanted}; "
            f"convert one of them, for instance x.to({wanted})"
        )


def _check_finite(values: Tensor, indices: Tensor, name: str) -> None:
    if not values.is_floating_point():
        return
    bad = ~torch.isfinite(values).reshape(len(values), -1).all(1)
    if bool(bad.any()):
        where = indices[bad.cpu()]
        raise ValueError(
            f"{name} contains NaN or infinity in {len(where)} example(s), "
            f"first in example {int(where[0])}"
        )


def _check_labels(y: Tensor, outputs: Sequence[int], indices: Tensor, name: str) -> None:
    if y.is_floating_point() or y.dtype == torch.bool:
        raise TypeError(f"{name}: class labels must be integers (int64), got {y.dtype}")
    if y.ndim != 1:
        raise ValueError(f"{name}: class labels must have shape (n,), got {tuple(y.shape)}")
    classes = outputs[1]
    bad = (y < 0) | (y >= classes)
    if bool(bad.any()):
        where = int(indices[bad.cpu()][0])
        value = int(y[bad][0])
        raise ValueError(
            f"{name}: label {value} of example {where} is out of range; the network has "
            f"{classes} outputs, so labels are 0 … {classes - 1}"
        )
