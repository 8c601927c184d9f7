"""Curvature: Kronecker-factored Gauss–Newton blocks (KFAC) of networks of shared linear maps.

`kronecker` is the algebra and knows no networks; everything else collects factors and does not know
what they are used for. See docs/curvature.md.
"""

from ._batches import batches as batches
from ._collect import check_coverage as check_coverage
from ._collect import evaluation as evaluation
from ._collect import listening as listening
from ._collect import one_tensor as one_tensor
from ._curvature import Curvature as Curvature
from ._curvature import curvature as curvature
from ._hypergradient import hypergradient as hypergradient
from ._loose import check_used as check_used
from ._loose import sample_gradients as sample_gradients
from ._modes import HasCurvature as HasCurvature
from ._modes import exact as exact
from ._modes import mc as mc
from ._modes import subset as subset
from ._plan import matching as matching
from ._tape import BatchTape as BatchTape
from .kronecker import KroneckerBlock as KroneckerBlock
