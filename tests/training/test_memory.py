"""A long training keeps no more than a short one."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from groupella.evidence.likelihoods import Categorical
from groupella.training import EpochRecord, fit

EPOCHS = 200


def tensors() -> int:
    """The number of tensors that Python knows, after what can go has gone."""
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


def resident() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("method", ["map", "fixed_point"])
def test_memory_does_not_grow_over_epochs(method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 2))
    x = torch.randn(40, 200)
    counts: dict[int, tuple[int, int]] = {}

    def look(record: EpochRecord, _: object) -> None:
        if record.epoch in (EPOCHS // 4, EPOCHS - 1):
            counts[record.epoch] = tensors(), resident()

    fit(
        network,
        (x, (x[:, 0] > 0).long()),
        Categorical(),
        method=method,  # type: ignore[arg-type]
        epochs=EPOCHS,
        batch_size=20,
        burn_in=10,
        update_every=10,
        directory=tmp_path,
        checkpoint_every=50,
        progress=False,
        on_epoch=look,
    )
    (early, small), (late, large) = counts.values()
    assert late <= early
    # 150 epochs that each kept the gradients of the network would take 12 MB.
    assert large - small < 6e6
