"""The paper's names for paths, as in "F-FC+CONV+GCONV".

    name[:member][/variant]

FC, F-FC, S-FC           free; F-FC/group and S-FC/group factor over fibre × sites instead of sites
CONV, S-CONV             equivariant to translations
GCONV                    one path for every member with translations and a point group, or
                         GCONV:p4; variants full, pointwise, separable, depthwise, pairwise, uniform
S-GCONV                  GCONV with sparse filters on the group, for the same members
DENSE                    one dense path for every member without translations, or DENSE:c4
TIED                     filters with the support of the layer's kernel size, tied along the orbits
                         of every member without translations, or TIED:c4; TIED:trivial is a
                         locally connected path
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from groupella.bases import Basis, Padding
from groupella.groups import FeatureSpace, GroupSet, Symmetry
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    PairwiseConv,
    Path,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
    SparseGroupConv,
    TiedFilter,
    UniformConv,
)


@dataclass(frozen=True)
class Kind:
    """A kind of path, as a string may name it.

    Parameters
    ----------
    make
        The class, called with the input and the output space and keyword arguments.
    free
        Whether it has no symmetry; it then maps straight to the pooled lattice.
    has_kernel
        Whether it takes the layer's `kernel_size`.
    obeys
        Which members of the group set get a path when none is named, by a condition and in words;
        the path then takes a `symmetry`. None for a kind that takes no member.
    variants
        What may follow a slash, and what to call instead of `make`.
    has_padding
        Whether it takes the layer's `padding`.
    """

    make: Callable[..., Path]
    free: bool = False
    has_kernel: bool = False
    obeys: tuple[Callable[[Symmetry], bool], str] | None = None
    variants: Mapping[str, Callable[..., Path]] = field(default_factory=dict)
    has_padding: bool = False


_STAGES = ("separable", "depthwise", "pairwise", "uniform")  # variants made of several filters
_ROTATES = (
    lambda s: s.translations and len(s.point) > 1,
    "with translations and a point group",
)


def _tied(
    space_in: FeatureSpace, space_out: FeatureSpace, *, kernel_size: Any, **options: Any
) -> TiedFilter:
    """The support is the layer's kernel size, or what of it fits the lattice."""
    sides = space_in.lattice.shape
    wanted = (kernel_size,) * len(sides) if isinstance(kernel_size, int) else kernel_size
    support = tuple(min(k, n - (n + 1) % 2) for k, n in zip(wanted, sides, strict=True))
    return TiedFilter(space_in, space_out, support=support, **options)


PATHS: dict[str, Kind] = {
    "FC": Kind(FullyConnected, free=True),
    "F-FC": Kind(
        FactoredFC,
        free=True,
        variants={"lattice": FactoredFC, "group": partial(FactoredFC, over="group")},
    ),
    "S-FC": Kind(
        SparseFC,
        free=True,
        variants={"lattice": SparseFC, "group": partial(SparseFC, over="group")},
    ),
    "CONV": Kind(Conv, has_kernel=True, has_padding=True),
    "S-CONV": Kind(SparseConv, has_kernel=True),
    "GCONV": Kind(
        GroupConv,
        has_kernel=True,
        has_padding=True,
        obeys=_ROTATES,
        variants={
            "full": GroupConv,
            "pointwise": partial(GroupConv, pointwise=True),
            "separable": SeparableGroupConv,
            "depthwise": partial(SeparableGroupConv, depthwise=True),
            "pairwise": PairwiseConv,
            "uniform": UniformConv,
        },
    ),
    "S-GCONV": Kind(SparseGroupConv, has_kernel=True, obeys=_ROTATES),
    "DENSE": Kind(
        DenseBasis,
        obeys=(lambda s: not s.translations and not s.is_trivial, "without translations"),
    ),
    "TIED": Kind(
        _tied,
        has_kernel=True,
        has_padding=True,
        obeys=(
            lambda s: s.is_catalogue and not s.translations and not s.is_trivial,
            "of the catalogue without translations",
        ),
    ),
}


@dataclass(frozen=True)
class Spaces:
    """The spaces of a layer: `inner` is the output on the input lattice, `outer` the pooled one."""

    input: FeatureSpace
    inner: FeatureSpace
    outer: FeatureSpace
    kernel_size: int | tuple[int, ...]
    paper_biases: bool
    padding: Padding = "circular"


@dataclass(frozen=True)
class Planned:
    """A path that a string names: `symmetry` is None where its kind determines it."""

    name: str
    kind: str
    variant: str
    symmetry: Symmetry | None = None


def planned(text: str, groups: GroupSet) -> list[Planned]:
    """The paths that a string such as "F-FC+CONV+GCONV/pointwise" names.

    Parameters
    ----------
    text
        Names joined by "+", each `name[:member][/variant]`; see `PATHS`.
    groups
        The group set whose members the names refer to.

    Raises
    ------
    ValueError
        If a name, variant or member is unknown, or if a path occurs twice.
    """
    found: dict[str, Planned] = {}
    for token in text.split("+"):
        for path in _planned(token.strip(), groups):
            if path.name in found:
                raise ValueError(f"the path {path.name!r} occurs twice in {text!r}")
            found[path.name] = path
    return list(found.values())


def parsed_free(name: str) -> tuple[str, str]:
    """The kind and the variant of a path without symmetry."""
    kind, member, variant = _parsed(name)
    if not PATHS[kind].free or member:
        free = ", ".join(name for name, kind in PATHS.items() if kind.free)
        raise ValueError(f"a free path is one of {free} or F-FC/group, S-FC/group, got {name!r}")
    return kind, variant


def make_path(
    kind: str,
    variant: str,
    spaces: Spaces,
    symmetry: Symmetry | None = None,
    basis: Basis | None = None,
) -> Path:
    """A path of that kind; one without symmetry maps straight to the pooled lattice."""
    chosen = PATHS[kind]
    options: dict[str, Any] = {"paper_biases": spaces.paper_biases}
    if chosen.has_kernel:
        options["kernel_size"] = spaces.kernel_size
    if chosen.obeys is not None:
        options["symmetry"] = symmetry
        if basis is not None:
            options["basis"] = basis
    make = chosen.variants.get(variant, chosen.make)
    if spaces.padding != "circular" and not chosen.free:
        if not chosen.has_padding or variant in _STAGES:
            raise ValueError(
                f"padding={spaces.padding!r} is for CONV, GCONV, GCONV/pointwise and TIED, and not "
                f"for {kind}{'/' + variant if variant else ''}, which obeys the torus"
            )
        options["padding"] = spaces.padding
    return make(spaces.input, spaces.outer if chosen.free else spaces.inner, **options)


def _planned(token: str, groups: GroupSet) -> Iterator[Planned]:
    kind, member, variant = _parsed(token)
    if PATHS[kind].obeys is not None:
        symmetries = _members(kind, member, groups)
        for symmetry in symmetries:
            alone = len(symmetries) == 1 and not member
            name = kind if alone else f"{kind}:{symmetry.name}"
            yield Planned(name, kind, variant, symmetry)
        return
    if PATHS[kind].free:
        parsed_free(token)
    elif member:
        raise ValueError(f"{kind} is equivariant to translations and takes no member: {token!r}")
    yield Planned(kind, kind, variant)


def _members(kind: str, member: str, groups: GroupSet) -> list[Symmetry]:
    if member:
        if member not in groups:
            raise ValueError(
                f"{kind}:{member}: no member {member!r} in {groups}{_nearest(member, groups.names)}"
            )
        return [groups[member]]
    obeys = PATHS[kind].obeys
    assert obeys is not None
    found = [s for s in groups if obeys[0](s)]
    if not found:
        raise ValueError(f"{kind} needs a member {obeys[1]}, and {groups} has none")
    return found


def _parsed(token: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([^:/]+)(?::([^/]+))?(?:/(\w+))?", token)
    kind, member, variant = match.groups(default="") if match else (token, "", "")
    if kind not in PATHS:
        raise ValueError(f"unknown path {token!r}{_nearest(kind, PATHS)} Known: {', '.join(PATHS)}")
    known = PATHS[kind].variants
    if variant and variant not in known:
        listed = f"variants: {', '.join(known)}" if known else "no variants"
        raise ValueError(
            f"unknown variant {variant!r} of {kind}{_nearest(variant, known)} It has {listed}"
        )
    return kind, member, variant


def _nearest(name: str, known: object) -> str:
    names = list(known)  # type: ignore[call-overload]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
    if not near:
        near = [n for n in names if n.lower() == name.lower()]
    return f"; did you mean {near[0]!r}?" if near else "."
