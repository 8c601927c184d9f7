"""What holds for every test: one torch thread a worker, seeded, and nothing global left changed.

Shells without a terminal start what they run in the background deaf to Ctrl-C, and everything that
is started from there is, too; what is tested here must hear it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("MPLBACKEND", "Agg")

import hypothesis
import pytest
import torch

torch.set_num_threads(1)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Time limits of single examples depend on what else the machine does; CI repeats its examples.
hypothesis.settings.register_profile(
    "groupella", deadline=None, derandomize="CI" in os.environ, print_blob=True
)
hypothesis.settings.load_profile("groupella")


@pytest.fixture(autouse=True)
def _same_world_for_every_test() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    assert torch.get_default_dtype() == torch.float32, "the test changed torch's default dtype"
    assert torch.is_grad_enabled(), "the test left gradients switched off"
