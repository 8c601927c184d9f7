"""From a network of paths to a plain one, once it is known which paths are needed."""

from ._filters import FactoredMatrix as FactoredMatrix
from ._filters import Filter as Filter
from ._filters import Gathered as Gathered
from ._filters import Matrix as Matrix
from ._filters import plain_weights as plain_weights
from ._harden import WorseError as WorseError
from ._harden import harden as harden
