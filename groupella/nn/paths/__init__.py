"""Paths: the summands of a layer, each a linear map between two feature spaces.

A path knows what it is equivariant to (`symmetry`) and of which shared linear maps it consists
(`shared_maps`); it never computes curvature.
"""

from ._protocol import Convolution as Convolution
from ._protocol import Path as Path
from ._stationary import Sparse as Sparse
from ._stationary import is_stationary as is_stationary
from ._stationary import stationary_part as stationary_part
from .conv import Conv as Conv
from .dense_basis import DenseBasis as DenseBasis
from .factored_fc import FactoredFC as FactoredFC
from .fully_connected import FullyConnected as FullyConnected
from .group_conv import GroupConv as GroupConv
from .product_conv import PairwiseConv as PairwiseConv
from .product_conv import UniformConv as UniformConv
from .separable import SeparableGroupConv as SeparableGroupConv
from .sparse_conv import SparseConv as SparseConv
from .sparse_fc import SparseFC as SparseFC
from .sparse_group_conv import SparseGroupConv as SparseGroupConv
from .tied import TiedFilter as TiedFilter
