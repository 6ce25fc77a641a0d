"""The paper's Adam-type optimizers: momentum times a rule for the second moment, in the paper's form and torch's."""

from cvgnn.optim.adam_type import AdamType as AdamType
from cvgnn.optim.first_moment import CorrectedMomentum as CorrectedMomentum
from cvgnn.optim.first_moment import FirstMoment as FirstMoment
from cvgnn.optim.first_moment import Momentum as Momentum
from cvgnn.optim.first_moment import UndampedMomentum as UndampedMomentum
from cvgnn.optim.reference import ReferenceOptimizer as ReferenceOptimizer
from cvgnn.optim.registry import FORMS as FORMS
from cvgnn.optim.registry import OPTIMIZERS as OPTIMIZERS
from cvgnn.optim.registry import check_options as check_options
from cvgnn.optim.registry import make_optimizer as make_optimizer
from cvgnn.optim.second_moment import CorrectedAverage as CorrectedAverage
from cvgnn.optim.second_moment import CorrectedMaximum as CorrectedMaximum
from cvgnn.optim.second_moment import ExponentialAverage as ExponentialAverage
from cvgnn.optim.second_moment import Mean as Mean
from cvgnn.optim.second_moment import Ones as Ones
from cvgnn.optim.second_moment import RunningMaximum as RunningMaximum
from cvgnn.optim.second_moment import SecondMoment as SecondMoment
from cvgnn.optim.second_moment import Sum as Sum
