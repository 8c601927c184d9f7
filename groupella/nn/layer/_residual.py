"""The residual-pathway layer: a sum of paths, one for every group of a set.

    y = Σ_paths (path(x) + offset of the path) + bias

with no factor in the forward pass: the weights of the paths and their priors determine how much a
layer uses each path. An offset is what the path's group leaves unchanged (`_offsets.py`). With
a stride the paths that keep the lattice are summed; their sum chooses a polyphase component for
each sample and is sub-sampled to it. Paths that map straight to the pooled lattice (FC, F-FC, S-FC)
are added after, then offsets and bias. So the layer is exactly equivariant to a member when only
the paths of its subspace are left.

Unless curvature is recorded, all paths that are convolutions are computed as one (`_fusion.py`) and
those that were taken out are not computed (`_silence.py`).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Literal, TypeAlias, cast, get_args

import torch
from torch import Tensor, nn

from groupella.bases import Padding
from groupella.groups import FeatureSpace, GroupSet, Symmetry
from groupella.nn._constant import Constant
from groupella.nn._invariants import invariant_vectors
from groupella.nn.paths import Path, Sparse, is_stationary, stationary_part
from groupella.nn.paths._common import GAIN, check_input, check_padding
from groupella.nn.pooling import PolyphasePool
from groupella.nn.pooling._phases import Norm
from groupella.nn.shared_maps import BiasMap, SharedLinearMap, record, recording

from ._fusion import accumulate, convolve, is_plain, repeated
from ._members import (
    Members,
    chain,
    increment_paths,
    member_paths,
    members_containing,
    strictest,
)
from ._names import Spaces, make_path, parsed_free, planned
from ._offsets import offsets_of
from ._silence import constant_of, is_constant, is_silent

Init = Literal["earn", "balanced"]
PathMaker: TypeAlias = Callable[[FeatureSpace, FeatureSpace], Path]
Paths: TypeAlias = "str | Mapping[str, nn.Module | PathMaker]"

SMALL = 0.03
SMALL_PRECISION = 300.0


class ResidualPathway(nn.Module):
    """A linear layer between two feature spaces with a path for every symmetry.

    Parameters
    ----------
    space_in, space_out
        Input and output features, made with `groups.space`. On the lattice () of an output without
        sites, the paths are dense maps from all sites.
    groups
        The group set.
    paths
        `None`: one path per member. Translations ⋊ K become a group convolution (a plain one where
        K is trivial and nothing is subtracted), groups without translations and groups given by
        generators a dense basis (filters tied along orbits, where that is too large), the trivial
        member the `free` path. Or names, such as
        "F-FC+CONV+GCONV/pointwise" (see `groupella.nn.layer.PATHS`). Or a mapping of names to
        paths, or to functions that make one from (space_in, space_out), where space_out is on the
        input lattice.
    stride
        1, or a number that divides every side of the lattice; `space_out` is on the smaller one. A
        group set without translations also takes sides of one site more.
    init
        Initial weights. "balanced" gives all paths the same share of a Kaiming layer's output
        variance. "earn" gives all of it to the strictest paths and 0.03 of their scale to the
        others, whose `initial_precisions` are 300 instead of 1.
    increments
        For `paths=None`: let every path span only what its member adds to the smaller subspaces,
        orthogonally; else the whole subspace of its member. "independent" also makes them linearly
        independent where `dependent` would not be 0; a member that comes late then may lose some
        of its maps, see `groupella.bases.Increments.missing`.
    kernel_size
        The window of convolutions: odd, one number or one for each axis.
    bias
        Add one number per channel and invariant vector of its fibre, equal on all sites, so that
        every member leaves it unchanged.
    paper_biases
        Use the biases of the published code instead, in every path: FC one per channel and site,
        F-FC one per channel on the intermediate value and one per site, S-FC and CONV one per
        channel (and fibre component), GCONV one per channel and stage. Those of FC and F-FC are not
        invariant; they belong to the path and are removed with it.
    offsets
        Let every path add what its own group leaves unchanged and nothing stricter does: a free
        path one number per channel, fibre component and site, so that offsets of sites are not
        taken for noise. An offset has a prior of its own and is removed with its path. Without
        effect if `bias` is off or `paper_biases` on.
    free
        The path of the trivial member: "F-FC", "FC", "S-FC" or "F-FC/group".
    norm
        The norm that selects the phase of a stride, see `groupella.nn.pooling.PolyphasePool`.
    padding
        "circular": the lattice is a torus. "zeros": what lies outside of the image is zero, for the
        paths CONV, GCONV and TIED. Paths of groups with translations then commute with their point
        group exactly, and with shifts as far as nothing meets the border; `subspaces` and `strict`
        count them all the same. `groupella.testing.equivariance_error` measures the difference.

    Attributes
    ----------
    paths
        The modules by name.
    subspaces
        For each path, the members whose subspace contains it.
    offsets
        For each path with an offset, the module that gives it.
    stationary
        For each sparse path, the members whose subspace contains it once its lengthscales are
        zero: it is then constant on the sites, and not zero.
    overlapping
        The pairs of paths that increments could not make orthogonal.
    dependent
        The number of basis maps of the increments that are linear combinations of the others.

    References
    ----------
    van der Ouderaa, Immer and van der Wilk, "Learning Layer-wise Equivariances Automatically using
    Gradients", NeurIPS 2023. Finzi, Benton and Wilson, "Residual Pathway Priors for Soft
    Equivariance Constraints", NeurIPS 2021.
    """

    def __init__(
        self,
        space_in: FeatureSpace,
        space_out: FeatureSpace,
        groups: GroupSet,
        paths: Paths | None = None,
        *,
        stride: int = 1,
        init: Init = "earn",
        increments: bool | Literal["independent"] = True,
        kernel_size: int | Sequence[int] = 3,
        bias: bool = True,
        paper_biases: bool = False,
        offsets: bool = True,
        free: str = "F-FC",
        norm: Norm = "inf",
        padding: Padding = "circular",
    ) -> None:
        super().__init__()
        check_groups(groups)
        inner = _checked(space_in, space_out, groups, stride)
        if init not in get_args(Init):
            raise ValueError(f"ResidualPathway: init is 'earn' or 'balanced', got {init!r}")
        if norm not in get_args(Norm):
            raise ValueError(f"ResidualPathway: norm is 'inf', 'l1' or 'l2', got {norm!r}")
        parsed_free(free)
        self.space_in, self.space_out, self.groups = space_in, space_out, groups
        self.stride, self.init = stride, init
        self.padding = check_padding("ResidualPathway", padding)
        self.pool = PolyphasePool(inner, norm, chain(groups), stride) if stride > 1 else None
        size = kernel_size if isinstance(kernel_size, int) else tuple(kernel_size)
        self._vectors = Constant(invariant_vectors(space_out))
        spaces = Spaces(space_in, inner, space_out, size, paper_biases, padding)
        if increments not in (True, False, "independent"):
            raise ValueError(
                f"ResidualPathway: increments is True, False or 'independent', got {increments!r}"
            )
        if paths is None and increments:
            made = increment_paths(groups, spaces, free, increments == "independent")
        elif paths is None:
            made = member_paths(groups, spaces, free)
        else:
            made = _given(paths, groups, spaces)
        self.paths = nn.ModuleDict(made.paths)  # type: ignore[arg-type]
        self.subspaces, self.overlapping = made.subspaces, made.overlapping
        self.dependent = made.dependent
        self.stationary = {
            name: members_containing(groups, path, path.stationary_symmetry)
            for name, path in made.paths.items()
            if isinstance(path, Sparse)
        }
        own_bias = bias and not paper_biases
        self.bias = (
            nn.Parameter(torch.zeros(space_out.channels, self._vectors.shape[0]))
            if own_bias and self._vectors.shape[0]
            else None
        )
        # Linear maps may obey more than their group says, a change of sign, which no offset obeys.
        own = {
            name: path
            for name, path in made.paths.items()
            if set(made.subspaces[name]) <= {*members_containing(groups, path)}
        }
        self.offsets = nn.ModuleDict(
            offsets_of(space_out, own, self._vectors.array) if own_bias and offsets else {}
        )
        self.reset_parameters()

    @property
    def strictest(self) -> tuple[str, ...]:
        """The paths that are equivariant to the most members, see `strictest`."""
        return strictest(self.subspaces)

    @property
    def scales(self) -> dict[str, float]:
        """The share of each path in a Kaiming layer's initial output, as standard deviations."""
        first = self.strictest
        small = SMALL if self.init == "earn" else 1.0
        raw = {name: 1.0 if name in first else small for name in self.paths}
        total = math.sqrt(sum(v * v for v in raw.values()))
        return {name: v / total for name, v in raw.items()}

    @property
    def initial_precisions(self) -> dict[str, float]:
        """Initial prior precisions for `init`: 1, and 300 for a path that starts small."""
        first = self.strictest
        held = SMALL_PRECISION if self.init == "earn" else 1.0
        return {name: 1.0 if name in first else held for name in self.paths}

    def reset_parameters(self) -> None:
        for name, scale in self.scales.items():
            path = self.paths[name]
            assert isinstance(path, Path)
            path.reset_parameters(GAIN * scale)
        for constant in (self.bias, *self.offsets.parameters()):
            if constant is not None:
                nn.init.zeros_(constant)

    def forward(self, x: Tensor) -> Tensor:
        check_input(self.space_in, x)
        _check_dtype(self, x)
        constant = [] if recording() else [p for p in self.paths.values() if is_constant(p)]
        if len(constant) == len(self.paths):
            constant = constant[1:]
        left = [p for p in self.paths.values() if p not in constant]
        plain = [] if recording() else [p for p in left if is_plain(p)]
        bias = self.constant()
        # Added before the pooling, a bias would influence the choice of the phase.
        inside = bias if plain and self.pool is None else None
        if inside is not None:
            inside = inside.flatten() if inside.numel() == len(inside) else None
        inner, outer = self._sums(x, constant, plain, inside)
        terms = [y for y in (inner, outer) if y is not None]
        y = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        if bias is not None and inside is None:
            y = y + repeated(len(y), bias)
            if self.bias is not None:
                record(self, "bias", x, y)
            for offset in self.offsets.values():
                record(offset, "offset", x, y)
        return y

    def constant(self, paths: Collection[str] | None = None) -> Tensor | None:
        """The bias and the offsets, all or of some paths: (C'·F', *lattice), or 1s for its sides.

        None where there is neither.
        """
        parts = [] if self.bias is None else [self._spread(self.bias)]
        parts += [b() for name, b in self.offsets.items() if paths is None or name in paths]
        return functools.reduce(torch.add, parts) if parts else None

    def _sums(
        self,
        x: Tensor,
        constant: Sequence[nn.Module],
        plain: Sequence[nn.Module],
        bias: Tensor | None,
    ) -> tuple[Tensor | None, Tensor | None]:
        """The pooled sum of the paths on the input lattice, and that of those to the output's.

        Those in `constant` are the same for every sample. Those in `plain` are one convolution,
        with that `bias`.
        """
        sums: list[Tensor | None] = [None, None]
        for path in self.paths.values():
            if path in plain or (path in constant and is_silent(path)):
                continue
            target = cast(Path, path).space_out  # to check a protocol takes longer than this loop
            place = int(self.stride > 1 and target.lattice == self.space_out.lattice)
            before = sums[place]
            y = repeated(len(x), *constant_of(path, x)) if path in constant else path(x)
            sums[place] = y if before is None else before + y
        pool = self.pool
        if (
            plain
            and sums[0] is None
            and pool is not None
            and self.stride == 2
            and not pool.is_fixed
        ):
            return convolve(x, plain, bias, pool.choose), sums[1]
        if plain:
            # After the others, so that its gradient comes first and those of x add up in the layout
            # of x: elsewhere the next backward pass is slow.
            y = convolve(x, plain, bias)
            sums[0] = y if sums[0] is None else accumulate(y, sums[0])
        if self.pool is not None and sums[0] is not None:
            sums[0] = self.pool.take(sums[0], self.pool.choose(sums[0]))
        return sums[0], sums[1]

    def _spread(self, bias: Tensor) -> Tensor:
        """The bias (C', n) on the output space, sites broadcast."""
        vectors = self._vectors.like(bias)
        spread = bias @ vectors.reshape(len(vectors), -1)
        return spread.view(-1, *vectors.shape[2:])

    def shared_maps(self) -> Mapping[str, SharedLinearMap]:
        """The map of the bias, ∂y/∂b(c, i) = v_i; paths and offsets have their own."""
        if self.bias is None:
            return {}
        vectors = self._vectors.like(self.bias)
        vectors = vectors.reshape(*vectors.shape[:2], -1)
        c, (_, fibre, sites) = len(self.bias), vectors.shape

        def gradient(g: Tensor) -> Tensor:
            z = g.reshape(g.shape[0], c, fibre, -1)
            z = z.sum(3, keepdim=True) if sites == 1 else z
            return torch.einsum("ncfp,vfp->ncv", z, vectors).flatten(1)

        return {"bias": BiasMap("bias", gradient)}

    def strict(self, name: str) -> ResidualPathway:
        """This layer with only the paths in the subspace of one member.

        A sparse path whose lengthscales are zero counts as the constant that it is.

        Parameters
        ----------
        name
            The name of the member.

        Returns
        -------
        ResidualPathway
            A layer that shares its parameters with this one and is exactly equivariant.

        Raises
        ------
        ValueError
            If there is no such member, or if it has no path.
        """
        name = self.groups.member(name).name
        inside = [path for path, members in self.subspaces.items() if name in members]
        constant = [
            path
            for path, members in self.stationary.items()
            if path not in inside and name in members and is_stationary(self.paths[path])
        ]
        if not inside and not constant:
            raise ValueError(f"no path of this layer lies in the subspace of {name}")
        layer = self.only([path for path in self.paths if path in inside or path in constant])
        for path in constant:
            layer.paths[path] = stationary_part(self.paths[path])
        layer.offsets = nn.ModuleDict({n: b for n, b in layer.offsets.items() if n in inside})
        if self.pool is not None:
            smaller = chain(self.groups, self.groups[name])
            layer.pool = PolyphasePool(self.pool.space_in, self.pool.norm, smaller, self.stride)
        return layer

    def only(self, names: Sequence[str]) -> ResidualPathway:
        """This layer with only the named paths; parameters are shared."""
        unknown = [n for n in names if n not in self.paths]
        if unknown or not names:
            raise ValueError(f"paths of this layer are {', '.join(self.paths)}, got {list(names)}")
        layer = copy.copy(self)
        layer._modules = dict(self._modules)
        layer._parameters = dict(self._parameters)
        layer.paths = nn.ModuleDict({n: p for n, p in self.paths.items() if n in names})
        layer.offsets = nn.ModuleDict({n: b for n, b in self.offsets.items() if n in names})
        layer.subspaces = {n: m for n, m in self.subspaces.items() if n in names}
        layer.stationary = {n: m for n, m in self.stationary.items() if n in names}
        pairs = (p for p in self.overlapping if p[0] in names and p[1] in names)
        layer.overlapping = tuple(pairs)
        layer.dependent = self.dependent if len(layer.paths) == len(self.paths) else 0
        return layer

    def extra_repr(self) -> str:
        text = (
            f"{self.space_in.shape} -> {self.space_out.shape}, {self.groups}, stride={self.stride}"
        )
        if self.overlapping:
            text += f", overlapping={self.overlapping}"
        if self.dependent:
            text += f", dependent={self.dependent}"
        return text


def check_groups(groups: object) -> None:
    """Raise a TypeError, with the remedy, unless `groups` is a GroupSet."""
    if isinstance(groups, GroupSet):
        return
    kind = type(groups).__name__
    hint = ""
    if isinstance(groups, list | tuple | set | frozenset):
        hint = f": GroupSet(*{kind})"
    elif isinstance(groups, Symmetry):
        hint = f": GroupSet({groups.name})"
    raise TypeError(f"groups is a GroupSet, got a {kind}{hint}")


def _check_dtype(module: nn.Module, x: Tensor) -> None:
    """Raise unless input and parameters have one dtype, or autocast is enabled."""
    parameter = next(module.parameters(), None)
    if parameter is None or parameter.dtype == x.dtype or not x.is_floating_point():
        return
    if torch.is_autocast_enabled(x.device.type):
        return
    raise TypeError(
        f"{type(module).__name__} has parameters of {parameter.dtype}, got an input of {x.dtype}: "
        f"convert one of them, x.to({parameter.dtype}) or module.to({x.dtype})"
    )


def _checked(
    space_in: FeatureSpace, space_out: FeatureSpace, groups: GroupSet, stride: int
) -> FeatureSpace:
    """The output space on the input lattice, after all checks."""
    for name, space in (("space_in", space_in), ("space_out", space_out)):
        if space.ambient.key != groups.ambient.key:
            raise ValueError(
                f"ResidualPathway: {name} carries the ambient symmetry {space.ambient}, the group "
                f"set has {groups.ambient}; make both spaces with groups.space(...)"
            )
    if isinstance(stride, bool) or not isinstance(stride, int) or stride < 1:
        raise ValueError(f"ResidualPathway: stride is a positive whole number, got {stride!r}")
    if stride == 1 and not space_out.lattice.dim:
        return space_out
    inner = space_out.with_lattice(space_in.lattice)
    expected = space_in.lattice
    if stride > 1:
        expected = PolyphasePool(inner, stride=stride).space_out.lattice
    if space_out.lattice != expected:
        raise ValueError(
            f"ResidualPathway: with stride={stride} the lattice {space_in.lattice.shape} becomes "
            f"{expected.shape}, but space_out has {space_out.lattice.shape}"
        )
    return inner


def _given(paths: Paths, groups: GroupSet, spaces: Spaces) -> Members:
    """The paths that the user named or made."""
    if isinstance(paths, str):
        found = {
            p.name: make_path(p.kind, p.variant, spaces, p.symmetry) for p in planned(paths, groups)
        }
    elif isinstance(paths, Mapping):
        found = {name: _own(name, path, spaces) for name, path in paths.items()}
    else:
        raise TypeError(
            f"paths is None, a string of names or a mapping of names to paths, got {paths!r}"
        )
    if not found:
        raise ValueError("a layer needs at least one path")
    return Members(found, {name: members_containing(groups, p) for name, p in found.items()})


def _own(name: str, path: nn.Module | PathMaker, spaces: Spaces) -> Path:
    made = path if isinstance(path, nn.Module) else path(spaces.input, spaces.inner)
    if not isinstance(made, Path) or not isinstance(made, nn.Module):
        raise TypeError(
            f"the path {name!r} must be an nn.Module with space_in, space_out, symmetry, "
            f"shared_maps() and reset_parameters(gain), got {type(made).__name__}"
        )
    if made.space_in != spaces.input or made.space_out not in (spaces.inner, spaces.outer):
        raise ValueError(
            f"the path {name!r} maps {made.space_in} to {made.space_out}; this layer needs one "
            f"from {spaces.input} to {spaces.inner}, or straight to {spaces.outer}"
        )
    return made
