"""The paths of a group set: one for every member, or the orthogonal increments between them.

Members with translations are group convolutions, a member without (or one given by generators) is
a dense map in basis form, the trivial member is the free path. With increments every path spans
what its member adds to the strictly smaller subspaces. Where dense members are among them,
kernels are expanded to matrices on the lattice so that all subspaces can be compared; increments
that are convolutions become kernels again, unless their symmetry is known by generators only.

A dense basis is for small lattices. Where it would have more than 2²⁷ numbers, a member without
translations gets filters of the layer's kernel size, tied along its orbits. They are no increment:
they contain the convolutions of larger groups, and overlap with them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from groupella.bases import Basis, KernelBasis, equivariant_basis, increments, kernel_basis
from groupella.groups import FeatureSpace, GroupSet, Symmetry, is_inside
from groupella.nn.paths import Path
from groupella.nn.shared_maps import LARGEST_INPUT

from ._embedding import Embedding
from ._names import Spaces, make_path, parsed_free

LARGEST_BASIS = 2**27  # numbers, of the dense maps that obey a group


@dataclass(frozen=True)
class Members:
    """Paths by name, for each the members whose subspace contains it, and overlapping pairs.

    `dependent` is the number of basis maps of the increments that are combinations of the others.
    """

    paths: dict[str, Path]
    subspaces: dict[str, tuple[str, ...]]
    overlapping: tuple[tuple[str, str], ...] = ()
    dependent: int = 0


def member_paths(groups: GroupSet, spaces: Spaces, free: str) -> Members:
    """One path for every member, as it is: subspaces of larger groups lie within the others."""
    paths = {
        s.name: make_path(*parsed_free(free), spaces) if s.is_trivial else _path(None, s, spaces)
        for s in groups
    }
    subspaces = {name: members_containing(groups, path) for name, path in paths.items()}
    return Members(paths, subspaces)


def increment_paths(
    groups: GroupSet, spaces: Spaces, free: str, independent: bool = False
) -> Members:
    """One path for every non-empty orthogonal increment."""
    named = {s.name: s for s in groups if not s.is_trivial}
    symmetries = {n: s for n, s in named.items() if not is_tied(s, spaces.input, spaces.inner)}
    tied = {n: s for n, s in named.items() if n not in symmetries}
    trivial = tuple(s.name for s in groups if s.is_trivial)
    found: dict[str, Path] = {}
    subspaces: dict[str, tuple[str, ...]] = {}
    overlapping: tuple[tuple[str, str], ...] = ()
    dependent = 0
    if symmetries:
        bases, embedding = _bases(symmetries, spaces)
        parts = increments(bases, independent)
        for name in parts.names:
            symmetry = symmetries.get(name) or groups.join(*name.split("&"))
            found[name] = _path(parts[name], symmetry, spaces, embedding)
            containing = [m for m in symmetries if name in parts.inside(m)]
            containing += [m for m, s in tied.items() if is_inside(s, symmetry)]
            subspaces[name] = tuple(m for m in groups.names if m in (*containing, *trivial))
        overlapping, dependent = parts.overlapping, parts.rows - parts.rank
    for name, symmetry in tied.items():
        overlapping += tuple((name, other) for other in found)
        found[name] = _path(None, symmetry, spaces)
        subspaces[name] = members_containing(groups, found[name])
    for name in trivial:
        found[name], subspaces[name] = make_path(*parsed_free(free), spaces), (name,)
    order = [*(n for n in groups.names if n in found), *(n for n in found if n not in groups)]
    ordered = {n: found[n] for n in order}
    return Members(ordered, {n: subspaces[n] for n in order}, overlapping, dependent)


def members_containing(
    groups: GroupSet, path: Path, symmetry: Symmetry | None = None
) -> tuple[str, ...]:
    """The members to which a path is equivariant: those inside its symmetry, or the one given.

    On a single site translations do nothing and do not count.
    """
    symmetry = symmetry or path.symmetry
    still = path.space_in.lattice.size == path.space_out.lattice.size == 1
    found = []
    for member in groups:
        if still and member.is_catalogue and symmetry.is_catalogue:
            inside = len(member.point) <= 1 or set(member.point) <= set(symmetry.point)
        else:
            inside = is_inside(member, symmetry)
        if inside:
            found.append(member.name)
    return tuple(found)


def chain(groups: GroupSet, first: Symmetry | None = None) -> list[Symmetry]:
    """Members with translations, each inside the one before it, from the largest or the `first`."""
    moving = [s for s in groups if s.is_catalogue and s.translations]
    found = [] if first is None or first not in moving else [first]
    for symmetry in sorted(moving, key=lambda s: -len(s.point)):
        if not found or (symmetry != found[-1] and is_inside(symmetry, found[-1])):
            found.append(symmetry)
    return found


def strictest(subspaces: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    """The paths that are equivariant to the most members.

    Parameters
    ----------
    subspaces
        For each path the members to which it is equivariant, as in `ResidualPathway.subspaces`.

    Returns
    -------
    tuple of str
        The paths for which no other path is equivariant to all of their members and more.
    """
    inside = {path: set(members) for path, members in subspaces.items()}
    return tuple(p for p in inside if not any(inside[p] < other for other in inside.values()))


def _bases(
    symmetries: Mapping[str, Symmetry], spaces: Spaces
) -> tuple[dict[str, Basis], Embedding | None]:
    source, target = spaces.input, spaces.inner
    kernels = {
        name: kernel_basis(source, target, s, spaces.kernel_size)
        for name, s in symmetries.items()
        if _convolves(s, spaces)
    }
    if len(kernels) == len(symmetries):
        return dict(kernels), None
    window = next(iter(kernels.values())).window if kernels else None
    embedding = Embedding(source, target, window) if window else None
    bases: dict[str, Basis] = {}
    for name, symmetry in symmetries.items():
        if embedding is not None and name in kernels:
            bases[name] = embedding.embed(kernels[name])
        else:
            bases[name] = equivariant_basis(source, target, symmetry)
    return bases, embedding


def _path(
    basis: Basis | None, symmetry: Symmetry, spaces: Spaces, embedding: Embedding | None = None
) -> Path:
    """The path of a basis, or of all maps that the symmetry permits."""
    convolves = _convolves(symmetry, spaces)
    if basis is not None:
        if embedding is not None and convolves:
            basis = embedding.kernels(basis) or basis
        convolves = isinstance(basis, KernelBasis)
    if not convolves:
        tied = basis is None and is_tied(symmetry, spaces.input, spaces.inner)
        return make_path("TIED" if tied else "DENSE", "", spaces, symmetry, basis)
    # Plain where every kernel is allowed: its factors are smaller than those of a basis.
    every = len(symmetry.point) <= 1 if basis is None else basis.dim == basis.size
    return make_path("CONV" if every else "GCONV", "", spaces, symmetry, basis)


def is_tied(symmetry: Symmetry, space_in: FeatureSpace, space_out: FeatureSpace) -> bool:
    """Whether the path of a member is one of tied filters, because a dense basis is too large.

    Too large are its maps together, or the factor of its curvature.
    """
    lattice = space_in.lattice
    if not symmetry.is_catalogue or symmetry.translations or symmetry.is_trivial:
        return False
    if not lattice.dim or lattice != space_out.lattice:
        return False
    pairs = space_in.size * space_out.size // (space_in.channels * space_out.channels)
    maps = pairs // symmetry.order(lattice)
    return pairs * maps > LARGEST_BASIS or space_in.channels * maps > LARGEST_INPUT


def _convolves(symmetry: Symmetry, spaces: Spaces) -> bool:
    """Whether the maps of the symmetry are convolutions; without output sites they are not."""
    catalogue = symmetry.translations and symmetry.is_catalogue
    return catalogue and spaces.inner.lattice.dim > 0
