"""How the cost of a training step and of the curvature grows, in one run.

    python -m benchmarks.growth [--json] [--repeats 5]

One quantity at a time: groups, classes, sites, data and channels. One thread; medians of process
CPU time over interleaved repeats. `exponent` is the slope of log time over log size, by least
squares; 1 is linear. For classes, also the error of Monte-Carlo columns against exact curvature,
beside that of another subset of 400 data. With `--json` the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella._machine import keep_freed_memory
from groupella.curvature import curvature, exact, mc
from groupella.evidence import Evidence
from groupella.evidence.likelihoods import Categorical
from groupella.groups import GroupSet, named_group, trivial, z2
from groupella.networks import trunk
from groupella.training import Settings, fit

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._timing import Step, medians

Mode = exact | mc
BLOCKS = [(1, 1), (2, 2), (4, 2)]
MEMBERS = ("z2", "flips", "p2", "pmm", "p4", "cm", "p4m")


def network(classes: int = 10, side: int = 16, alpha: int = 8, groups: int = 1) -> nn.Module:
    torch.manual_seed(0)
    members = GroupSet(trivial(), *(named_group(name) for name in MEMBERS[:groups]))
    paths = "F-FC+CONV" if groups == 1 else None
    sizes = {"alpha": alpha, "image_size": side, "classes": classes, "blocks": BLOCKS}
    return trunk(members, paths, in_channels=1, hidden=8, **sizes)  # type: ignore[arg-type]


def data(n: int, side: int = 16, classes: int = 10) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, 1, side, side, generator=generator), torch.arange(n) % classes


def step_of(model: nn.Module, pair: tuple[Tensor, Tensor]) -> Step:
    x, y = pair
    weights = [p for p in model.parameters() if p.requires_grad]
    return lambda: torch.autograd.grad(F.cross_entropy(model(x), y), weights)


def curvature_of(model: nn.Module, pair: tuple[Tensor, Tensor], mode: Mode) -> Step:
    return lambda: curvature(model, Categorical(), pair, mode=mode)


def exponent(found: Mapping[int, float]) -> float:
    return float(np.polyfit(np.log(list(found)), np.log(list(found.values())), 1)[0])


def growth(sizes: tuple[int, ...], make: Callable[[int], Step], repeats: int) -> dict[int, float]:
    found = medians({str(size): make(size) for size in sizes}, repeats)
    return {int(size): seconds for size, seconds in found.items()}


def curves(repeats: int) -> dict[str, dict[int, float]]:
    """CPU seconds by size, for each quantity."""
    classes, few = (2, 5, 10, 20, 50, 100, 200), 64
    return {
        name: growth(sizes, make, repeats)
        for name, sizes, make in [
            ("groups: step", (1, 2, 3, 5, 7), lambda n: step_of(network(groups=n), data(few))),
            ("classes: step", classes, lambda k: step_of(network(k), data(few, classes=k))),
            (
                "classes: exact curvature",
                classes,
                lambda k: curvature_of(network(k), data(few, classes=k), exact()),
            ),
            (
                "classes: curvature with 8 columns",
                classes,
                lambda k: curvature_of(network(k), data(few, classes=k), mc(8)),
            ),
            ("sides: step", (8, 16, 32, 64), lambda s: step_of(network(side=s), data(few, s))),
            ("data: step", (32, 64, 128, 256), lambda n: step_of(network(), data(n))),
            (
                "data: exact curvature",
                (32, 64, 128, 256),
                lambda n: curvature_of(network(), data(n), exact()),
            ),
            ("channels: step", (4, 8, 16, 32), lambda a: step_of(network(alpha=a), data(few))),
        ]
    }


def templates(classes: int, n: int) -> tuple[Tensor, Tensor]:
    """Smooth random pictures, one per class, shifted at random and with noise."""
    generator = torch.Generator().manual_seed(1)
    raw = torch.randn(classes, 1, 16, 16, generator=generator)
    smooth = 5 * F.avg_pool2d(F.pad(raw, (2, 2, 2, 2), mode="circular"), 5, 1)
    y = torch.arange(n) % classes
    moves = torch.randint(0, 16, (n, 2), generator=generator)
    site = (torch.arange(16).view(1, 16) + moves[:, :, None]) % 16
    x = smooth[y, 0][torch.arange(n)[:, None, None], site[:, 0, :, None], site[:, 1, None, :]]
    return (x + 0.5 * torch.randn(n, 16, 16, generator=generator))[:, None], y


def columns(classes: int = 100) -> dict[str, float]:
    """Errors of 8 Monte-Carlo columns and of another subset, against exact curvature.

    After a MAP training; largest relative errors of γ, and those of the evidence per datum.
    """
    x, y = templates(classes, 30 * classes)
    torch.manual_seed(0)
    sizes = {"alpha": 4, "image_size": 16, "classes": classes, "blocks": BLOCKS}
    model = trunk(GroupSet(trivial(), z2()), "F-FC+CONV", in_channels=1, hidden=8, **sizes)  # type: ignore[arg-type]
    plan = {"epochs": 6, "batch_size": 64, "lr": 0.005, "method": "map"}
    fit(model, (x, y), progress=False, settings=Settings(**plan))  # type: ignore[arg-type]
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(2))

    def measured(part: Tensor, mode: Mode) -> tuple[float, Tensor]:
        evidence = Evidence(copy.deepcopy(model), Categorical())
        pairs = [(x[i], y[i]) for i in (order[:1000], part)]
        evidence.collect(pairs[0], curvature_data=pairs[1], n_data=len(y), mode=mode)
        evidence.step("fixed_point", 10)
        return evidence.log_evidence / len(y), evidence.effective_parameters()

    value, gammas = measured(order[:400], exact())
    kinds = {"subset": (order[400:800], exact()), "columns": (order[:400], mc(8, 3))}
    found = {}
    for name, (part, mode) in kinds.items():
        other, others = measured(part, mode)
        large = gammas > 0.01
        found[f"{name}_evidence"] = abs(other - value)
        found[f"{name}_gamma"] = float((others / gammas - 1)[large].abs().max())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print all figures as the last line")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as `fit` does
    figures: dict[str, float] = {}
    for name, found in curves(arguments.repeats).items():
        figures[f"{name}: exponent"] = exponent(found)
        times = "  ".join(f"{size}: {1e3 * seconds:.0f}" for size, seconds in found.items())
        print(f"{name:<34} ms  {times}   exponent {figures[f'{name}: exponent']:.2f}")
    for name, error in columns().items():
        figures[f"100 classes: error of {name}"] = error
        print(f"100 classes: error of {name:<20} {error:.4f}")
    if arguments.json:
        print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
