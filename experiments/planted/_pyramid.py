"""A pyramid of three residual-pathway layers, for deep teachers and their students alike.

    h ← φ(h + layer(h)),  h ← mean over 2×2 sites,  on 8×8, 4×4 and 2×2 sites;  f = A h + b

φ is a leaky ReLU of slope 0.3. The image enters as one scalar field, hidden features carry the
regular fibre, the first skip repeats the image along it. The free path is a plain matrix, in units
in which Adam's steps on it are no larger, as a function, than those on a filter.

What makes the teacher's function one that can be found, and its symmetries ones that can be told:

- Skips and the slope. Without them a student of exactly the teacher's structure ends in another
  function (see docs/planted.md).
- The lattice shrinks, so that a free layer at the end is 32×32 and not 512×512: a thousand labels
  can pay for it. Pooling need not commute with anything, since it is no part of a layer.
- The read-out A, b is the teacher's, and the student knows it. A learned one would take over what
  the last layer breaks, whose symmetry would be a choice of gauge; it says nothing on symmetries.

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

from groupella.nn.layer import ResidualPathway
from groupella.nn.paths import FullyConnected

from ._result import CANDIDATES

SIDES = (8, 4, 2)
SLOPE = 0.3
GENTLE = 8.0
GAIN = 2.0**0.5
SHARPNESS = 5.0
SHRINK = 4.0 / 3.0


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


class Pyramid(nn.Module):
    """`strict` names the member that each layer is held to; None leaves it all paths."""

    read_out: Tensor
    offset: Tensor

    def __init__(
        self,
        channels: int,
        classes: int,
        strict: Sequence[str | None] = (None,) * len(SIDES),
        *,
        init: Literal["earn", "balanced"] = "earn",
    ) -> None:
        super().__init__()
        layers: list[ResidualPathway] = []
        for side, member in zip(SIDES, strict, strict=True):
            after = CANDIDATES.space((side, side), channels)
            before = after if layers else CANDIDATES.space((side, side), 1, "trivial")
            # Teachers have no offsets, and the committed results are of students without.
            layer = ResidualPathway(before, after, CANDIDATES, init=init, free="FC", offsets=False)
            name = next(m.name for m in CANDIDATES if m.is_trivial)
            layer.paths[name] = GentleFC(before, after)
            layer.reset_parameters()
            layers.append(layer if member is None else layer.strict(member))
        self.layers = nn.ModuleList(layers)
        self.register_buffer("read_out", torch.zeros(classes, layers[-1].space_out.size))
        self.register_buffer("offset", torch.zeros(classes))

    def read_as(self, teacher: Pyramid) -> Pyramid:
        """Take over a teacher's read-out."""
        self.read_out.copy_(teacher.read_out)
        self.offset.copy_(teacher.offset)
        return self

    def inputs(self, number: int, h: Tensor) -> tuple[Tensor, Tensor]:
        """What a layer sees of the features before it, and what skips it."""
        if number == 0:
            return h, h.expand(-1, self.pathway(0).space_out.shape[0], -1, -1)
        smaller = SHRINK * F.avg_pool2d(h, SIDES[number - 1] // SIDES[number])
        return smaller, smaller

    def features(self, x: Tensor) -> Tensor:
        """What is read out: (n, channels·fibre·sites)."""
        for number in range(len(self.layers)):
            seen, skipped = self.inputs(number, x)
            x = F.leaky_relu(skipped + self.pathway(number)(seen), SLOPE)
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(self.features(x), self.read_out, self.offset)

    def pathway(self, number: int) -> ResidualPathway:
        layer = self.layers[number]
        assert isinstance(layer, ResidualPathway)
        return layer


@torch.no_grad()
def standardise(pyramid: Pyramid, x: Tensor, size: float = 1.0) -> None:
    """Scale every layer's weights so that on `x` it is `size` times what skips it, and centre."""
    for number in range(len(pyramid.layers)):
        layer = pyramid.pathway(number)
        assert layer.bias is not None
        layer.bias.zero_()
        seen, skipped = pyramid.inputs(number, x)
        ratio = float(layer(seen).std() / skipped.std()) / size
        for path in layer.paths.values():
            for weight in path.parameters():
                weight.div_(ratio)
        one = float(layer._spread(torch.ones_like(layer.bias)).mean())
        layer.bias.fill_(-float((layer(seen) + skipped).mean()) / one)
        x = F.leaky_relu(skipped + layer(seen), SLOPE)


@torch.no_grad()
def random_teacher(
    strict: Sequence[str], channels: int, classes: int, x: Tensor, seed: int, largest: float = 0.3
) -> Pyramid:
    """A frozen pyramid whose standardised logits give no class more than `largest` of the data.

    Every increment of a planted member has the same share of a layer's power, so that none of its
    stricter members would do nearly as well.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        teacher = Pyramid(channels, classes, strict, init="balanced").requires_grad_(False)
        standardise(teacher, x)
        z = teacher.features(x)
        for _ in range(1000):
            weight = torch.randn(classes, z.shape[1]) / math.sqrt(z.shape[1])
            logits = z @ weight.T
            mean, std = logits.mean(0), logits.std(0)
            labels = ((logits - mean) / std).argmax(1)
            if float(torch.bincount(labels, minlength=classes).max()) <= largest * len(x):
                teacher.read_out.copy_(SHARPNESS * weight / std[:, None])
                teacher.offset.copy_(-SHARPNESS * mean / std)
                return teacher
    raise RuntimeError(
        f"no read-out was found in 1000 that gives every class at most {largest:.0%} of the data"
    )
