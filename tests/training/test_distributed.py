"""Two processes learn what one does."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from groupella._files import alone
from groupella.evidence.likelihoods import Gaussian
from groupella.training import InUseError, Settings, _fit, fit, load_checkpoint
from groupella.training._distributed import Processes

SETTINGS = Settings(epochs=4, batch_size=16, lr=0.02, burn_in=1, curvature_subset=31, clip=1.0)


def problem() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
    x = torch.randn(51, 3)
    return network, (x, x[:, :1] * x[:, 1:2] + 0.1 * torch.randn(51, 1))


def learn(directory: str, method: str) -> None:
    network, data = problem()
    if dist.is_initialized() and dist.get_rank() == 1:
        # Processes may start with other weights; those of the first one count.
        with torch.no_grad():
            network[0].weight.zero_()  # type: ignore[index]
    fit(
        network,
        data,
        Gaussian(),
        SETTINGS,
        method=method,
        validation=data,
        directory=directory,
        progress=False,
    )


def process(rank: int, rendezvous: str, directory: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    try:
        for method in ("fixed_point", "adam", "linearised"):
            learn(f"{directory}/two-{method}", method)
        _fit.alone = partial(alone, patience=0.0)  # type: ignore[assignment]
        with pytest.raises(InUseError):
            learn(f"{directory}/busy", "map")
        Path(f"{directory}/refused-{rank}").touch()
    finally:
        dist.destroy_process_group()
    # Threads of torch abort now and then while an interpreter is taken down, on a busy machine.
    os._exit(0)


@pytest.mark.slow
def test_two_processes_give_the_precisions_of_one(tmp_path: Path) -> None:
    with alone(tmp_path / "busy"):
        mp.spawn(process, (str(tmp_path / "rendezvous"), str(tmp_path)), nprocs=2)  # type: ignore
    assert all((tmp_path / f"refused-{rank}").exists() for rank in range(2))
    for method in ("fixed_point", "adam", "linearised"):
        learn(str(tmp_path / f"one-{method}"), method)
        one, two = (
            load_checkpoint(tmp_path / f"{count}-{method}" / "last.safetensors")
            for count in ("one", "two")
        )
        assert (one.state["world"], two.state["world"]) == (1, 2)
        for name in ("prior/log_precision", "likelihood/log_noise", "network/0.weight"):
            torch.testing.assert_close(one.tensors[name], two.tensors[name], rtol=0, atol=1e-5)
        for a, b in zip(one.state["history"], two.state["history"], strict=True):
            assert a["nll"] == pytest.approx(b["nll"], abs=1e-5)
            assert a["validation_nll"] == pytest.approx(b["validation_nll"], abs=1e-5)
            assert a["log_evidence"] == pytest.approx(b["log_evidence"], abs=1e-3)


def test_a_process_takes_its_share_of_a_batch() -> None:
    batch = torch.arange(7)
    shares = [Processes(rank, 3).share(batch).tolist() for rank in range(3)]
    assert shares == [[0, 3, 6], [1, 4], [2, 5]]
