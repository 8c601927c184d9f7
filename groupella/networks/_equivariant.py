"""A network of scalars, vectors and tensors that is exactly equivariant to one symmetry.

    z = linear(x);   x ← gate(linear(z) + linear(z ⊗ z)),   several times; then a linear head

as in Finzi, Welling and Wilson 2021 ("A practical method for constructing equivariant multilayer
perceptrons for arbitrary matrix groups"). Every linear map is a residual-pathway layer with a path
for every member of the group set (Finzi, Benton and Wilson 2021), so paths, curvature and evidence
are those of all other layers. To impose a member is to leave only the paths that obey it: its own,
which starts small, and those of larger groups. So a weaker symmetry is never worse off for want of
training. For the symmetry that obeys nothing the network is a plain multilayer perceptron.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from groupella.groups import SCALAR, FeatureSpace, GroupSet, Symmetry, Tensors
from groupella.nn.layer import ResidualPathway, check_groups
from groupella.nn.standardise import InUnits, Standardise
from groupella.nn.tensors import Gated, Products

CHANNELS = 16
DEPTH = 2
PLAIN_WIDTH = 8  # hidden units of the plain network, times channels
BILINEAR_SCALE = 0.1  # products of features have heavy tails: they start small


class TensorBlock(nn.Module):
    """Linear and bilinear maps of features, then gates: one block of `equivariant_net`."""

    def __init__(
        self, space_in: FeatureSpace, hidden: FeatureSpace, groups: GroupSet, member: str | None
    ) -> None:
        super().__init__()
        self.space_in, self.space_out = space_in, hidden
        self.gate = Gated(hidden)
        ranks = [len(term) for term in hidden.fibre.tensors.terms]
        self.products = Products(hidden, max(2, *ranks))
        self.mix = _layer(space_in, hidden, groups, member)
        self.linear = _layer(hidden, self.gate.space_in, groups, member)
        self.bilinear = _layer(
            self.products.space_out, self.gate.space_in, groups, member, bias=False
        )
        with torch.no_grad():
            for weight in self.bilinear.parameters():
                weight.mul_(BILINEAR_SCALE)

    def forward(self, x: Tensor) -> Tensor:
        z = self.mix(x)
        y: Tensor = self.gate(self.linear(z) + self.bilinear(self.products(z)))
        return y


class EquivariantNet(nn.Module):
    """Blocks and a head, from `equivariant_net`.

    Takes (batch, *space_in.shape) and gives (batch, space_out.size), moved as the input is.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        symmetry: Symmetry | None,
        blocks: Sequence[nn.Module],
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.space_in, self.space_out, self.symmetry = space_in, space_out, symmetry
        self.inputs = Standardise(space_in)
        self.blocks, self.head = nn.Sequential(*blocks), head
        self.outputs = InUnits(space_out.size, space_out)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.outputs(self.head(self.blocks(self.inputs(x))).flatten(1))
        return answer


def equivariant_net(
    groups: GroupSet,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry | str | None = None,
    *,
    channels: int = CHANNELS,
    depth: int = DEPTH,
    hidden: Tensors | None = None,
) -> EquivariantNet:
    """Return a freshly initialised network from vectors and tensors to vectors and tensors.

    Parameters
    ----------
    groups
        The group set; its ambient symmetry acts on the spaces.
    space_in, space_out
        Inputs and outputs, made with ``groups.space``. Outputs have no sites, lattice ``()``;
        inputs may be a set of vectors, on the lattice ``(n,)`` of a product with permutations.
    symmetry
        The member to impose, or its name. A trivial one gives a plain multilayer perceptron.
        ``None`` gives every layer a path for every member.
    channels
        Copies of the fibre of hidden features; the plain network has eight times as many units.
    depth
        The number of blocks.
    hidden
        The fibre of hidden features, a sum of tensors. By default four scalars and two vectors,
        and for outputs that are tensors one of rank two.

    Raises
    ------
    ValueError
        If a space is not one of the group set, or if the outputs have sites.
    """
    check_groups(groups)
    if space_out.lattice.dim:
        raise ValueError(
            f"equivariant_net gives outputs without sites, lattice (), got {space_out}"
        )
    if depth < 1 or channels < 1:
        raise ValueError(f"depth and channels must be at least 1, got {depth} and {channels}")
    chosen = groups.member(symmetry) if isinstance(symmetry, str) else symmetry
    if chosen is not None and chosen.is_trivial:
        return _plain(groups, space_in, space_out, chosen, channels * PLAIN_WIDTH, depth)
    if chosen is not None and chosen.name not in groups:
        raise ValueError(f"{chosen} is no member of {groups}")
    member = None if chosen is None else chosen.name
    space = groups.space(space_in.lattice, channels, hidden or _hidden(space_out))
    blocks = [TensorBlock(space if k else space_in, space, groups, member) for k in range(depth)]
    head = _layer(space, space_out, groups, member)
    return EquivariantNet(space_in, space_out, chosen, blocks, head)


def _hidden(space_out: FeatureSpace) -> Tensors:
    vector = Tensors.of(space_out.ambient.layout[0][0])
    rank = max(len(term) for term in space_out.fibre.tensors.terms)
    small = 4 * SCALAR + 2 * vector
    return small + vector * vector if rank > 1 else small


def _layer(
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    groups: GroupSet,
    member: str | None,
    bias: bool = True,
) -> ResidualPathway:
    """A path for every member, or for those that contain `member`: they obey it exactly."""
    layer = ResidualPathway(space_in, space_out, groups, bias=bias, free="FC")
    return layer if member is None else layer.strict(member)


def _plain(
    groups: GroupSet,
    space_in: FeatureSpace,
    space_out: FeatureSpace,
    symmetry: Symmetry,
    width: int,
    depth: int,
) -> EquivariantNet:
    blocks: list[nn.Module] = []
    before = space_in
    after = groups.space((), width, "trivial")
    for _ in range(depth + 1):
        blocks += [ResidualPathway(before, after, groups, "FC"), nn.SiLU()]
        before = after
    head = ResidualPathway(before, space_out, groups, "FC")
    return EquivariantNet(space_in, space_out, symmetry, blocks, head)
