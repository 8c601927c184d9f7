"""Training: MAP weights and learned precisions, checkpoints, several processes."""

from ._checkpoint import Checkpoint as Checkpoint
from ._checkpoint import CheckpointError as CheckpointError
from ._checkpoint import load_checkpoint as load_checkpoint
from ._checkpoint import save_checkpoint as save_checkpoint
