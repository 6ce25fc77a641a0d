"""Training by Algorithm 1, exact evaluation, and the record of a run."""

from cvgnn.training.evaluate import Accuracies as Accuracies
from cvgnn.training.evaluate import Evaluator as Evaluator
from cvgnn.training.guard import Diverged as Diverged
from cvgnn.training.guard import Guard as Guard
from cvgnn.training.outputs import OUTPUTS as OUTPUTS
from cvgnn.training.outputs import Output as Output
from cvgnn.training.recorder import Recorder as Recorder
from cvgnn.training.recorder import as_row as as_row
from cvgnn.training.recorder import from_row as from_row
from cvgnn.training.schedules import SCHEDULES as SCHEDULES
from cvgnn.training.schedules import make_schedule as make_schedule
from cvgnn.training.state import restore_trainer as restore_trainer
from cvgnn.training.state import trainer_state as trainer_state
from cvgnn.training.trainer import EpochRecord as EpochRecord
from cvgnn.training.trainer import Trainer as Trainer
