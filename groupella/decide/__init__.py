"""Decide what is alive, what a layer obeys, and what the network obeys."""

from ._selection import NOT_MEASURED as NOT_MEASURED
from ._selection import LayerSelection as LayerSelection
from ._selection import PathSelection as PathSelection
from ._selection import Rule as Rule
from ._selection import Selection as Selection
from ._selection import selection as selection
from ._selection_view import clearness_text as clearness_text
from ._selection_view import numbered as numbered
from ._selection_view import shown as shown
from ._verdict import verdict as verdict
from ._verdict import verdict_text as verdict_text
