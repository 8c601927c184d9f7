"""The paths of a group set: one for every member, or the orthogonal increments between them.

Members with translations are group convolutions, a member without (or one given by generators) is
a dense map in basis form, the trivial member is the free path. With increments every path spans
what its member adds to the strictly smaller subspaces. Where dense members are among them,
kernels are written out as matrices on the lattice so that all subspaces can be compared, and what
comes out as a convolution becomes one again, unless its symmetry is known by generators only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupella.bases import Basis, KernelBasis, equivariant_basis, increments, kernel_basis
from groupella.groups import FeatureSpace, GroupSet, Symmetry, is_inside
from groupella.nn.paths import Conv, DenseBasis, GroupConv, Path

from ._embedding import Embedding
from ._names import Spaces, free_path


@dataclass(frozen=True)
class Members:
    """Paths by name, for each the members whose subspace contains it, and overlapping pairs."""

    paths: dict[str, Path]
    subspaces: dict[str, tuple[str, ...]]
    overlapping: tuple[tuple[str, str], ...] = ()


def member_paths(groups: GroupSet, spaces: Spaces, free: str) -> Members:
    """One path for every member, as it is: subspaces of larger groups lie within the others."""
    paths: dict[str, Path] = {}
    for symmetry in groups:
        if symmetry.is_trivial:
            paths[symmetry.name] = free_path(free, spaces)
        elif _convolves(symmetry, spaces.input):
            paths[symmetry.name] = _convolution(symmetry, spaces, None)
        else:
            paths[symmetry.name] = _dense(symmetry, spaces, None)
    subspaces = {name: members_containing(groups, path) for name, path in paths.items()}
    return Members(paths, subspaces)


def increment_paths(groups: GroupSet, spaces: Spaces, free: str) -> Members:
    """One path for every non-empty orthogonal increment."""
    symmetries = {s.name: s for s in groups if not s.is_trivial}
    trivial = tuple(s.name for s in groups if s.is_trivial)
    found: dict[str, Path] = {}
    subspaces: dict[str, tuple[str, ...]] = {}
    overlapping: tuple[tuple[str, str], ...] = ()
    if symmetries:
        bases, embedding = _bases(symmetries, spaces)
        parts = increments(bases)
        for name in parts.names:
            symmetry = symmetries.get(name) or groups.join(*name.split("&"))
            found[name] = _part(parts[name], symmetry, spaces, embedding)
            containing = [m for m in symmetries if name in parts.inside(m)]
            subspaces[name] = tuple(m for m in groups.names if m in (*containing, *trivial))
        overlapping = parts.overlapping
    for name in trivial:
        found[name], subspaces[name] = free_path(free, spaces), (name,)
    order = [*(n for n in groups.names if n in found), *(n for n in found if n not in groups)]
    return Members({n: found[n] for n in order}, {n: subspaces[n] for n in order}, overlapping)


def members_containing(groups: GroupSet, path: Path) -> tuple[str, ...]:
    """The members to which a path is equivariant: those inside its symmetry."""
    still = path.space_in.lattice.size == path.space_out.lattice.size == 1
    return tuple(m.name for m in groups if _is_within(m, path.symmetry, still))


def _is_within(member: Symmetry, symmetry: Symmetry, still: bool) -> bool:
    """Inclusion of groups; on a single site translations do nothing and do not count."""
    if still and member.is_catalogue and symmetry.is_catalogue:
        return len(member.point) <= 1 or set(member.point) <= set(symmetry.point)
    return is_inside(member, symmetry)


def _bases(
    symmetries: Mapping[str, Symmetry], spaces: Spaces
) -> tuple[dict[str, Basis], Embedding | None]:
    source, target = spaces.input, spaces.inner
    kernels = {
        name: kernel_basis(source, target, s, spaces.kernel_size)
        for name, s in symmetries.items()
        if _convolves(s, source)
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


def _part(basis: Basis, symmetry: Symmetry, spaces: Spaces, embedding: Embedding | None) -> Path:
    if embedding is not None and _convolves(symmetry, spaces.input):
        basis = embedding.kernels(basis) or basis
    if isinstance(basis, KernelBasis):
        return _convolution(symmetry, spaces, basis)
    return _dense(symmetry, spaces, basis)


def _convolution(symmetry: Symmetry, spaces: Spaces, basis: KernelBasis | None) -> Path:
    """Plain where every kernel is allowed: its factors are smaller than those of a basis."""
    every = len(symmetry.point) <= 1 if basis is None else basis.dim == basis.size
    if every:
        return Conv(
            spaces.input, spaces.inner, spaces.kernel_size, paper_biases=spaces.paper_biases
        )
    return GroupConv(
        spaces.input,
        spaces.inner,
        symmetry,
        spaces.kernel_size,
        basis=basis,
        paper_biases=spaces.paper_biases,
    )


def _dense(symmetry: Symmetry, spaces: Spaces, basis: Basis | None) -> Path:
    return DenseBasis(
        spaces.input, spaces.inner, symmetry, basis=basis, paper_biases=spaces.paper_biases
    )


def _convolves(symmetry: Symmetry, space: FeatureSpace) -> bool:
    return symmetry.translations and symmetry.is_catalogue and space.lattice.dim > 0
