"""Decide what is alive, what a layer obeys, and what the network obeys."""

from ._rule import Rule as Rule
from ._selection import LayerSelection as LayerSelection
from ._selection import PathSelection as PathSelection
from ._selection import Selection as Selection
from ._selection import selection as selection
from ._verdict import NONE as NONE
from ._verdict import NOT_MEASURED as NOT_MEASURED
from ._verdict import UNDECIDED as UNDECIDED
from ._verdict import Candidates as Candidates
from ._verdict import verdict as verdict
from ._verdict import verdict_text as verdict_text
from ._view import clearness_text as clearness_text
from ._view import numbered as numbered
from ._view import shown as shown
