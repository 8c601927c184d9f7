"""Shared linear maps: the one thing that curvature knows about a layer.

A shared linear map multiplies the same matrix U with many inputs of one sample,

    out[n, s] = U · in[n, s],        n = 1 … N samples,  s = 1 … S positions.

Every path and every stock layer is one or two of them. A module says which (`shared_maps`) and, in
its forward pass, shows what went in and what came out (`record`); it never computes curvature.

Some are block-diagonal, with a matrix and inputs for each block: out[n, b, s] = U_b in[n, b, s].
"""

from ._basis import BasisConvMap as BasisConvMap
from ._basis import DenseBasisMap as DenseBasisMap
from ._bias import BiasMap as BiasMap
from ._bias import TangentMap as TangentMap
from ._block import BlockMap as BlockMap
from ._block import Sharing as Sharing
from ._conv import ConvMap as ConvMap
from ._linear import LinearMap as LinearMap
from ._projected import ProjectedMap as ProjectedMap
from ._protocol import HasSharedMaps as HasSharedMaps
from ._protocol import SharedLinearMap as SharedLinearMap
from ._tape import record as record
from ._tape import recording as recording
from ._tape import taping as taping
