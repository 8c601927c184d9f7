"""The front door: `select` finds the symmetry of your data, and an `Answer` holds what it found."""

from ._answer import Answer as Answer
from ._answer import load as load
from ._describe import describe as describe
from ._estimator import SymmetrySelector as SymmetrySelector
from ._export import FORMATS as FORMATS
from ._export import export as export
from ._select import check_groups as check_groups
from ._select import find as find
from ._select import select as select
