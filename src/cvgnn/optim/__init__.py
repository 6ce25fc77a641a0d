"""The paper's Adam-type optimizers: momentum times a rule for the second moment, in the paper's form and torch's."""

from cvgnn.optim.adam_type import AdamType as AdamType
from cvgnn.optim.factory import FORMS as FORMS
from cvgnn.optim.factory import OPTIMIZERS as OPTIMIZERS
from cvgnn.optim.factory import TORCH_OPTIMIZERS as TORCH_OPTIMIZERS
from cvgnn.optim.factory import check_options as check_options
from cvgnn.optim.factory import make_optimizer as make_optimizer
from cvgnn.optim.moment_rules import CorrectedAverage as CorrectedAverage
from cvgnn.optim.moment_rules import CorrectedMaximum as CorrectedMaximum
from cvgnn.optim.moment_rules import CorrectedMomentum as CorrectedMomentum
from cvgnn.optim.moment_rules import ExponentialAverage as ExponentialAverage
from cvgnn.optim.moment_rules import FirstMoment as FirstMoment
from cvgnn.optim.moment_rules import Mean as Mean
from cvgnn.optim.moment_rules import Momentum as Momentum
from cvgnn.optim.moment_rules import Ones as Ones
from cvgnn.optim.moment_rules import RunningMaximum as RunningMaximum
from cvgnn.optim.moment_rules import SecondMoment as SecondMoment
from cvgnn.optim.moment_rules import Sum as Sum
from cvgnn.optim.moment_rules import UndampedMomentum as UndampedMomentum
