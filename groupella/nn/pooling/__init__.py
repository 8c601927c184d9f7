"""Pooling that keeps equivariance: over the lattice, into and out of the fibre."""

from ._centre import Centre as Centre
from ._centre import best_match as best_match
from ._centre import nearly_centred as nearly_centred
from ._centre import rolled_sites as rolled_sites
from ._fibres import GlobalPool as GlobalPool
from ._fibres import GroupPool as GroupPool
from ._fibres import Lift as Lift
from ._fibres import NoInvariantVectorError as NoInvariantVectorError
from ._phases import Norm as Norm
from ._phases import break_ties as break_ties
from ._phases import choose_phase as choose_phase
from ._phases import nearly_largest as nearly_largest
from ._phases import phase_scores as phase_scores
from ._phases import take_phase as take_phase
from ._polyphase import PolyphasePool as PolyphasePool
