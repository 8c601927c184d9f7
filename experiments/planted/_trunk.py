"""Three residual-pathway layers on a torus, for teachers and students alike.

    x → layer → ReLU → layer → ReLU → layer → ReLU → mean over sites, times √sites → linear head

The image enters as one scalar channel, hidden features carry the regular fibre, the free path is a
plain matrix, in units in which Adam's steps on it are no larger, as a function, than those on a
filter. The head sees every fibre component, so it asks no symmetry of the layers before it; with
`invariant` it sees the maximum over the fibre, so that whatever the labels tell apart, some layer
must.

Teacher and student have equally many channels: with more of them a student could hold the orbits
of a larger group, let the next layer choose among them, and be right with a stricter layer than the
teacher's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from groupella.circular import circular_conv
from groupella.layer import ResidualPathway
from groupella.paths import Conv, FactoredFC, FullyConnected, GroupConv
from groupella.pooling import GroupPool
from groupella.shared_maps import recording

from ._candidates import CANDIDATES

SIDE = 8
DEPTH = 3
GENTLE = 8.0
GAIN = 2.0**0.5


class GentleFC(FullyConnected):
    """A plain matrix s·W with s = 8/fan-in.

    Adam moves every weight by about the learning rate, so the outputs of a matrix with 512 inputs
    move by hundreds of it, all at once, and in a few steps it has undone what the other paths know.
    """

    @property
    def unit(self) -> float:
        return GENTLE / self.space_in.size

    def reset_parameters(self, gain: float = GAIN) -> None:
        super().reset_parameters(gain / self.unit)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.unit * x)


class Trunk(nn.Module):
    """`strict` names the member that each layer is held to; None leaves it all paths."""

    def __init__(
        self,
        channels: int,
        classes: int,
        strict: Sequence[str | None] = (None,) * DEPTH,
        *,
        init: Literal["earn", "balanced"] = "earn",
        increments: bool = True,
        side: int = SIDE,
        invariant: bool = False,
        free: str = "FC",
    ) -> None:
        super().__init__()
        self.side = side
        hidden = CANDIDATES.space((side, side), channels)
        space = CANDIDATES.space((side, side), 1, "trivial")
        layers = []
        for member in strict:
            layer = ResidualPathway(
                space, hidden, CANDIDATES, init=init, increments=increments, free=free
            )
            if free == "FC":
                name = next(m.name for m in CANDIDATES if m.is_trivial)
                layer.paths[name] = GentleFC(space, hidden)
                layer.reset_parameters()
            layers.append(layer if member is None else layer.strict(member))
            space = hidden
        self.layers = nn.ModuleList(layers)
        self.pool = GroupPool(hidden) if invariant else nn.Identity()
        self.head = nn.Linear(channels if invariant else hidden.shape[0], classes)

    def features(self, x: Tensor) -> Tensor:
        """What the head sees: (n, channels·fibre), or (n, channels)."""
        for layer in self.layers:
            assert isinstance(layer, ResidualPathway)
            x = F.relu(apply(layer, x))
        pooled: Tensor = self.pool(x)
        return self.side * pooled.mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        f: Tensor = self.head(self.features(x))
        return f


def apply(layer: ResidualPathway, x: Tensor) -> Tensor:
    """The layer, with all its convolutions in one: their filters add. Curvature needs each path's
    own output, so while it is recorded the layer runs as it is."""
    if recording():
        y: Tensor = layer(x)
        return y
    filters, rest = [], []
    for path in layer.paths.values():
        if isinstance(path, GroupConv):
            filters.append(path.filter())
        elif isinstance(path, Conv):
            filters.append(path.weight)
        else:
            rest.append(path(x))
    if filters:
        rest.append(circular_conv(x, torch.stack(filters).sum(0)))
    if layer.bias is not None:
        rest.append(layer._spread(layer.bias))
    total: Tensor = sum(rest[1:], rest[0])
    return total


@torch.no_grad()
def standardise(trunk: Trunk, x: Tensor, halves: bool = False) -> None:
    """Scale every layer's weights so that its outputs have mean 0 and variance 1 on `x`.

    With `halves`, free paths become those of a teacher, see `_tell_sites_apart`.
    """
    for layer in trunk.layers:
        assert isinstance(layer, ResidualPathway)
        assert layer.bias is not None
        layer.bias.zero_()
        spread = float(apply(layer, x).std())
        for path in layer.paths.values():
            factors = 2 if isinstance(path, FactoredFC) else 1
            for weight in path.parameters():
                weight.div_(spread ** (1 / factors))
        if halves:
            _tell_sites_apart(layer)
        one = float(layer._spread(torch.ones_like(layer.bias)).mean())
        layer.bias.fill_(-float(apply(layer, x).mean()) / one)
        x = F.relu(apply(layer, x))


def _tell_sites_apart(layer: ResidualPathway) -> None:
    """Where there is a free path, let each output map of the convolution be seen on a random half
    of the torus only: half of it stays in the convolutions, ±½ of it at each site is the free path.

    A random matrix would break the symmetry too, but mean pooling leaves little of it, and it has
    more parameters than small data can determine.
    """
    free = [p for p in layer.paths.values() if isinstance(p, GentleFC)]
    if not free:
        return
    shape = layer.space_in.shape
    for matrix in free:
        matrix.weight.zero_()
    size = layer.space_in.size
    unit = torch.eye(size).view(size, *shape)
    bias = apply(layer, torch.zeros(1, *shape))
    convolution = (apply(layer, unit) - bias).flatten(1).T
    side = layer.space_out.lattice.shape[0]
    maps = layer.space_out.shape[0]
    down, start = torch.randint(2, (maps,)), torch.randint(side, (maps,))
    grid = torch.arange(side)
    half = ((grid - start[:, None]) % side < side // 2).to(convolution)
    rows = half[:, :, None].expand(-1, -1, side)
    mask = torch.where(down[:, None, None] == 1, rows, rows.transpose(1, 2))
    for path in layer.paths.values():
        if not isinstance(path, GentleFC):
            for weight in path.parameters():
                weight.mul_(0.5)
    for matrix in free:
        matrix.weight.copy_((mask.flatten()[:, None] - 0.5) * convolution / matrix.unit)


@torch.no_grad()
def random_teacher(
    strict: Sequence[str], channels: int, classes: int, x: Tensor, seed: int, largest: float = 0.3
) -> Trunk:
    """A frozen trunk whose standardised logits give no class more than `largest` of the data.

    Every increment of a planted member has the same share of a layer's power, so that none of its
    stricter members would do nearly as well.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        teacher = Trunk(channels, classes, strict, init="balanced").requires_grad_(False)
        standardise(teacher, x, halves=True)
        z = teacher.features(x)
        for _ in range(1000):
            weight = torch.randn(classes, z.shape[1]) / math.sqrt(z.shape[1])
            logits = z @ weight.T
            mean, std = logits.mean(0), logits.std(0)
            labels = ((logits - mean) / std).argmax(1)
            if float(torch.bincount(labels, minlength=classes).max()) <= largest * len(x):
                teacher.head.weight.copy_(weight / std[:, None])
                teacher.head.bias.copy_(-mean / std)
                return teacher
    raise RuntimeError(
        f"no head was found in 1000 that gives every class at most {largest:.0%} of the data"
    )
