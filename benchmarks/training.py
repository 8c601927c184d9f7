"""CPU time of training against what it replaces, in one run.

    python -m benchmarks.training [--json] [--repeats 15] [--ways]

One thread; medians of process CPU time over interleaved repeats, so that a change of the machine's
speed meets all contestants alike. The speed-up by a second process and `--ways` are of wall time
and need two idle cores. With `--json` the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, distributed, nn
from torch.multiprocessing import spawn
from torch.nn import functional as F

from groupella._machine import keep_freed_memory
from groupella.evidence import Evidence, Prior, data_fit
from groupella.evidence.likelihoods import Categorical
from groupella.groups import Symmetry, named_group, trivial
from groupella.networks import invariant_net, preset
from groupella.training import Settings
from groupella.training._data import as_examples
from groupella.training._distributed import Processes
from groupella.training._interruption import Interruption
from groupella.training._run import Run

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._timing import Step, medians

BATCH, ALPHA = 128, 10
TARGETS = {
    "ffc_conv_vs_stock": "≤ 0.9",
    "conv_vs_stock": "≤ 0.5",
    "pruned_vs_live": "≤ 1.05",
    "evidence_vs_map": "≤ 1.15",
    "ddp_speedup": "≥ 1.6",
}
# The paper's blocks: channels in and out (3, or times α), side, stride.
BLOCKS = [(3, 1, 32, 1), (1, 2, 32, 2), (2, 2, 16, 1), (2, 4, 16, 2)]
BLOCKS += [(4, 4, 8, 1), (4, 8, 8, 2), (8, 8, 4, 2), (8, 16, 2, 2)]


def training_step(network: Callable[[Tensor], Tensor], weights: list[Tensor], x: Tensor) -> Step:
    """Forward, loss, and the gradients of the weights."""
    y = torch.arange(len(x)) % 10
    return lambda: torch.autograd.grad(F.cross_entropy(network(x), y), weights)


def stock_of(width: int = 32) -> nn.Module:
    """The same widths as people write them: zero padding, batch normalisation, ReLU, pooling."""
    layers: list[nn.Module] = []
    for c_in, c_out in ((1, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(c_in, c_out, 3, padding=1), nn.BatchNorm2d(c_out), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10))


def candidates(repeats: int) -> dict[str, float]:
    """A step of the networks of `select` on 62 images of 16×16, against a stock CNN's."""
    x = torch.randn(62, 1, 16, 16)

    def step(network: nn.Module) -> Step:
        return training_step(network.train(), list(network.parameters()), x)

    def own(symmetry: Symmetry) -> Step:
        network = invariant_net(symmetry, (16, 16), 1, 10)
        network.inputs.calibrate([x])
        return step(network)

    steps = {"stock": step(stock_of()), "free": own(trivial())}
    steps |= {name: own(named_group(name)) for name in ("z2", "flips", "p4", "p4m")}
    seconds = medians(steps, repeats)
    found = {f"select_{name}_vs_stock": seconds[name] / seconds["stock"] for name in steps}
    del found["select_stock_vs_stock"]
    return found | {"select_stock_ms": seconds["stock"] * 1e3}


def stock_trunk(padding_mode: str = "circular", strided: bool = False) -> nn.Module:
    """The paper's trunk as people write it: `nn.Conv2d`, and pooling or strides."""
    layers: list[nn.Module] = []
    for i, (c, c_out, _, stride) in enumerate(BLOCKS):
        step = stride if strided else 1
        ends = c * ALPHA if i else c, c_out * ALPHA
        layers.append(nn.Conv2d(*ends, 3, step, padding=1, padding_mode=padding_mode))
        layers += [nn.MaxPool2d(2)] if stride == 2 and not strided else []
        layers.append(nn.ReLU())
    head = [nn.Linear(16 * ALPHA, 64 * ALPHA), nn.ReLU(), nn.Linear(64 * ALPHA, 10)]
    return nn.Sequential(*layers, nn.Flatten(), *head)


def trunks(repeats: int) -> dict[str, float]:
    """A step of the paper's trunk, α = 10, on 128 images of 32×32, against stock networks."""
    x = torch.randn(BATCH, 3, 32, 32)

    def step(network: nn.Module) -> Step:
        network.train()
        return training_step(network, [p for p in network.parameters() if p.requires_grad], x)

    pruned = preset("cifar10/F-FC+CONV", alpha=ALPHA)
    prior = Prior.from_network(pruned)
    free = [g.name for g in prior if g.path == "F-FC" and g.role == "path"]  # as `prune` does
    prior.take_out(pruned, free)
    steps = {
        "stock": step(stock_trunk()),
        "stock zero strided": step(stock_trunk("zeros", strided=True)),
        "conv": step(preset("cifar10/CONV", alpha=ALPHA)),
        "ffc_conv": step(preset("cifar10/F-FC+CONV", alpha=ALPHA)),
        "pruned": step(pruned),
    }
    seconds = medians(steps, repeats)
    return {
        "ffc_conv_vs_stock": seconds["ffc_conv"] / seconds["stock"],
        "conv_vs_stock": seconds["conv"] / seconds["stock"],
        "pruned_vs_live": seconds["pruned"] / seconds["conv"],
        "stock_strided_vs_stock": seconds["stock zero strided"] / seconds["stock"],
        "stock_trunk_ms": seconds["stock"] * 1e3,
    }


def updates(repeats: int, n: int = 60_000) -> dict[str, float]:
    """An update of the precisions of F-FC+CONV, α = 10, against an epoch of n digits.

    As `fit` does it by default: exact curvature on 400 examples, the fit on 5,000, ten steps; and
    with the fit on all of them.
    """
    network = preset("toy-digit/F-FC+CONV", alpha=ALPHA)
    settings, x = Settings(), torch.randn(BATCH, 1, 32, 32)
    assert settings.curvature_subset is not None
    assert settings.fit_subset is not None
    few, some = (
        (torch.randn(m, 1, 32, 32), torch.arange(m) % 10)
        for m in (settings.curvature_subset, settings.fit_subset)
    )
    evidence = Evidence(network, Categorical())

    def update() -> None:
        evidence.collect(some, curvature_data=few, n_data=n)
        evidence.step("fixed_point", settings.hyper_steps)

    steps = {
        "step": training_step(network, list(network.parameters()), x),
        "update": update,
        "fit": lambda: data_fit(network, evidence.likelihood, few),
    }
    seconds = medians(steps, max(repeats // 5, 1))
    epoch = seconds["step"] * n / BATCH
    rest = (n - settings.fit_subset) / settings.curvature_subset * seconds["fit"]
    return {
        "evidence_vs_map": 1 + seconds["update"] / epoch,
        "evidence_with_all_fits_vs_map": 1 + (seconds["update"] + rest) / epoch,
        "update_s": seconds["update"],
        "epoch_s": epoch,
    }


def ways(repeats: int) -> dict[str, float]:
    """A step of the trunk in other ways, against float32 on one thread: wall time."""
    x = torch.randn(BATCH, 3, 32, 32)
    networks = {
        "stock": stock_trunk(),
        "conv": preset("cifar10/CONV", alpha=ALPHA),
        "ffc_conv": preset("cifar10/F-FC+CONV", alpha=ALPHA),
    }
    found = {}
    for name, network in networks.items():
        weights = list(network.train().parameters())
        last = x.contiguous(memory_format=torch.channels_last)
        plain = training_step(network, weights, x)
        lower = training_step(torch.autocast("cpu", torch.bfloat16)(network), weights, x)
        steps: dict[str, Step] = {
            "float32": plain,
            "bfloat16": lower,
            "channels_last": training_step(network, weights, last),
            "two_threads": _with_two_threads(plain),
        }
        if name == "conv":
            steps["compiled"] = training_step(torch.compile(network), weights, x)
        seconds = medians(steps, max(repeats // 2, 3), time.perf_counter)
        for way in [*steps][1:]:
            found[f"{name}_{way}_vs_float32"] = seconds[way] / seconds["float32"]
    return found


def _with_two_threads(step: Step) -> Step:
    def threaded() -> None:
        torch.set_num_threads(2)
        step()
        torch.set_num_threads(1)

    return threaded


def processes(repeats: int) -> dict[str, float]:
    """Images per second of two processes that share batches of 256, against one's: wall time.

    Steps of `fit` on the paper's trunk, over gloo on this machine, in turns.
    """
    with TemporaryDirectory() as directory:
        spawn(_in_turns, (directory, repeats), nprocs=2)  # type: ignore[no-untyped-call]
        found: dict[str, list[float]] = json.loads((Path(directory) / "seconds.json").read_text())
    one, two = (statistics.median(found[name]) for name in ("one", "two"))
    return {"ddp_speedup": one / two, "one_process_ms": one * 1e3, "two_processes_ms": two * 1e3}


def _in_turns(rank: int, directory: str, repeats: int, batch: int = 256) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    distributed.init_process_group(
        "gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=2
    )
    x, y = torch.randn(2 * batch, 3, 32, 32), torch.arange(2 * batch) % 10
    examples, settings = as_examples((x, y), x.device), Settings(batch_size=batch)
    runs = {}
    for name, who in (("one", Processes()), ("two", Processes.current())):
        evidence = Evidence(preset("cifar10/F-FC+CONV", alpha=ALPHA).train(), Categorical())
        who.broadcast(evidence.network)
        runs[name] = Run(evidence, examples, None, settings, None, who, Interruption())
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            distributed.barrier()
            start = time.perf_counter()
            if name == "two" or rank == 0:
                run.counters.step = turn % run.steps_per_epoch
                run.train_step()
            if turn:  # the first is a warm-up
                seconds[name].append(time.perf_counter() - start)
    if rank == 0:
        (Path(directory) / "seconds.json").write_text(json.dumps(seconds))
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print all figures as the last line")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--ways", action="store_true", help="also bfloat16, threads, torch.compile")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()  # as `fit` does
    figures: dict[str, float] = {}
    benchmarks = {
        "networks of select": candidates,
        "the trunk of the paper": trunks,
        "updates of precisions": updates,
        "two processes": processes,
    }
    if arguments.ways:
        benchmarks["other ways to compute"] = ways
    for name, benchmark in benchmarks.items():
        print(name)
        found = benchmark(arguments.repeats)
        figures |= found
        for key, value in found.items():
            target = f"   (target {TARGETS[key]})" if key in TARGETS else ""
            print(f"  {key:<36} {value:8.3f}{target}")
    if arguments.json:
        print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
