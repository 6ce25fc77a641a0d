"""Checkpoints: the state of a run on disk, whole or not at all."""

from cvgnn.checkpoint.folder import Checkpoint as Checkpoint
from cvgnn.checkpoint.folder import Checkpoints as Checkpoints
