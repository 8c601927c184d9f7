"""Speed of layers against what they replace, in one run.

    python benchmarks/layers.py [--json] [--repeats 9]

One thread; forward and backward (input and weights) at batch 128; medians of process CPU time over
interleaved repeats, so that a change of the machine's speed meets all contestants alike. With
`--json` the last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.groups import GroupSet, Symmetry, p4, p4m, trivial, z2
from groupella.networks import preset
from groupella.nn.circular import circular_conv
from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import FactoredFC, GroupConv
from groupella.nn.pooling import GroupPool, PolyphasePool

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks._timing import medians

BATCH = 128
TARGETS = {
    "groupconv_vs_conv2d": "≤ 1.1",
    "groupconv_vs_escnn": "≤ 1.0",
    "construction_vs_escnn": "≥ 10 times faster",
    "factored_vs_blockdiag": "≥ 9 times faster",
    "pool_vs_maxpool": "≤ 2",
    "circular_vs_padding": "> 1 times faster",
    "memory_gb": "≤ 0.6",
    "fused_vs_separate": "> 1 times faster",
}


def training_step(function: Callable[..., Tensor], *inputs: Tensor) -> Callable[[], object]:
    """Forward and backward with respect to all inputs."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    gradient = torch.randn_like(function(*leaves))
    return lambda: torch.autograd.grad(function(*leaves), leaves, gradient)


def module_step(
    module: Callable[[Tensor], Tensor], weights: list[Tensor], x: Tensor
) -> Callable[[], object]:
    """Forward and backward with respect to the input and a module's own weights."""
    leaf = x.detach().clone().requires_grad_()
    gradient = torch.randn_like(module(leaf))
    return lambda: torch.autograd.grad(module(leaf), [leaf, *weights], gradient)


def group_convolutions(repeats: int) -> dict[str, float]:
    """16 to 32 regular fields, 3×3, 16×16, p4 and p4m; the worse of the two ratios."""
    found: dict[str, list[float]] = {}
    for symmetry in (p4(), p4m()):
        times = _group_convolution(symmetry, repeats)
        for name, value in times.items():
            found.setdefault(name, []).append(value)
        print(f"  {symmetry}: " + ", ".join(f"{k} {v:.3g}" for k, v in times.items()))
    return {name: max(values) for name, values in found.items()}


def _group_convolution(symmetry: Symmetry, repeats: int) -> dict[str, float]:
    groups = GroupSet(symmetry)
    source, target = groups.space((16, 16), 16), groups.space((16, 16), 32)
    x = torch.randn(BATCH, *source.shape)
    weight = torch.randn(target.shape[0], source.shape[0], 3, 3)
    path = GroupConv(source, target, symmetry)
    theirs, wrap = _escnn(symmetry)
    steps = {
        "ours": module_step(path, [path.weight], x),
        "conv2d": training_step(lambda a, w: F.conv2d(a, w, padding=1), x, weight),
        "conv2d channels-last": training_step(
            lambda a, w: F.conv2d(a, w, padding=1),
            x.to(memory_format=torch.channels_last),
            weight,
        ),
        "conv2d circular": training_step(_padded, x, weight),
        "escnn": module_step(lambda a: theirs(wrap(a)).tensor, [theirs.weights], x),
    }
    seconds = medians(steps, repeats)
    return {
        "groupconv_vs_conv2d": seconds["ours"] / seconds["conv2d"],
        "groupconv_vs_conv2d_channels_last": seconds["ours"] / seconds["conv2d channels-last"],
        "groupconv_vs_circular_conv2d": seconds["ours"] / seconds["conv2d circular"],
        "groupconv_vs_escnn": seconds["ours"] / seconds["escnn"],
        "groupconv_ms": seconds["ours"] * 1e3,
    }


def _escnn(symmetry: Symmetry) -> tuple[nn.Module, Callable[[Tensor], object]]:
    from groupella.groups.gate import load_gspaces, load_nn

    gspaces, enn = load_gspaces(), load_nn()
    act = gspaces.rot2dOnR2(4) if len(symmetry.point) == 4 else gspaces.flipRot2dOnR2(4)
    source, target = (enn.FieldType(act, n * [act.regular_repr]) for n in (16, 32))
    conv = enn.R2Conv(source, target, 3, padding=1, padding_mode="circular", bias=False)
    conv.train()
    return conv, lambda x: enn.GeometricTensor(x, source)


def construction() -> dict[str, float]:
    """Seconds to make the p4m layer, each after its own first use and without stored bases."""
    groups = GroupSet(p4m())
    source, target = groups.space((16, 16), 16), groups.space((16, 16), 32)

    def ours() -> object:
        from groupella.bases import clear_cache

        clear_cache()
        return GroupConv(source, target, p4m())

    seconds = medians({"ours": ours, "escnn": lambda: _escnn(p4m())}, 3)
    return {
        "construction_vs_escnn": seconds["escnn"] / seconds["ours"],
        "construction_ms": seconds["ours"] * 1e3,
    }


def _padded(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), weight)


def circular(repeats: int) -> dict[str, float]:
    """The trunk's convolutions at α = 10; the least and the geometric mean gain over F.pad."""
    gains = []
    for c, c_out, size in ((3, 10, 32), (10, 20, 32), (20, 20, 16), (40, 40, 8), (80, 80, 4)):
        x, weight = torch.randn(BATCH, c, size, size), torch.randn(c_out, c, 3, 3)
        steps = {
            "ours": training_step(circular_conv, x, weight),
            "padded": training_step(_padded, x, weight),
        }
        seconds = medians(steps, repeats)
        gains.append(seconds["padded"] / seconds["ours"])
    return {
        "circular_vs_padding": min(gains),
        "circular_vs_padding_mean": statistics.geometric_mean(gains),
    }


def factored(repeats: int) -> dict[str, float]:
    """F-FC of the trunk's third block, 20 to 20 channels on 16×16, against the block-diagonal."""
    groups = GroupSet(z2(), trivial())
    space = groups.space((16, 16), 20)
    path = FactoredFC(space, space)
    x = torch.randn(BATCH, *space.shape)
    steps = {
        "ours": module_step(path, [path.theta1, path.theta2], x),
        "block-diagonal": training_step(_block_diagonal, x, path.theta1, path.theta2),
    }
    torch.testing.assert_close(_block_diagonal(x, path.theta1, path.theta2), path(x))
    seconds = medians(steps, max(3, repeats // 3))
    return {"factored_vs_blockdiag": seconds["block-diagonal"] / seconds["ours"]}


def _block_diagonal(x: Tensor, theta1: Tensor, theta2: Tensor) -> Tensor:
    """The published way: every channel's input on the diagonal of a matrix of zeros."""
    c_out = theta1.shape[0]
    wide = torch.diag_embed(x.flatten(2).transpose(1, 2)).permute(0, 2, 3, 1)
    z = F.linear(wide.flatten(2), theta2.flatten(1))
    wide = torch.diag_embed(z).permute(0, 2, 3, 1)
    y = F.linear(wide.flatten(2), theta1.permute(2, 0, 1).flatten(1))
    return y.reshape(x.shape[0], c_out, *x.shape[2:])


def pooling(repeats: int) -> dict[str, float]:
    """160 channels (40 × 4) on 16×16 in either memory layout; the worse ratio."""
    groups = GroupSet(p4())
    pool = PolyphasePool(groups.space((16, 16), 40))
    x = torch.randn(BATCH, 160, 16, 16)
    ratios = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        laid = x.to(memory_format=layout)
        steps = {
            "ours": training_step(pool, laid),
            "max": training_step(lambda a: F.max_pool2d(a, 2), laid),
        }
        seconds = medians(steps, repeats)
        ratios[layout] = seconds["ours"] / seconds["max"]
    return {
        "pool_vs_maxpool": max(ratios.values()),
        "pool_vs_maxpool_contiguous": ratios[torch.contiguous_format],
    }


def trunk(alpha: int = 10) -> nn.Module:
    """The paper's eight blocks with F-FC+CONV and its head, of layers alone."""
    groups = GroupSet(z2(), trivial())
    blocks = [(3, 1, 32, 1), (1, 2, 32, 2), (2, 2, 16, 1), (2, 4, 16, 2)]
    blocks += [(4, 4, 8, 1), (4, 8, 8, 2), (8, 8, 4, 2), (8, 16, 2, 2)]
    modules: list[nn.Module] = []
    for i, (c, c_out, size, stride) in enumerate(blocks):
        source = groups.space((size, size), c if i == 0 else c * alpha)
        target = groups.space((size // stride, size // stride), c_out * alpha)
        modules += [ResidualPathway(source, target, groups, "F-FC+CONV", stride=stride), nn.ReLU()]
    pooled = GroupPool(target, "mean")
    head = [nn.Linear(16 * alpha, 64 * alpha), nn.ReLU(), nn.Linear(64 * alpha, 10)]
    return nn.Sequential(*modules, pooled, nn.Flatten(), *head)


def fusion(repeats: int) -> dict[str, float]:
    """A training step of two networks, their convolutions as one and (by an idle hook) each by
    itself."""
    found = {}
    for name, row, alpha in (("groups", "groups/mnist", 2), ("toy", "toy-digit/F-FC+CONV", 10)):
        network = preset(row, alpha=alpha)
        x = torch.randn(BATCH, *network.space_in.shape)
        y = torch.randint(10, (BATCH,))
        paths = [path for layer in network.layers for path in layer.paths.values()]  # type: ignore[union-attr,operator]

        def fused(network: nn.Module = network, x: Tensor = x, y: Tensor = y) -> None:
            network.zero_grad(set_to_none=True)
            F.cross_entropy(network(x), y).backward()

        def separate(step: Callable[[], None] = fused, paths: list[nn.Module] = paths) -> None:
            hooks = [path.register_forward_hook(lambda *_: None) for path in paths]
            step()
            for hook in hooks:
                hook.remove()

        seconds = medians({"fused": fused, "separate": separate}, repeats)
        found[f"{name}_step_ms"] = seconds["fused"] * 1e3
        found[f"{name}_step_separate_ms"] = seconds["separate"] * 1e3
    found["fused_vs_separate"] = found["groups_step_separate_ms"] / found["groups_step_ms"]
    return found


def memory() -> None:
    """Peak resident memory of one training step, printed in GB: what the step added, and all."""
    network = trunk()
    x, y = torch.randn(BATCH, 3, 32, 32), torch.randint(10, (BATCH,))
    before = peak_gb()
    F.cross_entropy(network(x), y).backward()
    after = peak_gb()
    print(json.dumps({"memory_gb": after - before, "memory_total_gb": after}))


def peak_gb() -> float:
    """Peak resident memory of this process (the kernel's own figure outlives an exec)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        (peak,) = [int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
    except (OSError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20


def measured_memory() -> dict[str, float]:
    """`memory` in a process of its own."""
    command = [sys.executable, __file__, "--memory"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print all figures as the last line")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if arguments.memory:
        memory()
        return
    figures: dict[str, float] = {}
    for name, benchmark in {
        "group convolution": lambda: group_convolutions(arguments.repeats),
        "construction": construction,
        "circular convolution": lambda: circular(arguments.repeats),
        "factored FC": lambda: factored(arguments.repeats),
        "polyphase pooling": lambda: pooling(arguments.repeats),
        "training steps of networks": lambda: fusion(arguments.repeats),
        "memory of F-FC+CONV, α = 10": measured_memory,
    }.items():
        print(name)
        found = benchmark()
        figures |= found
        for key, value in found.items():
            target = f"   (target {TARGETS[key]})" if key in TARGETS else ""
            print(f"  {key:<36} {value:8.3f}{target}")
    if arguments.json:
        print(json.dumps({key: round(value, 4) for key, value in figures.items()}))


if __name__ == "__main__":
    main()
