"""What a symmetry is: lattices, groups, their elements and actions, representations, group sets."""

from ._action import Action as Action
from ._bridges import from_e2cnn as from_e2cnn
from ._bridges import from_escnn as from_escnn
from ._bridges import to_e2cnn as to_e2cnn
from ._bridges import to_escnn as to_escnn
from ._catalogue import (
    axial as axial,
)
from ._catalogue import (
    c2 as c2,
)
from ._catalogue import (
    c4 as c4,
)
from ._catalogue import (
    cm as cm,
)
from ._catalogue import (
    cmm as cmm,
)
from ._catalogue import (
    cyclic as cyclic,
)
from ._catalogue import (
    d2 as d2,
)
from ._catalogue import (
    d4 as d4,
)
from ._catalogue import (
    diagonal as diagonal,
)
from ._catalogue import (
    flips as flips,
)
from ._catalogue import (
    group_names as group_names,
)
from ._catalogue import (
    image_turns as image_turns,
)
from ._catalogue import (
    inversion as inversion,
)
from ._catalogue import (
    line_reflections as line_reflections,
)
from ._catalogue import (
    meaning as meaning,
)
from ._catalogue import (
    mirror as mirror,
)
from ._catalogue import (
    named as named,
)
from ._catalogue import (
    named_group as named_group,
)
from ._catalogue import (
    needs_points as needs_points,
)
from ._catalogue import (
    octahedral as octahedral,
)
from ._catalogue import (
    octahedral_point as octahedral_point,
)
from ._catalogue import (
    p2 as p2,
)
from ._catalogue import (
    p4 as p4,
)
from ._catalogue import (
    p4m as p4m,
)
from ._catalogue import (
    permutations as permutations,
)
from ._catalogue import (
    pmm as pmm,
)
from ._catalogue import (
    split_names as split_names,
)
from ._catalogue import (
    translations as translations,
)
from ._catalogue import (
    trivial as trivial,
)
from ._catalogue import (
    z2 as z2,
)
from ._continuous import about_axis as about_axis
from ._continuous import from_escnn_group as from_escnn_group
from ._continuous import lorentz as lorentz
from ._continuous import orthogonal as orthogonal
from ._continuous import rotations as rotations
from ._continuous import scalings as scalings
from ._continuous import turns as turns
from ._elements import Element as Element
from ._elements import LatticeElement as LatticeElement
from ._elements import SiteElement as SiteElement
from ._fibre import Fibre as Fibre
from ._fibre import patch_fibre as patch_fibre
from ._groupset import GroupSet as GroupSet
from ._lattice import Lattice as Lattice
from ._lie import Infinitesimal as Infinitesimal
from ._matrices import IntMatrix as IntMatrix
from ._order import as_site_element as as_site_element
from ._order import is_inside as is_inside
from ._order import normalises as normalises
from ._products import generated as generated
from ._products import internal as internal
from ._products import product as product
from ._space import FeatureSpace as FeatureSpace
from ._symmetry import Symmetry as Symmetry
from ._tensors import SCALAR as SCALAR
from ._tensors import Tensors as Tensors
from ._tensors import V as V
from ._values import feature_fibre as feature_fibre
from ._values import idle as idle
from ._values import on_values as on_values
from ._values import value_space as value_space
