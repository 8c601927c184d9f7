"""Training data by index, checked before training."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from groupella._masked import check_unmasked
from groupella.curvature import evaluation, one_tensor
from groupella.evidence import pathway_layers
from groupella.evidence.likelihoods import Categorical, Gaussian, Likelihood, check_finite
from groupella.nn.standardise import InUnits, Standardise

CHUNK = 4096
USUAL = 10.0  # the largest size of data that a network without units takes without a warning
INPUTS = ("x", "image", "images", "img", "input", "inputs", "data", "features", "pixel_values")
TARGETS = ("y", "label", "labels", "target", "targets", "fine_label")
_SMALL_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)


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


def as_examples(
    data: Any, device: torch.device, name: str = "data", network: nn.Module | None = None
) -> Examples:
    """Return the examples of a pair (x, y) of arrays, or of a map-style dataset of such pairs.

    Arrays of float64 become float32, unless the network standardises its inputs.
    """
    if isinstance(data, tuple | list) and len(data) == 2 and _is_array(data[0]):
        wide = network is not None and standardiser(network) is not None
        x, y = (_as_tensor(part, name, wide) for part in data)
        y = y.long() if y.dtype in _SMALL_INTEGERS else y
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
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping):
        if len(data) == 0:
            raise ValueError(f"{name} is empty")
        what = f"an example of {name}"

        def collate(indices: Tensor) -> tuple[Tensor, Tensor]:
            pairs = [pair_of(data[i], what) for i in indices.tolist()]
            for part in (part for pair in pairs for part in pair):
                check_unmasked(part, what)
            x, y = default_collate(pairs)
            return x.to(device), (y.long() if y.dtype in _SMALL_INTEGERS else y).to(device)

        return Examples(len(data), collate, device)
    raise TypeError(
        f"{name} must be a pair (x, y) of tensors or a map-style dataset with __len__ and "
        f"__getitem__, got {type(data).__name__}. A loader has an order of its own, which could "
        "not be resumed: give its dataset."
    )


def pair_of(example: Any, what: str) -> tuple[Any, Any]:
    """Return (x, y) of one example or batch: a pair, or a dictionary with usual names.

    Parameters
    ----------
    example
        The pair, list or dictionary.
    what
        What it is, for the message: "an example of the data set".

    Raises
    ------
    TypeError
        If the example is neither, with what it holds.
    """
    if isinstance(example, tuple | list) and len(example) == 2:
        return example[0], example[1]
    if isinstance(example, Mapping):
        found = [[k for k in names if k in example] for names in (INPUTS, TARGETS)]
        if all(found):
            return example[found[0][0]], example[found[1][0]]
        holds = f"a dictionary with {', '.join(map(repr, example))}"
        wanted = f"one of {', '.join(INPUTS)} and one of {', '.join(TARGETS)}"
    else:
        holds = f"{type(example).__name__}" + (
            f" of {len(example)}" if isinstance(example, tuple | list) else ""
        )
        wanted = "a pair (x, y)"
    raise TypeError(f"{what} is {holds}; expected {wanted}")


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def _as_tensor(values: Any, name: str, wide: bool = False) -> Tensor:
    if isinstance(values, Tensor):
        return values
    check_unmasked(values, name)
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(
            f"{name}: x and y must be tensors or arrays of numbers, got {array.dtype} "
            f"({type(values).__name__})"
        )
    array = array.astype(np.float32) if array.dtype.kind == "f" and not wide else array
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))  # or a copy


def standardiser(network: nn.Module) -> Standardise | None:
    """Return the module that standardises the network's inputs, if there is one."""
    return next((m for m in network.modules() if isinstance(m, Standardise)), None)


def calibrate(network: nn.Module, examples: Examples, likelihood: Likelihood) -> None:
    """Give the network the units of these examples, unless it has some.

    Those of targets only under a Gaussian likelihood, whose noise then starts at their spread.
    Warns of data of an unusual size if the network takes them as they are.
    """
    _calibrate_outputs(network, examples, likelihood)
    inputs = standardiser(network)
    if inputs is None:
        _check_size(network, examples, likelihood)
        return
    if inputs.calibrated:
        return
    first, _ = examples.get(torch.arange(1))
    if first.shape[1:] != inputs.space_in.shape:
        return  # `check_examples` says what is wrong

    def parts() -> Iterator[Tensor]:
        for indices in torch.split(torch.arange(examples.n), CHUNK):
            x = examples.get(indices)[0]
            try:
                check_finite(x, indices, "x")
            except ValueError as error:
                raise ValueError(f"data: {error}") from None
            yield x

    inputs.calibrate(parts())


def _check_size(network: nn.Module, examples: Examples, likelihood: Likelihood) -> None:
    if not pathway_layers(network):
        return
    x, y = examples.get(torch.arange(min(CHUNK, examples.n)))
    sizes = {"inputs": x}
    if isinstance(likelihood, Gaussian):
        sizes["targets"] = y
    for name, values in sizes.items():
        size = float(values.detach().double().square().mean().sqrt())
        if math.isfinite(size) and size > 0 and not 1 / USUAL <= size <= USUAL:
            warnings.warn(
                f"the {name} have a root mean square of {size:.3g}, on which start, priors and "
                "verdicts of this network depend; train groupella.networks.with_units(network), "
                "which learns the units of its data, or scale them",
                stacklevel=4,
            )


def _calibrate_outputs(network: nn.Module, examples: Examples, likelihood: Likelihood) -> None:
    outputs = next((m for m in network.modules() if isinstance(m, InUnits)), None)
    if outputs is None or outputs.calibrated or not isinstance(likelihood, Gaussian):
        return
    size = outputs.mean.numel()
    _, y = examples.get(torch.arange(1))
    if y.numel() != size:
        return  # `check_examples` says what is wrong
    every = examples.batches(torch.arange(examples.n), CHUNK)
    targets = [y.reshape(-1, size) for _, y in every]
    if all(bool(torch.isfinite(y).all()) for y in targets):
        outputs.calibrate(targets)
        likelihood.start_at(float(outputs.std.flatten()[0]))


def check_examples(
    examples: Examples, network: nn.Module, likelihood: Likelihood, name: str = "data"
) -> None:
    """Refuse data on which training would fail or, worse, would not fail.

    Data in memory are checked as a whole, others batch by batch during training (`check_batch`).
    """
    x, y = examples.get(torch.arange(min(2, examples.n)))
    wanted = next((p.dtype for p in network.parameters() if p.is_floating_point()), None)
    mixed = wanted is not None and x.is_floating_point() and x.dtype != wanted
    if mixed and standardiser(network) is None:
        raise TypeError(
            f"{name}: x is {x.dtype}, the network's parameters are {wanted}; "
            f"convert one of them, for instance x.to({wanted})"
        )
    try:
        with torch.no_grad(), evaluation(network):
            f = one_tensor(network(x))
    except RuntimeError as error:  # from torch, which does not say whose shapes or types differ
        raise ValueError(
            f"{name}: the network fails on x of shape {tuple(x.shape)} and type {x.dtype}: {error}"
        ) from error
    check_batch(x, y, f.shape, likelihood, torch.arange(x.shape[0]), name)
    if examples.tensors is None:
        return
    for indices in torch.split(torch.arange(examples.n), CHUNK):
        x, y = (values[indices] for values in examples.tensors)
        check_batch(x, y, (len(indices), *f.shape[1:]), likelihood, indices, name)


def check_classes(examples: Examples, likelihood: Likelihood) -> None:
    """Refuse labels in memory that are all the same: any network explains them, and no symmetry."""
    if examples.tensors is None or not isinstance(likelihood, Categorical) or examples.n < 2:
        return
    y = examples.tensors[1]
    if bool((y == y.flatten()[0]).all()):
        raise ValueError(
            f"data: all {examples.n} examples have the class {int(y.flatten()[0])}: there is "
            "nothing to learn"
        )


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
