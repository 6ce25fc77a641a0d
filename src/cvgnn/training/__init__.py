"""Training by Algorithm 1: the trainer, callbacks, exact evaluation, checkpoints and run folders.

`trainer` has the loop and `trainer_builder` makes a trainer from a config; `run` trains with a run folder
(`run_folder`), whose state `checkpoint` saves and `resume` compares with the present run.
"""

from cvgnn.training.callbacks import Callback as Callback
from cvgnn.training.evaluation import Evaluator as Evaluator
from cvgnn.training.guard import Diverged as Diverged
from cvgnn.training.guard import Guard as Guard
from cvgnn.training.tasks import Metrics as Metrics
from cvgnn.training.tasks import MultiLabelClassification as MultiLabelClassification
from cvgnn.training.tasks import NodeClassification as NodeClassification
from cvgnn.training.tasks import NodeRegression as NodeRegression
from cvgnn.training.tasks import Task as Task
from cvgnn.training.trainer import EpochRecord as EpochRecord
from cvgnn.training.trainer import Trainer as Trainer
from cvgnn.training.training_state import restore_trainer as restore_trainer
from cvgnn.training.training_state import trainer_state as trainer_state
