"""One rank of a small training: `torchrun … _rank.py DIRECTORY EPOCHS [PATIENCE]`.

Rank r trains in DIRECTORY-r, so that ranks do not share a directory.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from groupella.evidence.likelihoods import Gaussian
from groupella.training import EpochRecord, Interrupted, _distributed, fit


def main(place: str, epochs: int, patience: float | None = None) -> None:
    torch.set_num_threads(1)
    if patience is not None:
        _distributed.PATIENCE = timedelta(seconds=patience)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x = torch.linspace(-1, 1, 40)[:, None]
    torch.manual_seed(0)
    network = torch.nn.Linear(1, 1)

    def tell(record: EpochRecord, _: object) -> None:
        Path(f"{place}.{rank}.pid").write_text(f"{os.getpid()} {record.epoch}")
        time.sleep(0.02)

    try:
        fit(
            network,
            (x, 2 * x + 1),
            Gaussian(),
            epochs=epochs,
            batch_size=10,
            method="map",
            directory=f"{place}-{rank}",
            progress=False,
            on_epoch=tell,
        )
    except (Interrupted, OSError, RuntimeError, ValueError) as error:
        print(f"rank {rank}: {type(error).__name__}: {error}", flush=True)
        os._exit(3)
    torch.save(network.state_dict(), f"{place}.{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *map(float, sys.argv[3:]))
