"""Everything random in a run: a function of its seed, or a state that is saved.

Orders and subsets are functions: the order of the data in epoch e is a permutation seeded by
(seed, "order", e), so a run resumed in the middle of an epoch needs no stored order. Other random
numbers (dropout, a data set's own augmentation) come from the global generators, including numpy's
legacy one; checkpoints save their states.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor


def derived_seed(seed: int, *tags: int | str) -> int:
    """Return a 63-bit seed that depends on `seed` and all `tags`, the same on every machine."""
    text = "/".join(str(t) for t in (seed, *tags))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *tags: int | str) -> torch.Generator:
    """A CPU generator seeded with `derived_seed(seed, *tags)`."""
    return torch.Generator().manual_seed(derived_seed(seed, *tags))


def epoch_order(seed: int, epoch: int, n: int) -> Tensor:
    """Return the order in which an epoch visits `n` examples: a permutation, int64."""
    return torch.randperm(n, generator=generator(seed, "order", epoch))


def random_subset(seed: int, tag: str, n: int, size: int | None) -> Tensor:
    """Return the sorted indices of `size` of n examples, a function of seed and tag."""
    if size is None or size >= n:
        return torch.arange(n)
    order = torch.randperm(n, generator=generator(seed, tag))
    return order[:size].sort().values


def global_states() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The states of the global generators: torch (CPU and CUDA), numpy, and Python's own."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        for index, state in enumerate(torch.cuda.get_rng_state_all()):
            tensors[f"cuda.{index}"] = state
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002
    tensors["numpy"] = torch.from_numpy(np.asarray(keys).astype(np.int64))
    version, words, gauss = random.getstate()
    other = {
        "numpy": [kind, position, has_gauss, cached],
        "python": [version, list(words), gauss],
    }
    return tensors, other


def set_global_states(tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Restore what `global_states` returned."""
    torch.set_rng_state(tensors["torch"].cpu())
    cuda = [tensors[k].cpu() for k in sorted(tensors) if k.startswith("cuda.")]
    if cuda and torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
    kind, position, has_gauss, cached = state["numpy"]
    keys = tensors["numpy"].cpu().numpy().astype(np.uint32)
    np.random.set_state((kind, keys, position, has_gauss, cached))  # noqa: NPY002
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators inside the block and put back the caller's states after it."""
    before = global_states()
    start = derived_seed(seed, "global")
    torch.manual_seed(start)
    np.random.seed(start % 2**32)  # noqa: NPY002
    random.seed(start)
    try:
        yield
    finally:
        set_global_states(*before)
