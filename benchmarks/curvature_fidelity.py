"""How far Kronecker factors are from the exact Gauss–Newton block, path by path.

    python benchmarks/curvature_fidelity.py [--json] [--data 300] [--seeds 2]

For every path, a network (convolution, path, linear head) is trained on scikit-learn's 8×8 digits
with a unit prior precision. Then the Occam term ½ log|1 + H/δ| of the path's parameter, in nats, is
compared between the exact GGN block and its Kronecker factors, expand and reduce, at δ = 1. Biases
and lengthscales are left out: their blocks are exact.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import mean

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.curvature import KroneckerBlock, curvature
from groupella.curvature._tape import Approximation
from groupella.evidence.likelihoods import Categorical
from groupella.groups import FeatureSpace, GroupSet, p4, z2
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    SparseConv,
    SparseFC,
)
from groupella.nn.pooling import Lift
from groupella.nn.shared_maps import Sharing
from groupella.testing._curvature import ggn_blocks

Build = Callable[[FeatureSpace, FeatureSpace], nn.Module]
PATHS: dict[str, tuple[GroupSet, Build]] = {
    "FC": (GroupSet(z2()), FullyConnected),
    "F-FC": (GroupSet(z2()), FactoredFC),
    "S-FC": (GroupSet(z2()), SparseFC),
    "CONV": (GroupSet(z2()), Conv),
    "S-CONV": (GroupSet(z2()), SparseConv),
    "GCONV p4": (GroupSet(p4()), lambda a, b: GroupConv(a, b, p4())),
    "GCONV p4 pointwise": (GroupSet(p4()), lambda a, b: GroupConv(a, b, p4(), pointwise=True)),
    "dense basis p4": (GroupSet(p4()), lambda a, b: DenseBasis(a, b, p4())),
}
SIDE = 4


class Network(nn.Module):
    """8×8 digits → convolution and pooling to 4×4 → the path → a linear head."""

    def __init__(self, groups: GroupSet, build: Build) -> None:
        super().__init__()
        image = groups.space((8, 8), 1, "trivial")
        self.lift = Lift(image)
        fibre = self.lift.space_out.fibre_size
        channels = 4 if fibre == 1 else 2
        wide = groups.space((8, 8), channels)
        self.first = GroupConv(self.lift.space_out, wide, groups.ambient)
        space = groups.space((SIDE, SIDE), channels)
        self.path = build(space, space)
        self.head = nn.Linear(space.size, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.avg_pool2d(self.first(self.lift(x)).relu(), 2)
        return self.head(self.path(hidden).relu().flatten(1))  # type: ignore[no-any-return]


def digits(n: int) -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    chosen = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:n]
    x = torch.as_tensor(images).reshape(-1, 1, 8, 8)[chosen] / 16 - 0.3
    return x.double(), torch.as_tensor(labels)[chosen]


def trained(groups: GroupSet, build: Build, x: Tensor, y: Tensor, seed: int) -> Network:
    """MAP with unit prior precision."""
    torch.manual_seed(seed)
    network = Network(groups, build).double()
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    for _ in range(300):
        loss = F.cross_entropy(network(x), y, reduction="sum")
        for parameter in network.parameters():
            loss = loss + 0.5 * parameter.square().sum()
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


def occam(block: KroneckerBlock | Tensor) -> float:
    """½ log|1 + H|."""
    if isinstance(block, KroneckerBlock):
        return 0.5 * float(block.logdet(1.0))
    return 0.5 * float(torch.linalg.eigvalsh(block).clamp(min=0).log1p().sum())


def compare(name: str, n: int, seed: int) -> dict[str, dict[str, float]]:
    """Parameter (and sharing rule) → exact and approximate Occam terms."""
    groups, build = PATHS[name]
    x, y = digits(n)
    network = trained(groups, build, x, y, seed)
    weights = [f"path.{n}" for n in dict(network.path.named_parameters()) if "omega" not in n]
    exact = ggn_blocks(network, Categorical(), x, weights)
    rows: dict[str, dict[str, float]] = {}
    sharings: tuple[Sharing | None, ...] = ("block", "sum") if len(weights) > 1 else (None,)
    for sharing in sharings:
        found: dict[Approximation, dict[str, float]] = {}
        for approximation in ("expand", "reduce"):
            blocks = curvature(
                network, Categorical(), (x, y), approximation=approximation, sharing=sharing
            )
            found[approximation] = {parameter: occam(blocks[parameter]) for parameter in exact}
        for parameter, block in exact.items():
            label = f"{name} {parameter.removeprefix('path.')}"
            rows[label if sharing is None else f"{label}, {sharing}"] = {
                "parameters": len(block),
                "exact": occam(block),
                "expand": found["expand"][parameter],
                "reduce": found["reduce"][parameter],
            }
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="Kronecker factors against the exact GGN block.")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--paths", nargs="*", default=list(PATHS), choices=list(PATHS))
    arguments = parser.parse_args()
    header = f"{'½ log|1 + H|, nats':<34}{'P':>7}{'exact':>9}{'expand':>9}{'reduce':>9}{'error':>9}"
    print(f"{header}{'% of exact':>12}")
    result = {}
    for name in arguments.paths:
        runs = [compare(name, arguments.data, seed) for seed in range(arguments.seeds)]
        for label in runs[0]:
            row = {key: mean(run[label][key] for run in runs) for key in runs[0][label]}
            result[label] = row
            error = row["expand"] - row["exact"]
            print(
                f"{label:<34}{row['parameters']:>7.0f}{row['exact']:>9.1f}{row['expand']:>9.1f}"
                f"{row['reduce']:>9.1f}{error:>+9.1f}{100 * error / row['exact']:>+11.0f} %",
                flush=True,
            )
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
