"""Two processes with half of the data each have the blocks of one process with all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.multiprocessing.spawn import spawn

from groupella.curvature import Curvature, curvature, hypergradient
from groupella.evidence.likelihoods import Categorical

pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch without distributed")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(32, 3),
    ).double()


def data() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(10, 1, 4, 4, dtype=torch.float64, generator=generator)


def objective(blocks: Curvature) -> Tensor:
    return torch.stack([b.logdet(0.1) for b in blocks.values()]).sum()


def work(rank: int, folder: str) -> None:
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    x = data()[:4] if rank == 0 else data()[4:]
    blocks = curvature(network(), Categorical(), (x, x), group=True)
    some = curvature(network(), Categorical(), (x, x), group=dist.group.WORLD, subset=2)
    value, gradient = hypergradient(
        objective, network(), Categorical(), (x, x), ["0.bias"], passes=2, group=True
    )
    torch.save(
        {
            "blocks": {name: b.to_dense() for name, b in blocks.items()},
            "n": (blocks.n_data, some.n_data, some["0.weight"].count),
            "value": value,
            "gradient": gradient["0.bias"],
        },
        Path(folder) / f"{rank}.pt",
    )
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_agree_with_one(tmp_path: Path) -> None:
    spawn(work, args=(str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    x = data()
    expected = curvature(network(), Categorical(), (x, x))
    value, gradient = hypergradient(objective, network(), Categorical(), (x, x), ["0.bias"])
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert found["n"] == (10, 10, 4)
        for name, block in expected.items():
            torch.testing.assert_close(found["blocks"][name], block.to_dense())
        torch.testing.assert_close(found["value"], value)
        torch.testing.assert_close(found["gradient"], gradient["0.bias"])


def test_a_graph_does_not_cross_processes() -> None:
    x = data()
    with pytest.raises(ValueError, match="passes=2"):
        curvature(network(), Categorical(), (x, x), differentiable=["0.bias"], group=True)
