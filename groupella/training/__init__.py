"""Training: MAP weights and learned precisions, search, checkpoints, several processes."""

from groupella._files import InUseError as InUseError

from ._candidates import FindSettings as FindSettings
from ._checkpoint import Checkpoint as Checkpoint
from ._checkpoint import CheckpointError as CheckpointError
from ._checkpoint import load_checkpoint as load_checkpoint
from ._checkpoint import save_checkpoint as save_checkpoint
from ._cost import CurvatureCost as CurvatureCost
from ._cost import CurvatureTooLargeError as CurvatureTooLargeError
from ._cost import curvature_cost as curvature_cost
from ._data import pair_of as pair_of
from ._distributed import LostProcessError as LostProcessError
from ._distributed import Processes as Processes
from ._fit import Fit as Fit
from ._fit import Interrupted as Interrupted
from ._fit import OnEpoch as OnEpoch
from ._fit import fit as fit
from ._footprint import Footprint as Footprint
from ._footprint import TooLargeError as TooLargeError
from ._footprint import footprint as footprint
from ._history import EpochRecord as EpochRecord
from ._history import History as History
from ._search import Search as Search
from ._search import Trial as Trial
from ._search import best_start as best_start
from ._search import go_on as go_on
from ._search import settle as settle
from ._settings import Settings as Settings
from ._settings import check_names as check_names
from ._symmetry import FoundSymmetry as FoundSymmetry
from ._symmetry import find_symmetry as find_symmetry
from ._symmetry import strict_networks as strict_networks
