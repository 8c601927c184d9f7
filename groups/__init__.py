"""What a symmetry is: lattices, groups, their elements and actions, representations, group sets."""

from ._action import Action
from ._bridges import from_e2cnn, from_escnn, to_e2cnn, to_escnn
from ._catalogue import (
    axial,
    c2,
    c4,
    cm,
    cmm,
    cyclic,
    d2,
    d4,
    diagonal,
    flips,
    group_names,
    inversion,
    line_reflections,
    meaning,
    mirror,
    named,
    named_group,
    octahedral,
    octahedral_point,
    p2,
    p4,
    p4m,
    permutations,
    pmm,
    translations,
    trivial,
    z2,
)
from ._characters import character, hom_dimension
from ._elements import Element, LatticeElement, SiteElement
from ._fibre import Fibre
from ._groupset import GroupSet
from ._lattice import Lattice
from ._matrices import IntMatrix
from ._order import as_site_element, is_inside
from ._space import FeatureSpace
from ._symmetry import Symmetry

__all__ = [
    "Action",
    "Element",
    "FeatureSpace",
    "Fibre",
    "GroupSet",
    "IntMatrix",
    "Lattice",
    "LatticeElement",
    "SiteElement",
    "Symmetry",
    "as_site_element",
    "axial",
    "c2",
    "c4",
    "character",
    "cm",
    "cmm",
    "cyclic",
    "d2",
    "d4",
    "diagonal",
    "flips",
    "from_e2cnn",
    "from_escnn",
    "group_names",
    "hom_dimension",
    "inversion",
    "is_inside",
    "line_reflections",
    "meaning",
    "mirror",
    "named",
    "named_group",
    "octahedral",
    "octahedral_point",
    "p2",
    "p4",
    "p4m",
    "permutations",
    "pmm",
    "to_e2cnn",
    "to_escnn",
    "translations",
    "trivial",
    "z2",
]
