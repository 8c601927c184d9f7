"""The residual-pathway layer and the names of its paths."""

from ._members import is_tied as is_tied
from ._members import strictest as strictest
from ._names import PATHS as PATHS
from ._names import Kind as Kind
from ._names import planned as planned
from ._rescale import rescale as rescale
from ._residual import ResidualPathway as ResidualPathway
from ._residual import check_groups as check_groups

__all__ = [
    "PATHS",
    "Kind",
    "ResidualPathway",
    "check_groups",
    "is_tied",
    "planned",
    "rescale",
    "strictest",
]
