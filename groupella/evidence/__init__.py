"""Evidence: likelihoods, prior precisions, the Laplace marginal likelihood, predictions."""

from ._evidence import Evidence as Evidence
from ._exact import MOST_JOINT_WEIGHTS as MOST_JOINT_WEIGHTS
from ._exact import ExactEvidence as ExactEvidence
from ._exact import exact_evidence as exact_evidence
from ._exact import joint_size as joint_size
from ._fit_of_data import Batches as Batches
from ._fit_of_data import DataFit as DataFit
from ._fit_of_data import data_fit as data_fit
from ._kernel import KernelEvidence as KernelEvidence
from ._kernel import kernel_evidence as kernel_evidence
from ._predictive import Predictive as Predictive
from ._predictive import Quality as Quality
from ._predictive import calibration_error as calibration_error
from ._prior import PathwayLayer as PathwayLayer
from ._prior import Prior as Prior
from ._prior import PriorGroup as PriorGroup
from ._prior import pathway_layers as pathway_layers
from ._removal import measured_removal as measured_removal
from ._removal import prune as prune
from ._removal import removal as removal
from ._report import EvidenceReport as EvidenceReport
from ._report import GroupTerm as GroupTerm
from ._spectrum import JitterWarning as JitterWarning
from ._spectrum import NonFiniteError as NonFiniteError
from ._spectrum import Spectrum as Spectrum
