"""Shared linear maps: the one thing that curvature knows about a layer.

A shared linear map multiplies the same matrix U with many inputs of one sample,

    out[n, s] = U · in[n, s],        n = 1 … N samples,  s = 1 … S positions.

Every path and every stock layer consists of one or two of them. A module names its maps
(`shared_maps`) and reports their inputs and outputs in its forward pass (`record`); it never
computes curvature.

Some maps are block-diagonal, with a matrix and inputs for each block:
out[n, b, s] = U_b in[n, b, s].
"""

from ._basis import LARGEST_INPUT as LARGEST_INPUT
from ._basis import BasisMap as BasisMap
from ._basis import FactorTooLargeError as FactorTooLargeError
from ._bias import BiasMap as BiasMap
from ._bias import exact_blocks as exact_blocks
from ._bias import gradient_gram as gradient_gram
from ._conv import ConvMap as ConvMap
from ._copies import CopiedMap as CopiedMap
from ._matrices import BlockMap as BlockMap
from ._matrices import LinearMap as LinearMap
from ._matrices import Sharing as Sharing
from ._protocol import HasSharedMaps as HasSharedMaps
from ._protocol import SharedLinearMap as SharedLinearMap
from ._protocol import record as record
from ._protocol import recording as recording
from ._protocol import taping as taping
from ._table import TableMap as TableMap
