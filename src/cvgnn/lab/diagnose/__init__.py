"""Diagnosis: the estimator's bias and variance, the histories' age, the convergence rate, the theorem's constants."""

from cvgnn.lab.diagnose.bias_vs_lr import diagnose_bias as diagnose_bias
from cvgnn.lab.diagnose.bound import diagnose_bound as diagnose_bound
from cvgnn.lab.diagnose.estimator import diagnose_estimator as diagnose_estimator
from cvgnn.lab.diagnose.gradient import Gradient as Gradient
from cvgnn.lab.diagnose.gradient import Objective as Objective
from cvgnn.lab.diagnose.gradient import batch_gradient as batch_gradient
from cvgnn.lab.diagnose.history_error import diagnose_history as diagnose_history
from cvgnn.lab.diagnose.rate import diagnose_rate as diagnose_rate
from cvgnn.lab.diagnose.record import Diagnosis as Diagnosis
