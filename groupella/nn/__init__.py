"""Layers that learn symmetries: paths, the residual-pathway layer, pooling, nonlinearities.

`paths` has the summands of a layer, `layer` the layer itself, `pooling` and `nonlinearity` what
stands between layers, `circular` the convolution on a torus, and `shared_maps` what curvature reads
off a module. The names used most are here.
"""

from . import nonlinearity as nonlinearity
from . import paths as paths
from . import tensors as tensors
from .circular import circular_conv as circular_conv
from .layer import ResidualPathway as ResidualPathway
from .pooling import GlobalPool as GlobalPool
from .pooling import GroupPool as GroupPool
from .pooling import Lift as Lift
from .pooling import PolyphasePool as PolyphasePool
