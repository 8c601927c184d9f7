"""The paper's names for paths, as in "F-FC+CONV+GCONV".

    name[:member][/variant]

FC, F-FC, S-FC           free; F-FC/group factors over fibre × sites instead of sites
CONV, S-CONV             equivariant to translations
GCONV                    one path for every member with translations and a point group, or
                         GCONV:p4; variants full, pointwise, separable, depthwise
DENSE                    one dense path for every member without translations, or DENSE:c4
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from groupella.bases import Basis
from groupella.groups import FeatureSpace, GroupSet, Symmetry
from groupella.nn.paths import (
    Conv,
    DenseBasis,
    FactoredFC,
    FullyConnected,
    GroupConv,
    Path,
    SeparableGroupConv,
    SparseConv,
    SparseFC,
)

VARIANTS: dict[str, tuple[str, ...]] = {
    "FC": (),
    "F-FC": ("lattice", "group"),
    "S-FC": (),
    "CONV": (),
    "S-CONV": (),
    "GCONV": ("full", "pointwise", "separable", "depthwise"),
    "DENSE": (),
}
FREE = ("FC", "F-FC", "S-FC")


@dataclass(frozen=True)
class Spaces:
    """The spaces of a layer: `inner` is the output on the input lattice, `outer` the pooled one."""

    input: FeatureSpace
    inner: FeatureSpace
    outer: FeatureSpace
    kernel_size: int | tuple[int, ...]
    paper_biases: bool


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
        Names joined by "+", each `name[:member][/variant]`; see `PATHS` for names and variants.
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
    if kind not in FREE or member:
        raise ValueError(f"a free path is one of {', '.join(FREE)} or F-FC/group, got {name!r}")
    return kind, variant


def make_path(
    kind: str,
    variant: str,
    spaces: Spaces,
    symmetry: Symmetry | None = None,
    basis: Basis | None = None,
) -> Path:
    """A path of that kind; one without symmetry maps straight to the pooled lattice."""
    target = spaces.outer if kind in FREE else spaces.inner
    make: Callable[..., Path]
    options: dict[str, Any] = {}
    if kind in ("FC", "S-FC"):
        make = FullyConnected if kind == "FC" else SparseFC
    elif kind == "F-FC":
        make, options = FactoredFC, {"over": variant or "lattice"}
    elif kind == "DENSE":
        make, options = DenseBasis, {"symmetry": symmetry, "basis": basis}
    else:
        options["kernel_size"] = spaces.kernel_size
        if kind == "GCONV":
            options["symmetry"] = symmetry
        if variant in ("separable", "depthwise"):
            make, options["depthwise"] = SeparableGroupConv, variant == "depthwise"
        elif kind == "GCONV":
            make, options["pointwise"] = GroupConv, variant == "pointwise"
            options["basis"] = basis
        else:
            make = Conv if kind == "CONV" else SparseConv
    return make(spaces.input, target, **options, paper_biases=spaces.paper_biases)


def _planned(token: str, groups: GroupSet) -> Iterator[Planned]:
    kind, member, variant = _parsed(token)
    if kind in FREE:
        parsed_free(token)
        yield Planned(kind, kind, variant)
    elif kind in ("CONV", "S-CONV"):
        if member:
            raise ValueError(
                f"{kind} is equivariant to translations and takes no member: {token!r}"
            )
        yield Planned(kind, kind, variant)
    else:
        symmetries = _members(kind, member, groups)
        for symmetry in symmetries:
            alone = len(symmetries) == 1 and not member
            name = kind if alone else f"{kind}:{symmetry.name}"
            yield Planned(name, kind, variant, symmetry)


def _members(kind: str, member: str, groups: GroupSet) -> list[Symmetry]:
    if member:
        if member not in groups:
            raise ValueError(
                f"{kind}:{member}: no member {member!r} in {groups}{_nearest(member, groups.names)}"
            )
        return [groups[member]]
    if kind == "GCONV":
        found = [s for s in groups if s.translations and len(s.point) > 1]
        wanted = "with translations and a point group"
    else:
        found = [s for s in groups if not s.translations and not s.is_trivial]
        wanted = "without translations"
    if not found:
        raise ValueError(f"{kind} needs a member {wanted}, and {groups} has none")
    return found


def _parsed(token: str) -> tuple[str, str, str]:
    match = re.fullmatch(r"([^:/]+)(?::([^/]+))?(?:/(\w+))?", token)
    kind, member, variant = match.groups(default="") if match else (token, "", "")
    if kind not in VARIANTS:
        raise ValueError(
            f"unknown path {token!r}{_nearest(kind, VARIANTS)} Known: {', '.join(VARIANTS)}"
        )
    if variant and variant not in VARIANTS[kind]:
        known = VARIANTS[kind]
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
