"""The paper's trunk, for any set of groups, any paths, any image.

Eight residual-pathway layers with 3×3 filters, of α to 16α channels, five of which halve the
lattice, each followed by a ReLU; then the rest of the lattice and the fibre are pooled, and
two linear layers 16α → 64α → classes follow. The image is first lifted to the fibre of the ambient
point group: every layer has the same kind of features, and every group of the set acts on them.

On images of other sizes a layer halves the lattice where the plan says so and every side is even;
sites that remain at the end are pooled. A symmetry that is given by generators is tied to its
lattice, and no layer halves it.
"""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from groupella.groups import FeatureSpace, GroupSet, Lattice, idle
from groupella.nn.layer import ResidualPathway, check_groups
from groupella.nn.nonlinearity import nonlinearity
from groupella.nn.normalisation import ChannelNorm
from groupella.nn.pooling import GlobalPool, GroupPool, Lift, NoInvariantVectorError
from groupella.nn.standardise import InUnits, Standardise

from ._recipe import remembered


class Block(NamedTuple):
    """One layer of the plan: its channels as a multiple of α, and its stride."""

    width: int
    stride: int


PAPER_BLOCKS: tuple[Block, ...] = (
    Block(1, 1),
    Block(2, 2),
    Block(2, 1),
    Block(4, 2),
    Block(4, 1),
    Block(8, 2),
    Block(8, 2),
    Block(16, 2),
)


class Trunk(nn.Module):
    """`lift`, residual-pathway `layers`, each with one of `activations` after it, `pool`, `head`.

    Made by `trunk`. Takes images (batch, *space_in.shape) and gives (batch, classes).
    """

    def __init__(
        self,
        groups: GroupSet,
        lift: Lift,
        layers: Sequence[ResidualPathway],
        activations: Sequence[nn.Module],
        pool: nn.Module,
        head: nn.Module,
        outputs: int,
        norms: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.groups = groups
        self.inputs = Standardise(lift.space_in)
        self.lift = lift
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(norms)
        self.activations = nn.ModuleList(activations)
        self.pool = pool
        self.head = head
        self.outputs = InUnits(outputs)

    @property
    def space_in(self) -> FeatureSpace:
        """The images."""
        return self.lift.space_in

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(self.inputs(x))
        for i, (layer, activation) in enumerate(zip(self.layers, self.activations, strict=True)):
            x = layer(x)
            x = activation(self.norms[i](x) if self.norms else x)
        answer: Tensor = self.outputs(self.head(self.pool(x)))
        return answer

    def strict(self, name: str) -> Trunk:
        """The network whose layers have only the paths of that member: invariant to it.

        Up to rounding, as long as rounding decides no choice between phases; see `PolyphasePool`.
        Parameters are shared with this network.
        """
        strict = copy.copy(self)
        vars(strict).pop("made_by", None)
        strict._modules = dict(self._modules)
        strict.layers = nn.ModuleList(layer.strict(name) for layer in self.layers)  # type: ignore[operator]
        return strict


@remembered
def trunk(
    groups: GroupSet,
    paths: Any = None,
    alpha: int = 10,
    image_size: int | Sequence[int] = 32,
    classes: int = 10,
    *,
    in_channels: int = 3,
    blocks: Sequence[tuple[int, int]] = PAPER_BLOCKS,
    hidden: int = 64,
    kernel_size: int = 3,
    fibre: object = None,
    activation: str = "relu",
    fibre_pooling: str = "max",
    site_pooling: str = "mean",
    normalise: bool = False,
    **options: Any,
) -> Trunk:
    """A network that may use every group of the set in every layer: the paper's trunk.

    Parameters
    ----------
    groups
        The symmetries to choose among.
    paths
        The paths of every layer, as in `ResidualPathway`: a string such as "F-FC+CONV", or `None`
        for one path per group and a free one.
    alpha
        The number of channels of the first layer.
    image_size
        The sides of the image. One number gives equal sides, as many as the groups act on.
    classes, in_channels
        The number of outputs and of input channels.
    blocks
        For each layer its channels as a multiple of α, and its stride, which is 1 instead where it
        does not divide the sides.
    hidden
        The width of the layer before the last, as a multiple of α.
    kernel_size
        The window of convolutions; reduced to the torus where that is smaller.
    fibre
        The fibre of all features; the regular representation by default.
    activation, fibre_pooling, site_pooling
        See `groupella.nn.nonlinearity`, `GroupPool` and `GlobalPool`.
    normalise
        Whether a `ChannelNorm` with one factor follows every layer while they learn by MAP. It
        speeds up training; `fold` takes it out before evidence is measured. Layers need a bias of
        their own (not `paper_biases`).
    **options
        Any further option of `ResidualPathway`: `init`, `increments`, `paper_biases`, …

    Returns
    -------
    Trunk
        Maps (batch, in_channels, *image) to (batch, classes).

    Raises
    ------
    TypeError
        If an option is unknown.
    ValueError
        If a width or a block is not valid, or if the fibre has no invariant vector.
    """
    check_groups(groups)
    _check_options(options)
    for name, value in (("alpha", alpha), ("classes", classes), ("hidden", hidden)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a positive integer, got {value!r}")
    plan = _checked(blocks)
    if still := idle(groups):
        raise ValueError(
            f"{' and '.join(still)} would do nothing to images: the trunk takes symmetries of "
            "sites. For those of values, see groupella.select or groupella.nn"
        )
    lift = _lift(groups.space(_lattice(groups, image_size), in_channels, "trivial"), fibre)
    space = lift.space_out
    layers = []
    for width, stride in plan:
        target = space.with_channels(width * alpha)
        sides = space.lattice.shape
        divides = bool(sides) and all(n % stride == 0 for n in sides)
        if stride > 1 and divides and space.ambient.is_catalogue:
            target = target.with_lattice(tuple(n // stride for n in sides))
        else:
            stride = 1
        layer = ResidualPathway(
            space,
            target,
            groups,
            paths,
            stride=stride,
            kernel_size=_window(kernel_size, space.lattice),
            **options,
        )
        layers.append(layer)
        space = layer.space_out
    rest = GlobalPool(space, site_pooling)  # type: ignore[arg-type]
    pool: nn.Module = rest
    if space.fibre_size > 1:
        pool = nn.Sequential(rest, GroupPool(rest.space_out, fibre_pooling))  # type: ignore[arg-type]
    width = hidden * alpha
    head = nn.Sequential(nn.Linear(space.channels, width), nn.ReLU(), nn.Linear(width, classes))
    activations = [nonlinearity(layer.space_out, activation) for layer in layers]
    norms = [ChannelNorm(layer.space_out, shared=True) for layer in layers] if normalise else []
    return Trunk(groups, lift, layers, activations, pool, head, classes, norms)


def _check_options(options: dict[str, Any]) -> None:
    """Every further option is one of the layer's that the trunk does not set itself."""
    layers = [
        p.name
        for p in inspect.signature(ResidualPathway).parameters.values()
        if p.kind is p.KEYWORD_ONLY and p.name != "stride"
    ]
    own = [
        p.name for p in inspect.signature(trunk).parameters.values() if p.kind is not p.VAR_KEYWORD
    ]
    for name in options:
        if name not in layers:
            near = difflib.get_close_matches(name, [*own, *layers], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            if name == "stride":
                hint = "; strides are given in blocks."
            known = ", ".join(dict.fromkeys([*own, *layers]))
            raise TypeError(f"trunk: unknown option {name!r}{hint} Known: {known}")


def _lift(space: FeatureSpace, fibre: object) -> Lift:
    try:
        return Lift(space, fibre)
    except NoInvariantVectorError:
        if fibre is None:
            raise ValueError(
                f"trunk: the fibre that comes with {space.ambient} has no invariant vector to lift "
                "an image to: pass fibre='trivial' to trunk"
            ) from None
        others = "'regular' or 'trivial'" if space.ambient.is_catalogue else "'trivial'"
        raise ValueError(
            f"trunk: the option fibre={fibre!r} has no invariant vector to lift an image to: pass "
            f"a fibre with one, such as {others}"
        ) from None


def _lattice(groups: GroupSet, image_size: int | Sequence[int]) -> Lattice:
    if not isinstance(image_size, int):
        return Lattice.of(tuple(image_size))
    ambient = groups.ambient
    if ambient.lattice is not None:
        dim = ambient.lattice.dim
    else:
        dim = 2 if ambient.dim is None else ambient.dim
    return Lattice((image_size,) * dim)


def _checked(blocks: Sequence[tuple[int, int]]) -> list[Block]:
    if not isinstance(blocks, Sequence) or isinstance(blocks, str):
        raise TypeError(f"blocks is a sequence of (width, stride) pairs, got {blocks!r}")
    if not blocks:
        raise ValueError("a trunk has at least one block")
    plan = []
    for block in blocks:
        if not isinstance(block, Sequence) or isinstance(block, str) or len(block) != 2:
            raise ValueError(
                f"blocks is a sequence of (width, stride) pairs, such as [(1, 1), (2, 2)]: "
                f"got {block!r} for a pair"
            )
        width, stride = block
        if any(not isinstance(n, int) or n < 1 for n in block):
            raise ValueError(f"a block is a positive width and a positive stride, got {block}")
        plan.append(Block(width, stride))
    return plan


def _window(size: int, lattice: Lattice) -> tuple[int, ...]:
    """The window, cut along each axis to the smallest odd one that covers the torus."""
    return tuple(min(size, n // 2 * 2 + 1) for n in lattice.shape)
