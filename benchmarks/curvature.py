"""Speed and memory of curvature, against a plain pass and against other libraries, in one run.

    python benchmarks/curvature.py [--json] [--repeats 7] [--quick]

The network is a circular CNN 3→10→20→40→80 with two max-pools on 32×32 images, ten classes, batch
128. One thread; medians of process CPU time over interleaved repeats, so that a change of the
machine's speed meets all contestants alike. Ratios are to one plain forward and backward pass with
gradients for all weights: of the stock network, or of an optimised one (`circular_conv`). Peers
that do not import are named and null. Memory is measured in processes of its own. With `--json`
the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.curvature import Curvature, curvature, exact, hypergradient, mc
from groupella.evidence.likelihoods import Categorical
from groupella.networks import preset
from groupella.nn.circular import circular_conv
from groupella.nn.shared_maps import BasisMap, SharedLinearMap, record

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._curvature_peers import peers
from benchmarks._timing import Step, medians

SIDE = 32
WIDTHS = (3, 10, 20, 40, 80)
POOLED = (False, True, True, False)
TARGETS = {
    "exact_vs_stock": 3.5,
    "exact_vs_optimised": None,
    "best_peer_exact": None,
    "mc1_vs_stock": 1.1,
    "hypergrad_vs_stock": 9.0,
    "ffc_conv_vs_plain": 10.0,
    "extra_mb": 120.0,
    "ffc_conv_gb": 0.7,
}


class Optimised(nn.Module):
    """A circular convolution by `circular_conv`."""

    def __init__(self, c_in: int, c_out: int, side: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, 3)

    def forward(self, x: Tensor) -> Tensor:
        return circular_conv(x, self.conv.weight, self.conv.bias)


class Windowed(nn.Module):
    """A circular convolution whose kernel is multiplied by a window of learned width 1/ω."""

    def __init__(self, c_in: int, c_out: int, side: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.Conv2d(c_in, c_out, 3).weight.detach())
        self.omega = nn.Parameter(torch.tensor(0.5))
        self.sites = (side, side)

    def window(self) -> Tensor:
        o = torch.arange(-1.0, 2.0)
        return (-(self.omega**2) * (o[:, None] ** 2 + o[None, :] ** 2)).exp()

    def forward(self, x: Tensor) -> Tensor:
        y = circular_conv(x, self.weight * self.window())
        record(self, "weight", x, y)
        return y

    def shared_maps(self) -> dict[str, SharedLinearMap]:
        c_out, c_in = self.weight.shape[:2]
        basis = torch.diag(self.window().flatten()).reshape(9, 1, 1, 3, 3)
        return {"weight": BasisMap("weight", basis, c_in, c_out, self.sites)}


def stock_conv(c_in: int, c_out: int, side: int) -> nn.Module:
    """What everybody writes."""
    return nn.Conv2d(c_in, c_out, 3, padding=1, padding_mode="circular")


def cnn(classes: int, conv: Callable[[int, int, int], nn.Module] = stock_conv) -> nn.Sequential:
    """The network of the benchmark."""
    layers: list[nn.Module] = []
    side = SIDE
    for c_in, c_out, pooled in zip(WIDTHS, WIDTHS[1:], POOLED, strict=False):
        layers.append(conv(c_in, c_out, side))
        if pooled:
            layers.append(nn.MaxPool2d(2))
            side //= 2
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.AvgPool2d(side), nn.Flatten(), nn.Linear(WIDTHS[-1], classes))


def images(batch: int, classes: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 3, SIDE, SIDE, generator=generator)
    return x, torch.randint(classes, (batch,), generator=generator)


def plain_pass(network: nn.Module, x: Tensor, y: Tensor) -> Step:
    """Forward, loss, and the gradients of all weights."""
    parameters = list(network.parameters())
    return lambda: torch.autograd.grad(F.cross_entropy(network(x), y), parameters)


def log_determinant(blocks: Curvature) -> Tensor:
    """The part of the evidence that depends on curvature."""
    return -0.5 * torch.stack([block.logdet(1.0) for block in blocks.values()]).sum()


def against_everyone(repeats: int) -> tuple[dict[str, float], dict[str, str]]:
    """CPU seconds of plain passes, ours and peers' on the benchmark network."""
    torch.manual_seed(0)
    stock, optimised, windowed = cnn(10), cnn(10, Optimised), cnn(10, Windowed)
    data = images(128, 10)
    omegas = [name for name, _ in windowed.named_parameters() if name.endswith("omega")]
    steps: dict[str, Step] = {
        "plain stock": plain_pass(stock, *data),
        "plain optimised": plain_pass(optimised, *data),
        "exact": lambda: curvature(stock, Categorical(), data),
        "MC(1)": lambda: curvature(stock, Categorical(), data, mc(1)),
    }
    for passes in (1, 2):
        for label, mode in (("exact", exact()), ("MC(1)", mc(1))):
            steps[f"hypergrad {label}, passes={passes}"] = partial(
                hypergradient,
                log_determinant,
                windowed,
                Categorical(),
                data,
                omegas,
                passes=passes,
                mode=mode,
            )
    absent = {}
    for name, step in peers(stock, *data).items():
        if isinstance(step, str):
            absent[name] = step
        else:
            steps[f"{name}"] = step
    return medians(steps, repeats), absent


def factored(repeats: int) -> dict[str, float]:
    """F-FC+CONV: exact curvature with all eigenvalues, and its own plain pass."""
    torch.manual_seed(0)
    network = preset("cifar10/F-FC+CONV")
    data = images(128, 10)

    def with_eigenvalues() -> None:
        for block in curvature(network, Categorical(), data).values():
            block.eigenvalues()

    return medians(
        {
            "plain": plain_pass(network, *data),
            "curvature": lambda: curvature(network, Categorical(), data),
            "with eigenvalues": with_eigenvalues,
        },
        repeats,
    )


def growth(repeats: int) -> list[tuple[int, int, float, float]]:
    """(classes, batch, exact ÷ plain, MC(1) ÷ plain)."""
    rows = []
    for classes, batch in ((2, 128), (10, 128), (100, 128), (10, 32), (10, 512)):
        torch.manual_seed(0)
        network, data = cnn(classes), images(batch, classes)
        steps: dict[str, Step] = {
            "plain": plain_pass(network, *data),
            "exact": partial(curvature, network, Categorical(), data, batch_size=512),
            "mc": partial(curvature, network, Categorical(), data, mc(1), batch_size=512),
        }
        seconds = medians(steps, repeats)
        rows.append(
            (classes, batch, seconds["exact"] / seconds["plain"], seconds["mc"] / seconds["plain"])
        )
    return rows


def memory_of(what: str) -> None:
    """In a process of its own: print the memory in MB before a step, and its peak during it."""
    torch.manual_seed(0)
    network: nn.Module = preset("cifar10/F-FC+CONV") if what == "factored" else cnn(10)
    data, small = images(128, 10), images(2, 10)

    def step(batch: tuple[Tensor, Tensor]) -> None:
        if what == "plain":
            plain_pass(network, *batch)()
            return
        blocks = curvature(network, Categorical(), batch)
        if what == "factored":
            for block in blocks.values():
                block.eigenvalues()

    step(small)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    step(data)
    print(json.dumps([before, _status("VmHWM")]))


def _status(key: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def memory(what: str) -> tuple[float, float]:
    """(before, peak) in MB; NaN where the system does not tell."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan"), float("nan")
    command = [sys.executable, __file__, "--memory-of", what]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    before, peak = json.loads(output.splitlines()[-1])
    return before, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="skip the growth table")
    parser.add_argument("--memory-of", choices=["plain", "exact", "factored"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        memory_of(arguments.memory_of)
        return

    seconds, absent = against_everyone(arguments.repeats)
    stock, optimised = seconds["plain stock"], seconds["plain optimised"]
    print(f"{'circular CNN, batch 128, K = 10':<34}{'ms':>8}{'÷ stock':>10}{'÷ optimised':>13}")
    for name, value in seconds.items():
        print(f"{name:<34}{1e3 * value:>8.0f}{value / stock:>10.2f}{value / optimised:>13.2f}")
    for name, reason in absent.items():
        print(f"{name:<34}    null  ({reason})")

    ffc = factored(arguments.repeats)
    print(f"\n{'F-FC+CONV, α = 10, batch 128':<34}{'ms':>8}{'÷ plain':>10}")
    for name, value in ffc.items():
        print(f"{name:<34}{1e3 * value:>8.0f}{value / ffc['plain']:>10.2f}")

    print(f"\n{'memory of one step, MB':<34}{'before':>8}{'peak':>10}{'extra':>10}")
    sizes = {what: memory(what) for what in ("plain", "exact", "factored")}
    for what, (before, peak) in sizes.items():
        print(f"{what:<34}{before:>8.0f}{peak:>10.0f}{peak - before:>10.0f}")

    if not arguments.quick:
        print(f"\n{'growth':<10}{'K':>6}{'batch':>8}{'exact ÷ stock':>16}{'MC(1) ÷ stock':>16}")
        for classes, batch, full, sampled in growth(min(3, arguments.repeats)):
            print(f"{'':<10}{classes:>6}{batch:>8}{full:>16.2f}{sampled:>16.2f}")

    own = ("plain", "exact", "MC(1)", "hypergrad")
    others = [value for name, value in seconds.items() if not name.startswith(own)]
    result = {
        "exact_vs_stock": seconds["exact"] / stock,
        "exact_vs_optimised": seconds["exact"] / optimised,
        "best_peer_exact": min(others) / stock if others else None,
        "mc1_vs_stock": seconds["MC(1)"] / stock,
        "hypergrad_vs_stock": min(seconds[f"hypergrad exact, passes={p}"] for p in (1, 2)) / stock,
        "ffc_conv_vs_plain": ffc["with eigenvalues"] / ffc["plain"],
        "extra_mb": sizes["exact"][1] - sizes["exact"][0],
        "ffc_conv_gb": sizes["factored"][1] / 1024,
    }
    print(f"\n{'':<24}{'measured':>10}{'target':>10}")
    for name, figure in result.items():
        target = TARGETS[name]
        shown = "null" if figure is None else f"{figure:.2f}"
        print(f"{name:<24}{shown:>10}{'' if target is None else f'≤ {target:g}':>10}")
    if arguments.json:
        print(json.dumps({n: v if v is None else round(v, 3) for n, v in result.items()}))


if __name__ == "__main__":
    main()
