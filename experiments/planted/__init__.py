"""The planted-symmetry benchmark: data made with a known symmetry, which the method must name."""

from ._candidates import CANDIDATES as CANDIDATES
from ._deep import DeepCase as DeepCase
from ._labels import LabelCase as LabelCase
from ._linear import LinearCase as LinearCase
from ._outcome import Counts as Counts
from ._outcome import Outcome as Outcome
from ._presets import PRESETS as PRESETS
from ._presets import Planted as Planted
from ._report import figure as figure
from ._report import headline as headline
from ._report import summary as summary
from ._report import table as table
from ._report import wilson as wilson
from ._runner import Case as Case
from ._runner import run_all as run_all
from ._study import SCALES as SCALES
from ._study import finished as finished
from ._study import write_summary as write_summary
