"""Symmetries of the values, and products with symmetries of the sites.

An internal symmetry acts on a fibre and moves no site: a permutation of colours, a rotation of the
vectors at all sites, a change of sign. The product of two symmetries that commute has the
generators of both; each is the identity on the fibres of the other, so that

    Hom_{G×H}(sites ⊗ F_G ⊗ F_H) = Hom_G(sites ⊗ F_G) ⊗ Hom_H(F_H).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from ._elements import SiteElement
from ._fibre import make_fibre
from ._generators import maps_of
from ._lattice import Lattice
from ._order import common_lattice, common_layout, discrete_generators, lift, lifted_algebra
from ._symmetry import Symmetry


def internal(
    name: str,
    lattice: Lattice | Sequence[int] | int,
    maps: Sequence[object] | object,
    fibre: str | None = None,
) -> Symmetry:
    """The group that these maps of the values at every site generate.

    Parameters
    ----------
    name
        How the group is called.
    lattice
        The lattice, or its shape.
    maps
        Orthogonal matrices or permutations of the components; or an escnn ``Representation`` of a
        finite group, whose generators act by its matrices.
    fibre
        How the fibre on which it acts is called, by default as the group. Symmetries of the same
        values share its name.

    Examples
    --------
    >>> sign = internal("sign", (8, 8), [[[-1]]])
    >>> colours = internal("colours", (8, 8), [[1, 2, 0], [1, 0, 2]])
    >>> cycle = internal("cycle", (8, 8), [[1, 2, 0]], fibre="colours")
    """
    chosen = list(maps_of(maps))
    stay = np.arange(Lattice.of(lattice).size)
    return Symmetry.from_generators(name, lattice, [stay] * len(chosen), {fibre or name: chosen})


def generated(
    symmetry: Symmetry,
    lattice: Lattice | Sequence[int] | int,
    fibre: Mapping[str, object] | object = None,
) -> Symmetry:
    """A catalogue symmetry by its generators on one lattice, with escnn fibres for products.

    Parameters
    ----------
    symmetry
        The catalogue symmetry.
    lattice
        The lattice, or its shape.
    fibre
        A fibre as in ``GroupSet.space`` ("regular", "irrep:1", an escnn ``Representation`` of the
        point group), which gets the name of the symmetry; or several by name. ``None``: none.

    Raises
    ------
    ValueError
        If the symmetry is defined by generators already, or does not act on the lattice.
    """
    if not symmetry.is_catalogue:
        raise ValueError(f"{symmetry} is defined by generators already")
    torus = symmetry.check_lattice(lattice)
    elements = symmetry.generators(torus)
    if not elements:
        raise ValueError(f"{symmetry} has no generators")
    moves = [lift(g, (), ()).sites for g in elements]
    if fibre is None:
        return Symmetry.from_generators(symmetry.name, torus, moves)
    wanted = fibre if isinstance(fibre, Mapping) else {symmetry.name: fibre}
    made = {name: make_fibre(symmetry, one) for name, one in wanted.items()}
    maps = {name: [one.matrix(g) for g in elements] for name, one in made.items()}
    return Symmetry.from_generators(symmetry.name, torus, moves, fibre=maps, internal=True)


def product(first: Symmetry, second: Symmetry, name: str | None = None) -> Symmetry:
    """The product of two symmetries of one space; also ``first * second``.

    Parameters
    ----------
    first, second
        Symmetries that commute. At least one is given by generators, such as one of
        :func:`internal`. Where both act on a fibre of their own, the fibres have names.
    name
        How the product is called, "first×second" if not given.

    Raises
    ------
    ValueError
        If they do not act on one lattice, if both act on a fibre without a name, or if they do
        not commute.
    """
    both = (first, second)
    name = name or f"{first.name}×{second.name}"
    if first.is_catalogue and second.is_catalogue:
        raise ValueError(
            f"{first} and {second} both act on sites alone: for the group that they generate, use "
            "GroupSet.join"
        )
    lattice = common_lattice(both)
    if lattice is None:
        raise ValueError(f"{first} and {second} do not act on one and the same lattice")
    if all("" in dict(s.layout) for s in both):
        raise ValueError(
            f"{first} and {second} both act on a fibre without a name: name them, "
            'fibre={"name": maps}'
        )
    layout = common_layout(both)
    parts: list[list[SiteElement]] = [
        [lift(g, s.layout, layout) for g in s.generators(lattice)] for s in both
    ]
    for a, b in itertools.product(*parts):
        if a * b != b * a:
            raise ValueError(
                f"{first} and {second} do not commute ({a.name} and {b.name}), so they have no "
                "product; for the group that they generate, use GroupSet.join"
            )
    discrete = [g for s in both for g in discrete_generators(s, lattice, layout)]
    generators = tuple(g for g in discrete if not g.is_identity)
    named = layout if any(label for label, _ in layout) else ()
    bound = max(first.max_order, second.max_order)
    kept = generators or tuple(discrete[:1])
    algebra = tuple(x for s in both for x in lifted_algebra(s, layout))
    return Symmetry(name, lattice.dim, False, (), lattice, kept, bound, named, algebra)
