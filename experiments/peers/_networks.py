"""Networks of the peers.

`StageNet` has one layer for each stage of a problem, made by the method: a linear map between
scalar fields. Between them are a bias per channel, batch normalisation (the same at all sites, so
that it obeys every candidate) and ReLU. A linear problem is one layer.
`plain_net` obeys nothing: the network whose predictions are averaged over motions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ._problem import SHRINK, SLOPE, Part, Problem, Stage

START = 0.1  # of layers that are skipped


class Layer(nn.Module):
    """A linear map (batch, c_in, P) → (batch, c_out, P') given by its matrices.

    `size_parameters` are the first words of the names of those parameters that its matrices are
    proportional to.
    """

    size_parameters: tuple[str, ...] = ("weights", "weight", "filters")

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self.stage = stage

    def matrices(self) -> Tensor:
        """W (c_out, c_in, P', P)."""
        raise NotImplementedError

    @torch.no_grad()
    def shrink(self, factor: float) -> None:
        """Multiply the matrices with a factor."""
        for name, parameter in self.named_parameters():
            if name.split(".")[0] in self.size_parameters:
                parameter.mul_(factor)

    def forward(self, x: Tensor) -> Tensor:
        stage = self.stage
        w = self.matrices().transpose(1, 2).reshape(stage.c_out * stage.points_out, -1)
        return (x.flatten(1) @ w.T).view(-1, stage.c_out, stage.points_out)


class PathLayer(Layer):
    """W = Σ_i s_i · Σ_b θ_i(c', c, b) B_i,b: a sum of paths, each with a factor s_i.

    Factors are 1 unless `factors` gives them. With `apart`, the path of any map loses what the
    other paths have. Every path starts with 1/√paths of a Kaiming size, times its entry of `sizes`.
    """

    def __init__(
        self,
        stage: Stage,
        parts: Sequence[Part],
        sizes: Sequence[float] = (),
        *,
        apart: bool = False,
    ) -> None:
        super().__init__(stage)
        self.apart = apart
        self.parts = tuple(parts)
        self.factors: Callable[[], Tensor] | None = None
        sizes = sizes or [1.0] * len(self.parts)
        weights = []
        for part, size in zip(self.parts, sizes, strict=True):
            count = stage.points * stage.points_out if part.rows is None else len(part.rows)
            # Each output adds c_in·‖W‖²/P' of unit inputs: 2 for all paths together.
            power = 2 * stage.points_out / (stage.c_in * count * len(self.parts))
            scale = 1.0 if part.rows is None else stage.unit
            draw = torch.randn(stage.c_out, stage.c_in, count)
            weights.append(nn.Parameter(draw * (size * math.sqrt(power) / scale)))
        self.weights = nn.ParameterList(weights)
        known = [p.rows for p in self.parts if p.rows is not None]
        self.rows = torch.cat(known) if known else None

    def free(self, w: Tensor) -> Tensor:
        """Weights (c_out·c_in, P'·P) of the path of any map."""
        w = w.flatten(0, 1)
        return w - w @ self.rows.T @ self.rows if self.apart and self.rows is not None else w

    def path(self, i: int) -> Tensor:
        """The matrices of one path, without its factor."""
        stage, rows = self.stage, self.parts[i].rows
        w: Tensor = self.weights[i]
        w = self.free(w) if rows is None else stage.unit * (w.flatten(0, 1) @ rows)
        return w.reshape(stage.c_out, stage.c_in, stage.points_out, stage.points)

    def matrices(self) -> Tensor:
        weights: list[Tensor] = list(self.weights)
        if self.factors is not None:
            weights = [s * w for s, w in zip(self.factors(), weights, strict=True)]
        pairs = list(zip(self.parts, weights, strict=True))
        total = sum((self.free(w) for p, w in pairs if p.rows is None), torch.zeros(()))
        if self.rows is not None:
            known = torch.cat([w.flatten(0, 1) for p, w in pairs if p.rows is not None], 1)
            total = total + self.stage.unit * known @ self.rows
        stage = self.stage
        return total.view(stage.c_out, stage.c_in, stage.points_out, stage.points)


class StageNet(nn.Module):
    """One layer per stage. Takes x (n, 1, P); gives (n, classes), or (n, P) of a regression.

    Layers of a deep problem start at a tenth of what skips them: larger ones may end with another
    order of the sites between layers than the teacher's.
    """

    def __init__(self, problem: Problem, make: Callable[[Stage], Layer]) -> None:
        super().__init__()
        self.deep = bool(problem.layers)
        self.layers = nn.ModuleList(make(stage) for stage in problem.stages)
        self.biases = nn.ParameterList(
            nn.Parameter(torch.zeros(s.c_out, 1), requires_grad=not problem.regression)
            for s in problem.stages
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(s.c_out) for s in problem.stages[:-1] if not self.deep
        )
        if self.deep:
            for layer in self.layers:
                assert isinstance(layer, Layer)
                layer.shrink(START)

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.layers) - 1
        if self.deep:
            for i, layer in enumerate(self.layers):
                x = SHRINK * (x + layer(x))
                x = x if i == last else F.leaky_relu(x, SLOPE)
            return x.flatten(1)
        for i, (layer, bias) in enumerate(zip(self.layers, self.biases, strict=True)):
            x = layer(x) + bias
            x = x if i == last else self.norms[i](x).relu()
        return x.flatten(1)


def asymmetries(network: StageNet, last: int | None = None) -> list[dict[str, float]]:
    """For every layer up to `last` and every candidate, the share of ‖W‖² outside its maps."""
    found = []
    for layer in list(network.layers)[:last]:
        assert isinstance(layer, Layer)
        found.append(layer.stage.asymmetries(layer.matrices().detach()))
    return found


class Sites(nn.Module):
    """(n, 1, P) → (n, 1, *lattice)."""

    def __init__(self, lattice: tuple[int, ...]) -> None:
        super().__init__()
        self.lattice = lattice

    def forward(self, x: Tensor) -> Tensor:
        return x.view(len(x), 1, *self.lattice)


def plain_net(problem: Problem) -> nn.Module:
    """Two circular convolutions with maxima of blocks and a map of all sites; sets: dense layers.

    A linear problem: any matrix.
    """
    sites = problem.sites
    if problem.linear:
        return nn.Sequential(nn.Flatten(), nn.Linear(sites, sites, bias=False))
    if sites < 16:
        wide = 128
        return nn.Sequential(
            nn.Flatten(),
            nn.Linear(sites, wide),
            nn.ReLU(),
            nn.Linear(wide, wide),
            nn.ReLU(),
            nn.Linear(wide, problem.outputs),
        )
    two = len(problem.lattice) == 2
    conv: type[nn.Module] = nn.Conv2d if two else nn.Conv1d
    pool: type[nn.Module] = nn.MaxPool2d if two else nn.MaxPool1d
    size, padding = (3, 1) if two else (5, 2)
    around = {"padding": padding, "padding_mode": "circular"}
    return nn.Sequential(
        Sites(problem.lattice),
        conv(1, 16, size, **around),
        nn.ReLU(),
        pool(2),
        conv(16, 32, size, **around),
        nn.ReLU(),
        pool(2),
        nn.Flatten(),
        nn.Linear(32 * sites // (16 if two else 4), problem.outputs),
    )


def outside(parts: Sequence[Part], values: Sequence[float], name: str) -> list[float]:
    """The values of those paths that do not obey a candidate."""
    return [v for part, v in zip(parts, values, strict=True) if name not in part.members]
