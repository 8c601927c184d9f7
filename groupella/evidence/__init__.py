"""Evidence: prior precisions, the Laplace marginal likelihood, and what it selects."""

from .evidence import Evidence as Evidence
from .fit_of_data import DataFit as DataFit
from .fit_of_data import data_fit as data_fit
from .prior import Prior as Prior
from .prior import PriorGroup as PriorGroup
from .report import EvidenceReport as EvidenceReport
from .report import GroupTerm as GroupTerm
from .spectrum import JitterWarning as JitterWarning
from .spectrum import NonFiniteError as NonFiniteError
from .spectrum import Spectrum as Spectrum
