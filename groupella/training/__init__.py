"""Training: MAP weights and learned precisions, checkpoints, several processes."""

from .checkpoint import Checkpoint as Checkpoint
from .checkpoint import CheckpointError as CheckpointError
from .checkpoint import load_checkpoint as load_checkpoint
from .checkpoint import save_checkpoint as save_checkpoint
