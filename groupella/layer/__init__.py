"""The residual-pathway layer and the names of its paths."""

from ._names import VARIANTS as PATHS
from ._residual import ResidualPathway as ResidualPathway

__all__ = ["PATHS", "ResidualPathway"]
