"""The planted-symmetry benchmark: data made with a known symmetry, which the method must name."""

from ._deep import DeepCase as DeepCase
from ._figure import figure as figure
from ._linear import LinearCase as LinearCase
from ._presets import PRESETS as PRESETS
from ._presets import SCALES as SCALES
from ._presets import Planted as Planted
from ._report import calibration as calibration
from ._report import headline as headline
from ._report import select_table as select_table
from ._report import summary as summary
from ._report import table as table
from ._report import wilson as wilson
from ._report import write_summary as write_summary
from ._result import CANDIDATES as CANDIDATES
from ._result import CaseResult as CaseResult
from ._result import Counts as Counts
from ._runner import Case as Case
from ._runner import finished as finished
from ._runner import read_result as read_result
from ._runner import run_all as run_all
from ._select import SelectCase as SelectCase
