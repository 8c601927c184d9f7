"""The field in one table: the methods of the paper's comparison, on the same planted tasks."""

from groupella.experiments.planted import run_all as run_all

from ._methods import METHODS as METHODS
from ._presets import PRESETS as PRESETS
from ._presets import SCALES as SCALES
from ._presets import TUNING as TUNING
from ._presets import Peers as Peers
from ._problem import Problem as Problem
from ._protocol import Found as Found
from ._protocol import Method as Method
from ._protocol import PeerCase as PeerCase
from ._protocol import finished as finished
from ._protocol import tuned_threshold as tuned_threshold
from ._report import figure as figure
from ._report import headline as headline
from ._report import summary as summary
from ._report import write_summary as write_summary
from ._tasks import TASKS as TASKS
from ._tasks import draw as draw
