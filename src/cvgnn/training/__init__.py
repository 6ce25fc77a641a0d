"""Training by Algorithm 1, exact evaluation, and the record of a run."""

from cvgnn.training.evaluate import Accuracies as Accuracies
from cvgnn.training.evaluate import Evaluator as Evaluator
from cvgnn.training.outputs import OUTPUTS as OUTPUTS
from cvgnn.training.outputs import Output as Output
from cvgnn.training.recorder import Recorder as Recorder
from cvgnn.training.trainer import EpochRecord as EpochRecord
from cvgnn.training.trainer import Trainer as Trainer
