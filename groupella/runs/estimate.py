"""The memory and time that training takes at least, from shapes alone.

For a layer from C to C′ channels with a fibre of F components, on P input and P′ output sites, with
windows of k sites; c = C·F and c′ = C′·F. A path has

| path  | weights               | rows of its factors            | multiply-adds      |
| ----- | --------------------- | ------------------------------ | ------------------ |
| FC    | c c′ P P′             | c P, c′ P′                     | c c′ P P′          |
| F-FC  | c c′ (P + P′)         | c of P and c′, c′ of P′ and c  | c c′ (P + P′)      |
| S-FC  | as F-FC, half as many | as F-FC, half as many sites    | as F-FC            |
| CONV  | c c′ k                | c k, c′                        | c c′ k P           |
| GCONV | C C′ F² k / order K   | C′                             | c c′ k P           |
| DENSE | C C′ (F P)² / order G | C′                             | c c′ P²            |
| TIED  | c c′ k P / order G    | P / order G of c k and c′      | c c′ k P           |

and the offset of a free path has c′ P′ numbers, with exact blocks of curvature (`exact_blocks`).
Training holds weights, gradients and two moments; learning precisions also holds each factor and
its eigenvectors. Sparse paths hold a matrix of sites × anchors, dense ones the matrix of the layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from groupella._machine import in_gibibytes, memory_of_machine

from .spelling import ArgumentError

if TYPE_CHECKING:
    from groupella.groups import GroupSet, Symmetry

NUMBER = 4  # bytes
COPIES = 4  # weights, gradients, two moments
SPEED = 2e11  # multiply-adds per second, more than a core has
KERNEL = 3


@dataclass(frozen=True)
class Cost:
    """What one path of one layer takes.

    Parameters
    ----------
    what
        The path and its layer, for messages.
    weights, workspace
        Numbers that are trained, and others that are held.
    factors
        (number, rows) of the Kronecker factors.
    products
        Multiply-adds per datum.
    """

    what: str
    weights: int
    factors: tuple[tuple[int, int], ...]
    products: int
    workspace: int = 0

    def bytes(self, learns: bool) -> int:
        """Return the bytes that training holds at least."""
        kept = 2 * sum(n * rows * rows for n, rows in self.factors) if learns else 0
        return NUMBER * (COPIES * self.weights + self.workspace + kept)

    def update(self) -> float:
        """Return the seconds that one update of the precisions takes at least."""
        return sum(n * rows**3 for n, rows in self.factors) / SPEED


@dataclass(frozen=True)
class Layer:
    """Channels, fibre and sites before and after a layer."""

    number: int
    channels: tuple[int, int]
    fibre: int
    sides: tuple[tuple[int, ...], tuple[int, ...]]

    def cost(self, kind: str, variant: str, symmetry: Symmetry | None) -> Cost:
        """Return the cost of a path of that kind."""
        (width, out), fibre = self.channels, self.fibre
        sites, left = (prod(sides) for sides in self.sides)
        c, d = width * fibre, out * fibre
        k = prod(KERNEL if n > 1 else 1 for n in self.sides[0])
        what = f"{kind} in layer {self.number}"
        if kind == "FC":
            weights = c * d * sites * left
            return Cost(what, weights, ((1, c * sites), (1, d * left)), weights)
        if kind in ("F-FC", "S-FC"):
            if variant == "group":
                c, d, sites, left = width, out, sites * fibre, left * fibre
            p, q = (sites, left) if kind == "F-FC" else (-(-sites // 2), -(-left // 2))
            factors = ((c, p), (c, d), (d, q), (d, c))
            anchors = 0 if kind == "F-FC" else sites * p + left * q
            return Cost(what, c * d * (p + q), factors, c * d * (sites + left), anchors)
        if kind in ("CONV", "S-CONV"):
            k = k if kind == "CONV" else -(-k // 2)
            return Cost(what, c * d * k, ((1, c * k), (1, d)), c * d * k * sites)
        if kind in ("GCONV", "S-GCONV"):
            point = max(len(symmetry.point), 1) if symmetry is not None else fibre
            n = fibre * fibre * k // point
            if kind == "S-GCONV" or variant not in ("", "full"):
                n = k  # at least
            return Cost(what, width * out * n, ((1, out),), c * d * k * sites, c * d * k)
        if kind == "DENSE" and symmetry is not None and symmetry.is_catalogue:
            n = (fibre * sites) ** 2 // symmetry.order(self.sides[0])
            matrix = c * d * sites * sites
            return Cost(what, width * out * n, ((1, out),), matrix, matrix)
        if kind == "TIED" and symmetry is not None:
            filters = sites // symmetry.order(self.sides[0])
            k = prod(min(KERNEL, n - (n + 1) % 2) for n in self.sides[0])  # odd, and fits
            weights = filters * c * d * k
            return Cost(what, weights, ((filters, c * k), (filters, d)), c * d * k * sites)
        return Cost(what, 0, (), 0)  # unknown: nothing is claimed

    def offset(self) -> Cost:
        """Return the cost of the offset of a free path."""
        from groupella.nn.shared_maps import exact_blocks

        shape = self.channels[1], self.fibre * prod(self.sides[1])
        blocks = exact_blocks(shape)
        what = f"the offset in layer {self.number}"
        return Cost(what, prod(shape), ((blocks, prod(shape) // blocks),), 0)


def layers(
    lattice: Sequence[int], alpha: int, blocks: Sequence[tuple[int, int]], fibre: int
) -> Iterator[Layer]:
    """Yield the layers of a trunk after the lifted image, which has one channel at least."""
    sides, width = tuple(lattice), 1
    for number, (factor, stride) in enumerate(blocks, 1):
        halves = stride == 2 and all(n % 2 == 0 for n in sides)
        after = tuple(n // 2 for n in sides) if halves else sides
        yield Layer(number, (width, factor * alpha), fibre, (sides, after))
        sides, width = after, factor * alpha


def costs(
    groups: GroupSet,
    paths: str | None,
    lattice: Sequence[int],
    alpha: int,
    blocks: Sequence[tuple[int, int]],
    *,
    offsets: bool = True,
) -> list[Cost]:
    """Return the cost of every path of every layer of a trunk, with or without offsets."""
    from groupella.nn.layer import PATHS, planned

    fibre = groups.space(tuple(lattice), 1).size // prod(lattice)
    if paths is not None:
        plan = [(p.kind, p.variant, p.symmetry) for p in planned(paths, groups)]
    else:
        plan = [("", "", s) for s in groups]
    found = list(layers(lattice, alpha, blocks, fibre))
    total = [
        layer.cost(kind or _default(s, groups, layer), variant, s)
        for layer in found
        for kind, variant, s in plan
    ]
    if offsets and any(
        PATHS[kind].free if kind else s is not None and s.is_trivial for kind, _, s in plan
    ):
        total += [layer.offset() for layer in found]
    return total


def _default(symmetry: Symmetry | None, groups: GroupSet, layer: Layer) -> str:
    """The kind of path of a member when no paths are named."""
    from groupella.nn.layer import is_tied

    if symmetry is None or symmetry.is_trivial:
        return "F-FC"
    if not symmetry.translations:
        space = groups.space(layer.sides[0], layer.channels[0])
        return "TIED" if is_tied(symmetry, space, space) else "DENSE"
    return "GCONV"


def check_estimate(found: Sequence[Cost], learns: bool, values: int, batch: int) -> None:
    """Raise `ArgumentError` if training needs more memory than this machine has.

    Parameters
    ----------
    found
        The costs of all paths.
    learns
        Whether precisions are learned, which takes the factors of the curvature.
    values
        Numbers in one datum; every layer keeps at least as many for the gradient.
    batch
        Data per batch.
    """
    there = memory_of_machine()
    total = sum(cost.bytes(learns) for cost in found) + NUMBER * values * batch
    if there is None or total <= there or not found:
        return
    largest = max(found, key=lambda cost: cost.bytes(learns))
    parts = [f"the largest part, {in_gibibytes(largest.bytes(learns))}, is {largest.what}"]
    if learns and largest.update() > 60:
        parts.append(f"an update of its precisions takes at least {largest.update():.0f} s")
    raise ArgumentError(
        f"training needs at least {in_gibibytes(total)}, and this machine has "
        f"{in_gibibytes(there)}: {'; '.join(parts)}. Give a smaller --size or --alpha, or other "
        "--paths"
    )
